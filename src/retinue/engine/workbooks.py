"""Attached workbooks outlive the process: a run that is taken up again still has them, and so has a fork.

They are kept with the files of their workflow, those of each message by themselves, and go with it. Used by
the app, and where a workflow is taken up.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

import msgspec

from retinue.errors import StoreError
from retinue.events import now
from retinue.run_ids import new_id
from retinue.store.base import KeptFile, Store
from retinue.tools.sheets import Workbook, latest

ATTACHED = "attached"
"""Whose files these are: of no run, but of all runs of a workflow."""
PATH = "workbooks"
"""Those that it began with. Those of a later message have a path of their own below it."""


async def keep_workbooks(store: Store, root_id: str, workbooks: Sequence[Workbook], path: str = PATH) -> None:
    data = msgspec.json.encode(latest(workbooks))
    await store.keep(KeptFile(root_id=root_id, run_id=ATTACHED, path=path, seq=0, at=now(), data=data))


@contextlib.asynccontextmanager
async def kept_with_message(
    store: Store, root_id: str, workbooks: Sequence[Workbook]
) -> AsyncGenerator[None]:
    """While a message is being written that brings these: they are kept if and only if it is."""
    path = f"{PATH}/{new_id()}"
    if workbooks:
        await keep_workbooks(store, root_id, workbooks, path)
    try:
        yield
    except BaseException:
        if workbooks:
            with contextlib.suppress(StoreError):  # why it was not written is worth more
                await store.unkeep(root_id, ATTACHED, path, 0)
        raise


async def kept_workbooks(store: Store, root_id: str, *, until: float | None = None) -> list[Workbook]:
    """All of them, or those that had come `until` then; the last of each name."""
    found = [
        each
        for each in await store.kept(root_id, ATTACHED)
        if each.path == PATH or until is None or each.at <= until
    ]
    return latest(book for each in found for book in msgspec.json.decode(each.data, type=list[Workbook]))


async def copy_workbooks(store: Store, old_root: str, new_root: str, *, until: float) -> None:
    """For a fork of what had been said `until` then."""
    if workbooks := await kept_workbooks(store, old_root, until=until):
        await keep_workbooks(store, new_root, workbooks)
