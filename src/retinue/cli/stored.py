"""What is said of one stored workflow beyond the records of its runs: how to go on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.store.base import RunRow


def go_on(row: RunRow) -> str:
    """What to do about a run that was interrupted."""
    asked = " and a question of it waits ('retinue approvals list'): answer it, then" if row.waiting else ";"
    return f"interrupted: its process is gone{asked} go on with: retinue runs resume {row.root_id}"
