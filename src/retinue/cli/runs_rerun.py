"""`retinue runs`, the part that runs something again: fork and replay.

`runs` puts these into its group.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli import options as o

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.view.live import View


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
    tools: o.Tools = None,
    yes: o.Yes = False,
    wait_approvals: o.WaitApprovals = False,
    wait_limits: o.WaitLimits = False,
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
    from retinue.cli.foreground import Manner, folder_of, in_foreground, output_of, stored_run

    manner = Manner(
        output=output_of(json, events),
        quiet=quiet,
        yes=yes,
        wait_approvals=wait_approvals,
        wait_limits=wait_limits,
    )

    async def go_on() -> int:
        async with stored_run(run, db) as (row, store):

            async def begin(retinue: Retinue, view: View) -> tuple[str, int]:
                return await retinue.fork(row.root_id, at=at, message=message, model=model), 0

            return await in_foreground(begin, manner, db=store, cwd=folder_of(row), tools=tools or ())

    return asyncio.run(go_on())


def replay(run: o.RunId, db: o.Db = None) -> int:
    """Run a stored workflow again from its record, without network or key, and compare the events.

    Prints the difference, if there is one, and ends with code 1.

    \b
    Examples:
      retinue runs replay last
    """
    from retinue.app import Retinue
    from retinue.cli.foreground import stored_run
    from retinue.view.paint import note, out
    from retinue.view.words import count

    async def again() -> int:
        async with stored_run(run, db) as (row, store):
            # In its own folder, where its agents are; where that is gone, the record has to do.
            there = await asyncio.to_thread(os.path.isdir, row.cwd)
            async with Retinue(
                db=store, cwd=Path(row.cwd) if there else None, answering="ask", fallback="offline"
            ) as retinue:
                replayed = await retinue.replay(row.root_id)
        rest = (
            f", up to its first end; what follows ({count(replayed.after, 'event')}) was not replayed"
            if replayed.after
            else ""
        )
        if replayed.same:
            note(f"{row.root_id}: the same {count(len(replayed.events), 'event')} came out{rest}", "green")
            return exits.OK
        out(replayed.diff)
        note(f"{row.root_id}: what came out differs{rest}", "yellow")
        return exits.FAILED

    return asyncio.run(again())


COMMANDS: dict[str, Callable[..., Any]] = {"fork": fork, "replay": replay}
