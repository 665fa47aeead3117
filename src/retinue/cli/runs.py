"""`retinue runs`, the part that looks: list, show, tree, events, export.

What changes runs is in `runs_change`; its commands are added to the same group at the end of this file.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import exits, runs_change, runs_rerun, runs_undo
from retinue.cli import options as o
from retinue.cli.root import new_group

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.engine.take_back import UnmergedCopy
    from retinue.events import AnyEvent
    from retinue.store.base import RunRow
    from retinue.story import Story
    from retinue.types import Report

app = new_group(
    "What was run: look at it, stop it, go on with it, keep it or delete it.",
    (
        "runs list --since 2d",
        "runs show last",
        "runs resume last",
        "runs export last --html -o run.html",
    ),
)

Status = Annotated[
    str | None,
    typer.Option("--status", metavar="S", help="pending, running, waiting, completed, error or cancelled."),
]
Outcome = Annotated[
    str | None,
    typer.Option(
        "--outcome",
        metavar="O",
        help="What the list shows: completed, incomplete, refused, rejected, error, cancelled, interrupted, "
        "waiting, running or pending.",
    ),
]
Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Runs of this agent.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Not older than: 2h, 7d, 2026-11-30.")
]
MinCost = Annotated[
    float | None,
    typer.Option(
        "--min-cost", metavar="USD", help="That cost at least this much, with everything below them."
    ),
]
Text = Annotated[
    str | None, typer.Option("--text", metavar="TEXT", help="With this in their task or summary.")
]
Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", metavar="KEY=VALUE", help="Started with this by a program; repeatable."),
]
All = Annotated[bool, typer.Option("--all", help="Children too, not only what people started.")]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="At most that many.")]


@app.command("list")
def list_runs(
    status: Status = None,
    outcome: Outcome = None,
    agent: Agent = None,
    since: Since = None,
    min_cost: MinCost = None,
    text: Text = None,
    metadata: Metadata = None,
    everything: All = False,
    limit: Limit = 20,
    db: o.Db = None,
    json: o.Json = False,
) -> int:
    """List runs, newest first. Tokens and cost are those of a run and everything below it.

    \b
    Examples:
      retinue runs list
      retinue runs list --outcome rejected --since 2d
      retinue runs list --all --json | jq -r 'select(.tree_cost > 0.1) | .run_id'
    """
    from msgspec import to_builtins

    from retinue.cli.opening import with_retinue
    from retinue.cli.stored import advice
    from retinue.cli.units import since as moment
    from retinue.store.base import RunFilter
    from retinue.types import Outcome as OutcomeWord
    from retinue.types import Status as StatusWord

    which = RunFilter(
        status=_one_of(StatusWord, "status", status),
        outcome=_one_of(OutcomeWord, "outcome", outcome),
        agent=agent,
        roots_only=not everything and agent is None,
        since=moment(since, what="--since") if since else None,
        min_cost=min_cost,
        text=text,
        metadata=_metadata(metadata or ()),
        limit=limit,
    )

    async def found(retinue: Retinue) -> tuple[list[RunRow], list[tuple[RunRow, str]]]:
        rows = await retinue.shown.runs(which)
        if not rows and agent is not None:
            await _check_agent(retinue, agent)
        rows = await retinue.changes.with_old_copies(rows, retinue.services.worktrees)
        return rows, await advice(retinue, rows, most=3)

    rows, stopped = with_retinue(db, found)
    if json:
        for row in rows:
            _print_json(to_builtins(row))
    else:
        _print_list(rows, stopped)
    return exits.OK


async def _check_agent(retinue: Retinue, agent: str) -> None:
    """A name that neither a run has nor an agent of now is a slip, if it is near to one of them."""
    from retinue import settings
    from retinue.errors import ConfigError

    known = {each.key for each in await retinue.store.totals("agent")} | set(retinue.agents.agents)
    if agent not in known and (hint := settings.similar(agent, sorted(known))):
        raise ConfigError(f"no run is of an agent {agent!r}", fix=hint)


def _metadata(given: Sequence[str]) -> dict[str, str]:
    from retinue.errors import ConfigError

    for each in given:
        if "=" not in each:
            raise ConfigError(
                f"--metadata {each!r} is not KEY=VALUE", fix="for example --metadata tenant=acme"
            )
    return dict(each.split("=", 1) for each in given)


def _one_of(words: Any, what: str, text: str | None) -> Any:
    from difflib import get_close_matches
    from typing import get_args

    from retinue.errors import ConfigError

    known = get_args(words)
    if text is not None and text not in known:
        near = get_close_matches(text.lower(), known, n=1)
        fix = f"did you mean '{near[0]}'? It is one of " if near else "one of "
        raise ConfigError(f"there is no {what} {text!r}", fix=fix + ", ".join(known))
    return text


def _print_json(value: Any) -> None:
    import msgspec

    from retinue.view.paint import out_json

    out_json(msgspec.json.encode(value).decode())


def _print_list(listed: list[RunRow], stopped: list[tuple[RunRow, str]]) -> None:
    from retinue.view.paint import note
    from retinue.view.table import TableColumn, print_table

    folders = len({row.cwd for row in listed}) > 1
    heads = (
        TableColumn(title="RUN"),
        TableColumn(title="STATUS"),
        TableColumn(title="AGENT", rank=1),
        TableColumn(title="STARTED", rank=2),
        TableColumn(title="TIME", right=True, rank=3),
        TableColumn(title="TOKENS", right=True, rank=5),
        TableColumn(title="COST", right=True, rank=4),
        *([TableColumn(title="FOLDER", rank=6)] if folders else []),
        TableColumn(title="TASK", flexible=True),
    )
    if listed:
        print_table(heads, [_row(row, folders) for row in listed], sys.stdout)
        for row, said in stopped:
            note(f"{row.run_id} {said}", "yellow")
    else:
        note("no runs match", "dim")


def _standing(row: RunRow) -> str:
    """How it stands, and until when it waits for its provider."""
    import time

    from retinue.view import words

    stands = words.outcome(row.outcome, row.denied)
    if row.parked_until is None or row.completed_at is not None:
        return stands
    return f"{stands}, limit until {words.at_moment(row.parked_until, time.time())}"


def _row(row: RunRow, folders: bool) -> list[tuple[str, str]]:
    from retinue.standing import OPEN
    from retinue.view import words
    from retinue.view.picture import MARKS

    terminal = sys.stdout.isatty()
    mark, style = MARKS[row.outcome]
    return [
        (row.run_id[:12] if terminal else row.run_id, "bold"),
        (f"{mark} {_standing(row)}{', unmerged' if row.unmerged and row.outcome not in OPEN else ''}", style),
        (("↳ " if row.depth else "") + row.agent, ""),
        (words.ago(row.created_at) if terminal else words.moment(row.created_at), "dim"),
        (words.duration(row.seconds(time.time())), ""),
        (words.tokens(row.tree_tokens), ""),
        (words.money(row.tree_cost) if row.tree_cost is not None else "?", ""),
        *([(words.one_line(Path(row.cwd).name), "dim")] if folders else []),
        (words.one_line(row.label or row.task), "dim"),
    ]


@app.command("show")
def show_run(
    run: o.RunId,
    full: Annotated[bool, typer.Option("--full", help="Results and thinking as a whole.")] = False,
    sources: o.Sources = False,
    db: o.Db = None,
    json: o.Json = False,
) -> int:
    """Show a run as a readable transcript: each step, each tool, and the report.

    \b
    Examples:
      retinue runs show last
      retinue runs show r1m7h4 --full | less
      retinue runs show last --sources
      retinue runs show last --json | jq -r .report.text
    """
    from retinue.cli.copies import lines_of, unmerged
    from retinue.cli.opening import find_run, with_retinue
    from retinue.cli.stored import advice
    from retinue.engine.shown import told_with_log
    from retinue.view.answer import print_answer, print_summary
    from retinue.view.paint import columns, note, put
    from retinue.view.transcript import Transcript

    async def found(
        retinue: Retinue,
    ) -> tuple[RunRow, Story, list[AnyEvent], list[str], list[UnmergedCopy]]:
        row = await find_run(retinue, run)
        said = [line for _, line in await advice(retinue, [row])]
        return (
            row,
            *await told_with_log(retinue.store, row),
            said,
            await unmerged(retinue, row.run_id),
        )

    row, story, events, stopped, copies = with_retinue(db, found)
    report = _report(events)
    if json:
        _print_json({"run": row, "report": report.to_dict() if report else None, "unmerged": copies})
        return exits.OK
    width = columns(sys.stdout) if sys.stdout.isatty() else 1000
    answer = report.text if report else ""
    put(Transcript(width=width, full=full, answer=answer, tree=story).of(events), sys.stdout)
    if report is not None:
        print_answer(report)
        print_summary(report, story, claims=sources, shown=True)
    for said in [*stopped, *lines_of(copies)]:
        note(said, "yellow")
    return exits.OK


def _report(events: list[AnyEvent]) -> Report | None:
    """The report, unless the run has gone on since."""
    from retinue.fold import fold

    return fold(events).report


@app.command("tree")
def show_tree(run: o.RunId, db: o.Db = None, json: o.Json = False) -> int:
    """Draw a run and everything below it, with times, tokens and costs.

    \b
    Examples:
      retinue runs tree last
      retinue runs tree last --json | jq -r '[.agent, .outcome] | @tsv'
    """
    from retinue.cli.copies import unmerged_lines
    from retinue.cli.forest import forest
    from retinue.cli.opening import find_run, with_retinue
    from retinue.cli.stored import advice
    from retinue.view.paint import columns, note, put

    async def found(retinue: Retinue) -> tuple[RunRow, list[RunRow], list[str]]:
        row = await find_run(retinue, run)
        said = [line for _, line in await advice(retinue, [row])]
        rows = await retinue.shown.tree(row.root_id)
        return row, rows, [*said, *await unmerged_lines(retinue, row.run_id)]

    row, rows, stopped = with_retinue(db, found)
    if json:
        for one in rows:
            _print_json(one)
        return exits.OK
    width = columns(sys.stdout) if sys.stdout.isatty() else 120
    put(forest(rows, row.run_id, width=width, now=time.time()), sys.stdout)
    for said in stopped:
        note(said, "yellow")
    return exits.OK


@app.command("events")
def show_events(
    run: o.RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and print what happens.")] = False,
    db: o.Db = None,
    json: o.Json = False,
) -> int:
    """Print the events of a workflow, in order; of one run if the id is a child's.

    The number before each is its place, which 'retinue runs fork RUN --at PLACE' takes.

    \b
    Examples:
      retinue runs events last
      retinue runs events last --follow
      retinue runs events r1m7h4 --json | jq -r .type | sort | uniq -c
    """
    from retinue.cli.opening import find_run, with_retinue

    async def show(retinue: Retinue) -> int:
        row = await find_run(retinue, run)
        only = row.run_id if row.parent_id else None
        printing = _EventPrinter(json=json, only=only)
        last = 0
        for event in await retinue.store.events(row.root_id):
            printing.show(event)
            last = event.pos
        if follow and not printing.over:
            async for event in retinue.watch(row.root_id, after=last):
                printing.show(event)
        return exits.OK

    return with_retinue(db, show)


class _EventPrinter:
    """Events as lines, each with the name of its agent. `over`: the root's last event was its end."""

    def __init__(self, *, json: bool, only: str | None) -> None:
        self.json, self.only, self.over = json, only, False
        self._agents: dict[str, str] = {}

    def show(self, event: Any) -> None:
        from retinue.events import (
            Beside,
            Event,
            RunFinished,
            RunStarted,
            encode,
        )
        from retinue.view.paint import out_json, put
        from retinue.view.transcript import event_line

        if not isinstance(event, Event):
            return
        if isinstance(event, RunStarted):
            self._agents[event.run_id] = event.spec.name
        if event.parent_id is None and not isinstance(event, Beside):
            self.over = isinstance(event, RunFinished) and not event.report.at_work
        if self.only not in (None, event.run_id):
            return
        stored: Any = event
        if self.json:
            out_json(encode(stored).decode())
        else:
            put([event_line(stored, self._agents.get(event.run_id, "?"))], sys.stdout)


@app.command("export")
def export_run(
    run: o.RunId,
    html: Annotated[
        bool, typer.Option("--html", help="One self-contained page instead of JSON lines.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there; '-' is stdout.")
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option("--files", metavar="FOLDER", help="Write the files that are kept with it there too."),
    ] = None,
    otlp: Annotated[
        bool,
        typer.Option("--otlp", help="Send it as spans to the OpenTelemetry collector that OTEL_* names."),
    ] = False,
    otlp_file: Annotated[
        Path | None, typer.Option("--otlp-file", metavar="FILE", help="Write the spans there, as OTLP/JSON.")
    ] = None,
    db: o.Db = None,
) -> int:
    """Write a whole workflow out: every event as a line of JSON, or a page to read and to send around.

    What looks like a secret, or is one of this environment, is blanked out.

    \b
    Examples:
      retinue runs export last > run.jsonl
      retinue runs export last --html -o run.html
      retinue runs export last -o run.jsonl --files run-files
      OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 retinue runs export last --otlp
    """
    from retinue.cli.exporting import exported
    from retinue.cli.opening import find_run, with_retinue
    from retinue.engine.keep import export_kept
    from retinue.engine.scrub import named_in, scrubber
    from retinue.engine.undo import export_befores
    from retinue.view.paint import note

    async def found(retinue: Retinue) -> tuple[RunRow, list[AnyEvent], list[str]]:
        row = await find_run(retinue, run)
        events = await retinue.store.events(row.root_id)
        secrets = await asyncio.to_thread(retinue.secrets)
        if files is not None:
            scrubbed = scrubber({*secrets, *named_in(events)})
            count = export_kept(await retinue.store.kept(row.root_id), files, scrubbed)
            changed, content = await retinue.changes.of(row.root_id)
            before, left_out = export_befores(changed, content, files / "before", scrubbed)
            note(f"{files}: {count + before} file{'' if count + before == 1 else 's'}")
            for path in left_out:
                note(f"{path}: left out, it usually holds secrets", "yellow")
        return row, events, secrets

    row, events, secrets = with_retinue(db, found)
    if otlp or otlp_file is not None:
        from retinue.cli.runs_otlp import export_spans

        return export_spans(events, scrubber({*secrets, *named_in(events)}), send=otlp, file=otlp_file)
    data = exported(events, html=html, secrets=secrets, interrupted=row.outcome == "interrupted")
    if output is None or str(output) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    else:
        output.write_bytes(data)
        note(f"{output}: {len(events)} events")
    return exits.OK


for name, command in {**runs_change.COMMANDS, **runs_rerun.COMMANDS, **runs_undo.COMMANDS}.items():
    app.command(name)(command)
