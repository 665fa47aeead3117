"""`retinue runs`, the part that runs something again: fork and replay.

`runs` puts these into its group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o

if TYPE_CHECKING:
    from retinue.app import Retinue


def fork(
    run: o.RunId,
    message: Annotated[
        str | None, typer.Option("--message", "-m", metavar="TEXT", help="Go on with this prompt.")
    ] = None,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="POS", min=1, help="Keep the events up to this place; all if left out."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Go on with another model.")
    ] = None,
    yes: o.Yes = False,
    wait_approvals: o.WaitApprovals = False,
    db: o.Db = None,
    json: o.ReportJson = False,
    events: o.Events = False,
    quiet: o.Quiet = False,
) -> int:
    """Go on from any event of an old run in another way. The old run is left as it is.

    Places are the numbers that 'retinue runs events' shows.

    \b
    Examples:
      retinue runs fork last --message "now the same for the tests"
      retinue runs fork r1m7 --at 12 --model anthropic:claude-sonnet-5-5
    """
    from retinue.cli.ask import output_of

    return asyncio.run(
        _fork(run, message, at, model, yes, wait_approvals, db, output_of(json, events), quiet)
    )


async def _fork(
    run: str,
    message: str | None,
    at: int | None,
    model: str | None,
    yes: bool,
    wait_approvals: bool,
    db: str | None,
    output: str,
    quiet: bool,
) -> int:
    from retinue.app import Retinue
    from retinue.cli.ask import finish, print_event, view_for, warn
    from retinue.cli.driving import drive, open_keyboard
    from retinue.cli.runs_change import folder_of, found

    row, db = await found(run, db)
    view = view_for(output, quiet=quiet)
    keyboard = open_keyboard() if output == "text" else None
    try:
        async with Retinue(
            db=db,
            cwd=folder_of(row),
            answering="ask" if keyboard is not None or wait_approvals else "refuse",
            yes=yes,
            fallback="offline",
        ) as retinue:
            warn(retinue, quiet=quiet)
            outcome = await drive(
                retinue,
                lambda: retinue.fork(row.root_id, at=at, message=message, model=model),
                view=view,
                keyboard=keyboard,
                tell=print_event if output == "events" else None,
            )
            return finish(outcome, output, quiet=quiet, strict_sources=False)
    finally:
        if keyboard is not None:
            keyboard.close()


def replay(run: o.RunId, db: o.Db = None) -> int:
    """Run a stored workflow again from its record, without network or key, and compare the events.

    Prints the difference, if there is one, and ends with code 1.

    \b
    Examples:
      retinue runs replay last
    """
    from retinue.cli.opening import find_run, with_retinue
    from retinue.view.paint import note, out

    async def again(retinue: Retinue) -> int:
        row = await find_run(retinue, run)
        replayed = await retinue.replay(row.root_id)
        if replayed.same:
            note(f"{row.root_id}: the same {len(replayed.events)} events came out", "green")
            return exits.OK
        out(replayed.diff)
        note(f"{row.root_id}: what came out differs", "yellow")
        return exits.FAILED

    return with_retinue(db, again)


COMMANDS: dict[str, Callable[..., Any]] = {"fork": fork, "replay": replay}
