"""What isolated children made and nobody merged, said wherever a run is shown at the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.engine.worktrees import Copy


async def unmerged_lines(retinue: Retinue, run_id: str) -> list[str]:
    """A line for each copy of a workflow or a child whose work is not in the project; none while it works.

    The copies are asked, and not the log: a person may have merged one since, or thrown it away.
    """
    from retinue.tools.diff import on_a_line
    from retinue.view.commands import command
    from retinue.view.words import count

    lines: list[str] = []
    for copy, plan in await retinue.changes.unmerged(run_id, retinue.services.worktrees):
        paths = len(plan.going) + len(plan.conflicts)
        if not paths and not plan.left_out:
            continue
        where = f"branch {copy.branch}" if copy.branch else str(retinue.services.worktrees.path(copy.run_id))
        what = count(paths, "file") if paths else f"{count(len(plan.left_out), 'path')} that cannot be merged"
        clash = f", {count(len(plan.conflicts), 'conflict')}" if plan.conflicts else ""
        lines.append(
            f"! not in the project: {what} of {copy.agent}{clash} ({on_a_line(where)}); "
            f"{command(f'runs merge {copy.run_id}')}{_then(retinue, copy)}"
        )
    return lines


def _then(retinue: Retinue, copy: Copy) -> str:
    """What is to be merged after a copy of a copy: it goes where its parent worked."""
    above = retinue.services.worktrees.above(copy)
    return "".join(f", then {each.run_id} (the copy of {each.agent} that it is of)" for each in above)


async def say_unmerged(retinue: Retinue, run_id: str) -> None:
    from retinue.view.paint import note

    for line in await unmerged_lines(retinue, run_id):
        note(line, "yellow")
