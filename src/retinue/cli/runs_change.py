"""`retinue runs`, the part that changes something: cancel, resume, message, prune, delete.

`runs` puts these into its group. A further command is a function here and a line in `COMMANDS`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.view.live import View

PATIENCE = 5.0
"""Seconds in which a process that lives has taken notice of a cancel."""


def cancel(
    run: o.RunId,
    reason: Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Kept in the log.")] = "",
    db: o.Db = None,
) -> int:
    """Stop a run and everything below it, whichever process runs it. What was done so far is kept.

    \b
    Examples:
      retinue runs cancel last
      retinue runs cancel c8f3 --reason "wrong folder"
    """
    from retinue.cli.opening import find_run, with_retinue
    from retinue.types import ENDED
    from retinue.view.paint import note

    async def stop(retinue: Retinue) -> int:
        row = await find_run(retinue, run)
        if not await retinue.cancel(row.run_id, reason or "cancelled with 'retinue runs cancel'"):
            note(f"{row.run_id} had ended before: {row.outcome}", "dim")
            return exits.OK
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            now = await retinue.store.run(row.run_id)
            if now is not None and now.status in ENDED:
                note(f"{row.run_id}: {now.status}", "green")
                return exits.OK
            await asyncio.sleep(0.05)
        note(
            f"{row.run_id} was told to stop, but no process took notice within {PATIENCE:g} s; "
            f"the one that ran it may be gone ('retinue runs resume {row.root_id}' would go on with it)",
            "yellow",
        )
        return exits.FAILED

    return with_retinue(db, stop)


def resume(
    run: o.RunId,
    message: Annotated[
        str | None, typer.Option("--message", "-m", metavar="TEXT", help="Say this, and let it answer.")
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Even if another process seems to be running it.")
    ] = False,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Go on with another model.")
    ] = None,
    max_turns: o.MaxTurns = None,
    timeout: o.Timeout = None,
    max_cost: o.MaxCost = None,
    policy: o.Policy = None,
    tools: o.Tools = None,
    yes: o.Yes = False,
    wait_approvals: o.WaitApprovals = False,
    wait_limits: o.WaitLimits = False,
    db: o.Db = None,
    json: o.ReportJson = False,
    events: o.Events = False,
    quiet: o.Quiet = False,
) -> int:
    """Go on with a whole workflow where its log ends: after a crash, a cancel, an error or a limit.

    Nothing that was paid for is asked again. With --message a finished conversation goes on. Limits that are
    given hold from here on; --max-turns with the id of a child is for that child.

    \b
    Examples:
      retinue runs resume last
      retinue runs resume last --message "and where are they tested?"
      retinue runs resume last --max-turns 60 --max-cost 2
    """
    from retinue.cli.foreground import Manner, folder_of, in_foreground, output_of, stored_run
    from retinue.cli.opening import resumed
    from retinue.cli.run_flags import limits_of

    manner = Manner(
        output=output_of(json, events),
        quiet=quiet,
        yes=yes,
        wait_approvals=wait_approvals,
        wait_limits=wait_limits,
    )
    limits = limits_of(max_turns, timeout, max_cost, policy)

    async def go_on() -> int:
        async with stored_run(run, db) as (row, store):

            async def begin(retinue: Retinue, view: View) -> tuple[str, int]:
                return await resumed(
                    retinue,
                    view,
                    row.run_id,
                    message=message,
                    take_over=take_over,
                    yes=yes,
                    settings=limits,
                    model=model,
                )

            return await in_foreground(begin, manner, db=store, cwd=folder_of(row), tools=tools or ())

    return asyncio.run(go_on())


def message(
    run: o.RunId,
    text: Annotated[list[str], typer.Argument(metavar="TEXT", help="What to say.", show_default=False)],
    db: o.Db = None,
) -> int:
    """Tell a running run something. It reads it before its next step; a child that has ended is asked again.

    \b
    Examples:
      retinue runs message last "only look at the Python files"
    """
    from retinue.cli.opening import find_run, with_retinue
    from retinue.errors import ConfigError
    from retinue.view.paint import note

    async def send(retinue: Retinue) -> int:
        row = await find_run(retinue, run)
        if not await retinue.message(row.run_id, " ".join(text)):
            now = await retinue.store.run(row.run_id) or row
            raise ConfigError(
                f"{row.run_id} has ended ({now.outcome}) and reads no more messages",
                fix=f"'retinue runs resume {row.run_id} --message …' goes on with it",
            )
        note("sent", "green")
        return exits.OK

    return with_retinue(db, send)


def rename(
    run: o.RunId,
    name: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="The name; without, none.", show_default=False)
    ] = None,
    db: o.Db = None,
) -> int:
    """Give a workflow that nobody works on another name for lists.

    \b
    Examples:
      retinue runs rename last "the retry question"
      retinue runs rename last
    """
    from retinue.cli.opening import find_run, with_retinue
    from retinue.view.paint import note

    async def call_it(retinue: Retinue) -> str:
        row = await find_run(retinue, run)
        await retinue.rename(row.run_id, " ".join(name or ()))
        return row.run_id

    run_id = with_retinue(db, call_it)
    note(f"{run_id} is called {' '.join(name)!r} in lists" if name else f"{run_id} has no name now", "green")
    return exits.OK


def prune(
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Nothing happened since: 30d, 12h.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option("--max-size", metavar="SIZE", help="The oldest, until it fits: 500MB, 2GB.")
    ] = None,
    strays: Annotated[
        bool, typer.Option("--strays", help="Only what is left of workflows that are not there any more.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    db: o.Db = None,
) -> int:
    """Remove old workflows for good. What still waits for a person is kept.

    \b
    Examples:
      retinue runs prune --older-than 30d --dry-run
      retinue runs prune --max-size 500MB
    """
    from retinue.cli import units
    from retinue.cli.opening import with_retinue
    from retinue.errors import ConfigError
    from retinue.view import words
    from retinue.view.paint import note, out

    if older_than is None and max_size is None and not strays:
        raise ConfigError(
            "nothing to prune by", fix="give --older-than 30d, --max-size 500MB, both, or --strays"
        )
    before = time.time() - units.age(older_than, what="--older-than") if older_than else None
    most = units.size(max_size, what="--max-size") if max_size else None

    async def remove(retinue: Retinue) -> int:
        from retinue.store.prune import prune as remove_old

        was = await retinue.store.size()
        pruned = await remove_old(
            retinue.store, before=before, max_bytes=most, strays=strays, dry_run=dry_run
        )
        for root_id in pruned.root_ids:
            out(root_id)
        verb = "would be removed" if dry_run else "removed"
        now = was if dry_run else await retinue.store.size()
        note(
            f"{words.count(len(pruned.root_ids), 'workflow')} with {words.count(pruned.events, 'event')} "
            f"{verb}; the database has {words.size(now)}",
            "dim",
        )
        if pruned.strays:
            note(
                f"what was left of {words.count(len(pruned.strays), 'workflow')} that is not there {verb}",
                "dim",
            )
        if not dry_run:
            freed = await retinue.changes.tidy(retinue.services.worktrees)
            if freed:
                note(f"{words.size(freed)} of shadows of projects without workflows removed", "dim")
            await _name_copies(retinue, pruned.root_ids)
        return exits.OK

    return with_retinue(db, remove)


async def _name_copies(retinue: Retinue, root_ids: Collection[str]) -> None:
    """Copies of the project outlive their workflow, since what is in them was never merged."""
    from retinue.view.paint import note

    copies = retinue.services.worktrees
    for copy in await asyncio.to_thread(copies.all):
        if copy.root_id in root_ids:
            note(
                f"what {copy.agent} made is still in {copies.path(copy.run_id)}; "
                f"'retinue runs merge {copy.run_id} --discard' throws it away",
                "yellow",
            )


def delete(
    run: o.RunId,
    force: Annotated[bool, typer.Option("--force", help="Even if it has not ended, and unasked.")] = False,
    db: o.Db = None,
) -> int:
    """Remove one workflow for good: the run, everything below it, and all their events. Asks on a terminal.

    With --force also one that is at work: the process that works on it notices, and stops with an error.

    \b
    Examples:
      retinue runs delete r1m7h4
    """
    from retinue.cli.opening import find_run, with_retinue
    from retinue.errors import ConfigError
    from retinue.types import ENDED
    from retinue.view.paint import note
    from retinue.view.words import one_line

    async def remove(retinue: Retinue) -> int:
        row = await find_run(retinue, run)
        if row.parent_id is not None:
            raise ConfigError(f"{row.run_id} is part of {row.root_id}", fix=f"delete {row.root_id}")
        if row.status not in ENDED and not force:
            raise ConfigError(
                f"{row.run_id} has not ended ({row.status})", fix="cancel it first, or use --force"
            )
        if not force and sys.stdin.isatty() and sys.stderr.isatty():
            told = f"Delete {row.root_id} ({row.agent}: {one_line(row.task)[:60]}) and all below it for good?"
            if not await asyncio.to_thread(typer.confirm, told, err=True):
                note("nothing was deleted", "yellow")
                return exits.OK
        await retinue.changes.forget(row.root_id)
        await retinue.store.delete(row.root_id)
        at_work = "" if row.status in ENDED else "; a process that still works on it stops with an error"
        note(f"{row.root_id} deleted{at_work}", "green")
        await _name_copies(retinue, [row.root_id])
        return exits.OK

    return with_retinue(db, remove)


COMMANDS: dict[str, Callable[..., Any]] = {
    "cancel": cancel,
    "resume": resume,
    "message": message,
    "rename": rename,
    "prune": prune,
    "delete": delete,
}
