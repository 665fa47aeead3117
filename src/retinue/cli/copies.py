"""What isolated children made and nobody merged, said wherever a run is shown at the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.app import Retinue


async def unmerged_lines(retinue: Retinue, run_id: str) -> list[str]:
    """A line for each copy of a workflow or a child whose work is not in the project; none while it works.

    The copies are asked, and not the log: a person may have merged one since, or thrown it away.
    """
    from retinue.tools.diff import on_a_line
    from retinue.view.words import count

    lines: list[str] = []
    for copy, plan in await retinue.changes.unmerged(run_id, retinue.services.worktrees):
        paths = len(plan.going) + len(plan.conflicts)
        if not paths and not plan.left_out:
            continue
        where = f"branch {copy.branch}" if copy.branch else str(retinue.services.worktrees.path(copy.run_id))
        clash = f", {count(len(plan.conflicts), 'conflict')}" if plan.conflicts else ""
        lines.append(
            f"! not in the project: {count(paths, 'file')} of {copy.agent}{clash} ({on_a_line(where)}); "
            f"retinue runs merge {copy.run_id}"
        )
    return lines


async def say_unmerged(retinue: Retinue, run_id: str) -> None:
    from retinue.view.paint import note

    for line in await unmerged_lines(retinue, run_id):
        note(line, "yellow")
