"""`retinue map`: one agent over the lines of a file, the rows of a table, or many files.

Reads the inputs and writes the results; the batch itself is `Retinue.map`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits
from retinue.cli.run_flags import RunFlags, with_run_flags

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.cli.map_inputs import MapInputs
    from retinue.cli.map_results import Results
    from retinue.map_batch import MapBatch, MapItem


NOT_HERE = (
    *("policy", "attach", "label", "wait_approvals", "wait_limits"),
    *("json", "messages", "events", "sources", "strict_sources", "show_prompt"),
)
"""Options of one run that say nothing of many."""
WORST = (exits.FAILED, exits.REFUSED, exits.INCOMPLETE)
"""The codes of rows, the worst first: whichever ends first, the command ends alike."""


@with_run_flags(but=NOT_HERE)
def map_(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its name; see 'retinue agents list'.")],
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT", help="A text file, CSV, JSON lines, '-', or several files."),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="KIND", help="lines, csv, jsonl or files, where the name does not say so."
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", "-p", metavar="TEXT", help="What is asked, with {line}, {path} or {column}."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="COLUMN", help="The column that tells rows apart.")
    ] = None,
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="Another name does everything anew.", show_default=False),
    ] = "",
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-n", metavar="N", min=1, help="How many inputs at once.")
    ] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Results: .csv, else JSON lines; without it, stdout."
        ),
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Results in the order of the inputs, not as they end.")
    ] = False,
    *,
    flags: RunFlags,
) -> int:
    """Run one agent on each of many inputs. Started again, it does only what is missing.

    The limits are those of each run. What would ask a person is refused, unless a rule or --yes allows it.

    \b
    Examples:
      retinue map summarize notes/*.md --out summaries.jsonl
      retinue map general tickets.csv --key id --prompt "Which team is this for? {text}" --out teams.csv
      cat questions.txt | retinue map web-knowledge - --concurrency 4
    """
    from retinue.cli.map_inputs import read_inputs
    from retinue.cli.map_results import Results
    from retinue.cli.opening import opened_for_many

    given = read_inputs(inputs, kind=kind, prompt=prompt, key=key, cwd=flags.cwd)
    options: dict[str, Any] = {
        "settings": flags.settings,
        "effort": flags.effort or "",
        "drawn_from": given.drawn_from,
        "said": prompt or "",
    }

    async def work() -> int:
        async with opened_for_many(flags) as retinue:
            with Results(out) as results:
                batch = _batch(retinue, agent, given, name, concurrency, ordered, options)
                return await _drive(batch, results, len(given.rows), quiet=flags.quiet)

    return asyncio.run(work())


def _batch(
    retinue: Retinue,
    agent: str,
    given: MapInputs,
    name: str,
    concurrency: int,
    ordered: bool,
    options: dict[str, Any],
) -> MapBatch[Any]:
    spec = retinue.agents.get(agent).spec
    return retinue.map(
        agent,
        given.rows,
        name=name,
        key=given.key_of,
        prompt=given.prompt_for(spec),
        concurrency=concurrency,
        ordered=ordered,
        **options,
    )


async def _drive(batch: MapBatch[Any], results: Results, size: int, *, quiet: bool) -> int:
    from retinue.cli.map_results import progress
    from retinue.view.paint import note
    from retinue.view.words import money

    codes: set[int] = set()
    with progress(size, quiet=quiet) as shown:
        try:
            async for item in batch:
                results.add(item)
                shown(item.done, item.failed)
                codes.add(_code(item))
        except (asyncio.CancelledError, KeyboardInterrupt):
            note(f"! stopped after {batch.done} of {size}: the same command goes on from here", "yellow")
            raise
    if not quiet:
        paid = money(batch.usage.cost)
        fine = batch.done - batch.failed
        before = f" · {batch.from_before} from an earlier start" if batch.from_before else ""
        used = f"{batch.usage.total_tokens:,} tokens · {paid}"
        note(f"{fine} of {size} completed, {batch.failed} not{before} · {used}")
        if batch.failed:
            note("the same command takes up what is not completed; 'error' in its result tells why", "yellow")
    return next((code for code in WORST if code in codes), exits.OK)


def _code(item: MapItem[Any]) -> int:
    """As `ask` would have ended with the same report; what could not even be started has failed."""
    if item.report is None:
        return exits.FAILED
    if item.report.status == "completed":
        return exits.OF_OUTCOME.get(item.report.outcome, exits.OK)
    return exits.FAILED
