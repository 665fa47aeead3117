"""`retinue runs`, the part about files: diff, undo, worktrees and merge.

`runs` puts these into its group.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.engine.undo import ChangeSet, Undone


def diff(
    run: o.RunId,
    stat: Annotated[bool, typer.Option("--stat", help="A line for each file, without its content.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    db: o.Db = None,
) -> int:
    """Show what a workflow changed in its project, its children included; of a child, what it changed.

    \b
    Examples:
      retinue runs diff last
      retinue runs diff last --stat
    """
    from retinue.cli.copies import say_unmerged
    from retinue.cli.opening import find_run, with_retinue
    from retinue.view import changes as view
    from retinue.view import words
    from retinue.view.paint import note, out, out_json

    async def show(retinue: Retinue) -> int:
        import msgspec

        row = await find_run(retinue, run)
        found, content = await retinue.changes.of(row.run_id)
        listed = [(change.path, change.before, change.after) for change in found.changes]
        shown = await asyncio.to_thread(view.shown_changes, listed, content)
        if json:
            said = {"project": str(found.project or ""), "changes": shown, "left_out": found.left_out}
            said["taken_back"] = found.taken_back
            out_json(msgspec.json.encode(said).decode())
            return exits.OK
        if stat:
            for change in shown:
                out(view.one_line(change))
        elif shown:
            out(view.as_patch(shown).rstrip("\n"))
        _say_left_out(found)
        if found.taken_back:
            what = words.count(len(found.taken_back), "path")
            note(f"{what} changed and taken back since: {', '.join(found.taken_back[:5])}", "dim")
        if shown or not found.taken_back:
            note(view.summed(shown) if shown else f"{row.run_id} changed nothing that is recorded", "dim")
        await say_unmerged(retinue, row.run_id)
        return exits.OK

    return with_retinue(db, show)


def _say_left_out(found: ChangeSet) -> None:
    from retinue.tools.diff import on_a_line
    from retinue.view.paint import note

    for line in found.left_out:
        note(f"not among these: {on_a_line(line)}", "yellow")
    for change in found.changes:
        if change.mixed:
            note(f"{on_a_line(change.path)} was changed by somebody else in between", "yellow")
    if found.unfinished:
        note("a command was cut off: what anyone changed since it began is among these", "yellow")


def undo(
    run: o.RunId,
    rest: Annotated[
        bool, typer.Option("--rest", help="Leave files that changed since as they are, take back the others.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be taken back.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    db: o.Db = None,
) -> int:
    """Take back what a workflow changed in its project: every file as it was before.

    If a file is no longer as the workflow left it, nothing is touched. Asks on a terminal.

    \b
    Examples:
      retinue runs undo last --dry-run
      retinue runs undo last
    """
    from retinue.cli.opening import find_run, with_retinue
    from retinue.view import words
    from retinue.view.paint import note

    async def take_back(retinue: Retinue) -> int:
        row = await find_run(retinue, run)
        planned = await retinue.changes.undo(row.run_id, dry_run=True)
        if dry_run or (planned.refused and not rest):
            _say(planned, "would be as before" if dry_run else "")
            if planned.refused:
                more = (
                    "; --rest takes back the others"
                    if planned.paths
                    else ", and there is no more to take back"
                )
                note(f"nothing was touched{more}", "yellow")
            elif not planned.paths:
                note(_nothing(planned), "dim")
            return exits.FAILED if planned.refused else exits.OK
        if not planned.paths:
            _say(planned, "")
            if planned.refused:
                note("nothing was taken back: all that is left was refused", "yellow")
                return exits.FAILED
            note(_nothing(planned), "dim")
            return exits.OK
        if not yes and sys.stdin.isatty() and sys.stderr.isatty():
            _say(planned, "will be as before")
            told = f"Take back {words.count(len(planned.paths), 'change')}?"
            if not await asyncio.to_thread(typer.confirm, told, err=True):
                note("nothing was touched", "yellow")
                return exits.OK
        done = await retinue.changes.undo(row.run_id, rest=rest)
        _say(done, "as before")
        whole = not (done.refused or done.left_out)
        note(f"{words.count(len(done.paths), 'path')} taken back", "green" if whole else "yellow")
        return exits.FAILED if done.refused else exits.OK

    return with_retinue(db, take_back)


def _nothing(planned: Undone) -> str:
    return "nothing to take back: all of it is as it was before" if planned.already else "no changes"


def _say(done: Undone, how: str) -> None:
    from retinue.tools.diff import on_a_line
    from retinue.view.paint import note, out

    for path in done.paths if how else ():
        out(f"{on_a_line(path)}: {how}")
    for path in done.linked if how else ():
        note(f"{on_a_line(path)}: a hard link; its other names are left as they are now", "yellow")
    for path in done.stays:
        note(f"{on_a_line(path)}: stays, since files of somebody else are in it", "yellow")
    for path, why in done.refused:
        note(f"{on_a_line(path)}: {why}", "yellow")
    for line in done.left_out:
        note(f"cannot be taken back: {on_a_line(line)}", "yellow")


def worktrees(
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    db: o.Db = None,
) -> int:
    """List the copies of projects in which isolated agents worked, and that were not merged yet.

    \b
    Examples:
      retinue runs worktrees
    """
    from retinue.cli.opening import with_retinue
    from retinue.tools.diff import on_a_line
    from retinue.view.paint import note, out, out_json

    async def show(retinue: Retinue) -> int:
        import msgspec

        found = await asyncio.to_thread(retinue.services.worktrees.all)
        for copy in found:
            path = retinue.services.worktrees.path(copy.run_id)
            if json:
                out_json(msgspec.json.encode({**msgspec.to_builtins(copy), "path": str(path)}).decode())
            else:
                where = f"{on_a_line(str(path))}  of {on_a_line(copy.source)}"
                out(f"{copy.run_id}  {copy.agent}  {copy.branch or 'no branch'}  {where}")
        if not found:
            note("there are none", "dim")
        return exits.OK

    return with_retinue(db, show)


def merge(
    run: o.RunId,
    rest: Annotated[
        bool, typer.Option("--rest", help="Leave out files with conflicts, and merge the others.")
    ] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Throw the copy and its branch away.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    db: o.Db = None,
) -> int:
    """Merge what an isolated child changed in its copy into the project. Shows the diff, and asks.

    Where nobody can be asked, nothing is merged without --yes. If anything is left in the copy, the exit code
    is 1.

    \b
    Examples:
      retinue runs worktrees
      retinue runs merge c8f3
      retinue runs merge c8f3 --discard
    """
    from retinue.cli.opening import find_run, with_retinue
    from retinue.engine.merge_diffs import conflicts, planned_diff
    from retinue.errors import ConfigError, ToolError
    from retinue.tools.diff import on_a_line
    from retinue.view.paint import note, out

    async def put_in(retinue: Retinue) -> int:
        copies = retinue.services.worktrees
        # By the copy: its workflow may be deleted.
        copy = await asyncio.to_thread(copies.copy_of, run)
        copy = copy or await asyncio.to_thread(copies.copy_of, (await find_run(retinue, run)).run_id)
        if copy is None:
            named = (await find_run(retinue, run)).run_id
            raise ConfigError(f"{named} has no copy of a project", fix="'retinue runs worktrees' lists them")
        asks = not yes and sys.stdin.isatty() and sys.stderr.isatty()
        unasked = not yes and not asks
        if not discard and await retinue.store.run(copy.run_id) is None:
            where = f"its branch {copy.branch}" if copy.branch else str(copies.path(copy.run_id))
            raise ConfigError(
                f"the workflow of {copy.run_id} was deleted, and with it what would record the merge",
                fix=f"its work is in {where}: merge that by hand, then --discard",
            )
        if discard and unasked:
            raise ConfigError("nobody can be asked here whether to throw it away", fix="say --yes")
        try:
            plan = await asyncio.to_thread(copies.plan, copy, retinue.settings.undo)
            out(await asyncio.to_thread(planned_diff, copy, plan))
            for line in plan.left_out:
                note(f"not among these: {on_a_line(line)}", "yellow")
            for clash in () if discard or not unasked else conflicts(plan):
                note(clash, "yellow")
        except ToolError as error:
            note(str(error), "yellow")
            if not discard:
                return exits.FAILED
        if unasked:
            raise ConfigError("nobody can be asked here whether to merge this: nothing was", fix="say --yes")
        what = "Throw this away?" if discard else f"Merge this into {on_a_line(copy.source)}?"
        if asks and not await asyncio.to_thread(typer.confirm, what, err=True):
            note("nothing was touched", "yellow")
            return exits.OK
        if discard:
            await retinue.changes.discard(copy.run_id, copies)
            note(f"the copy of {copy.run_id} is gone", "green")
            return exits.OK
        try:
            done = await retinue.changes.merge(copy.run_id, copies, rest=rest, spelt="--rest")
        except ToolError as error:
            note(str(error), "yellow")
            return exits.FAILED
        note(done.result.text, "green" if done.whole else "yellow")
        return exits.OK if done.whole else exits.FAILED

    return with_retinue(db, put_in)


COMMANDS: dict[str, Callable[..., Any]] = {"diff": diff, "undo": undo, "worktrees": worktrees, "merge": merge}
