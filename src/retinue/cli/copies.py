"""What isolated runs made and nobody merged, said wherever a run is shown at the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.engine.take_back import UnmergedCopy


async def unmerged(retinue: Retinue, run_id: str) -> list[UnmergedCopy]:
    """The copies of a workflow or a child whose work is not in the project; none while it works."""
    return await retinue.changes.not_in_project(run_id, retinue.services.worktrees)


async def unmerged_lines(retinue: Retinue, run_id: str) -> list[str]:
    """A line for each of them."""
    return lines_of(await unmerged(retinue, run_id))


def lines_of(copies: list[UnmergedCopy]) -> list[str]:
    from retinue.tools.diff import on_a_line
    from retinue.view.commands import command
    from retinue.view.words import count

    lines: list[str] = []
    for copy in copies:
        where = f"branch {copy.branch}" if copy.branch else copy.path
        if not copy.path:
            left = count(copy.files + copy.left_out, "file")
            branch = f", or its branch by hand: git merge {on_a_line(copy.branch)}" if copy.branch else ""
            said = f"! not in the project: {left} of {copy.agent}; its copy is not here"
            lines.append(f"{said}: merge it where it ran{branch}")
            continue
        what = (
            count(copy.files, "file")
            if copy.files
            else f"{count(copy.left_out, 'path')} that cannot be merged"
        )
        clash = f", {count(copy.conflicts, 'conflict')}" if copy.conflicts else ""
        # A copy of a copy goes where its parent worked, and that is to be merged after it.
        then = "".join(
            f", then {each} (the copy of {agent} that it is of)" for each, agent in copy.above.items()
        )
        lines.append(
            f"! not in the project: {what} of {copy.agent}{clash} ({on_a_line(where)}); "
            f"{command(f'runs merge {copy.run_id}')}{then}"
        )
    return lines


async def say_unmerged(retinue: Retinue, run_id: str) -> None:
    from retinue.view.paint import note

    for line in await unmerged_lines(retinue, run_id):
        note(line, "yellow")
