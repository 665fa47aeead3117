"""Attached workbooks outlive the process: a run that is taken up again still has them. Used by the app."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from retinue.store.base import Store
from retinue.tools.sheets import Workbook

DAYS = 90


async def keep_workbooks(store: Store, root_id: str, workbooks: Sequence[Workbook]) -> None:
    await store.cache("workbooks", root_id, msgspec.json.encode(workbooks), DAYS * 86400)


async def kept_workbooks(store: Store, root_id: str) -> list[Workbook]:
    found = await store.cached("workbooks", root_id)
    return [] if found is None else msgspec.json.decode(found[0], type=list[Workbook])
