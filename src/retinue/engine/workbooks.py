"""Attached workbooks outlive the process: a run that is taken up again still has them, and so has a fork.

They are kept with the files of their workflow, and go with it. Used by the app.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from retinue.events import now
from retinue.store.base import KeptFile, Store
from retinue.tools.sheets import Workbook

ATTACHED = "attached"
"""Whose files these are: of no run, but of all runs of a workflow."""
PATH = "workbooks"


async def keep_workbooks(store: Store, root_id: str, workbooks: Sequence[Workbook]) -> None:
    data = msgspec.json.encode(workbooks)
    await store.keep(KeptFile(root_id=root_id, run_id=ATTACHED, path=PATH, seq=0, at=now(), data=data))


async def kept_workbooks(store: Store, root_id: str) -> list[Workbook]:
    found = await store.kept(root_id, ATTACHED)
    return msgspec.json.decode(found[-1].data, type=list[Workbook]) if found else []


async def copy_workbooks(store: Store, old_root: str, new_root: str) -> None:
    """For a fork."""
    for file in await store.kept(old_root, ATTACHED):
        await store.keep(msgspec.structs.replace(file, root_id=new_root, at=now()))
