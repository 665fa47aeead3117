"""One run in front of a person: `Retinue` opened, the run begun, shown and asked about, its report printed.

`ask`, `run`, `runs resume` and `runs fork` differ in how a run begins and share the rest, which is here.
What happens while it runs is in `driving`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.cli.driving import DrivenRun
    from retinue.engine.take_back import UnmergedCopy
    from retinue.events import LiveEvent
    from retinue.store.base import RunRow, Store
    from retinue.types import Report
    from retinue.view.live import View

Output = Literal["text", "json", "events"]


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a command was told to run something: what it prints, and who approves."""

    output: Output = "text"
    messages: bool = False
    """With a report as JSON: every conversation as well."""
    quiet: bool = False
    yes: bool = False
    wait_approvals: bool = False
    wait_limits: bool = False
    sources: bool = False
    strict_sources: bool = False


def output_of(json: bool, events: bool) -> Output:
    from retinue.errors import ConfigError

    if json and events:
        raise ConfigError("--json and --events cannot be used together", fix="choose one")
    return "events" if events else "json" if json else "text"


def with_messages(json: bool, messages: bool) -> bool:
    from retinue.errors import ConfigError

    if messages and not json:
        raise ConfigError("--messages adds to the report as JSON", fix="give --json as well")
    return messages


async def in_foreground(
    begin: Callable[[Retinue, View], Awaitable[tuple[str, int]]],
    manner: Manner,
    *,
    db: str | Store | None,
    cwd: Path | None,
    model: str | None = None,
    small_model: str | None = None,
    tools: Sequence[str] = (),
    after: Callable[[Report], None] | None = None,
) -> int:
    """Begin a run and stay with it to its end. Returns the exit code. `after` is told the report.

    `begin` shows the view what it should know of the past. It returns the id of the run, and the place in the
    log up to which the view knows it.
    """
    from retinue.app import Retinue
    from retinue.cli.copies import say_unmerged, unmerged
    from retinue.cli.driving import drive, open_keyboard
    from retinue.cli.mcp import ask_about_servers
    from retinue.cli.own_tools import tools_of

    loaded = tools_of(cwd, tools, quiet=manner.quiet, ask=manner.output == "text")
    ask_about_servers(cwd, quiet=manner.quiet, ask=manner.output == "text")
    view = view_for(manner)
    keyboard = open_keyboard() if manner.output == "text" else None
    try:
        async with Retinue(
            model=model,
            small_model=small_model,
            db=db,
            cwd=cwd,
            tool_files=loaded,
            answering="ask" if keyboard is not None or manner.wait_approvals else "refuse",
            yes=manner.yes,
            fallback="offline",
            conversations=False,
        ) as retinue:
            warn(retinue, quiet=manner.quiet)
            await warn_if_nobody_works(retinue, quiet=manner.quiet)
            tell = print_event if manner.output == "events" else None
            ended = await drive(
                retinue,
                lambda: begin(retinue, view),
                view=view,
                keyboard=keyboard,
                tell=tell,
                wait_limits=manner.wait_limits,
            )
            if manner.messages:
                told = ended.report.with_messages(await retinue.messages_of(ended.report.run_id))
                ended = replace(ended, report=told)
            copies = await unmerged(retinue, ended.report.run_id) if manner.output == "json" else []
            code = finish(ended, manner, copies)
            if after is not None:
                after(ended.report)
            if not manner.quiet:
                await say_unmerged(retinue, ended.report.run_id)
            return code
    finally:
        if keyboard is not None:
            keyboard.close()


@asynccontextmanager
async def stored_run(run: str, db: str | None) -> AsyncGenerator[tuple[RunRow, Store]]:
    """The run a person means, and the open database it is in: the settings of its own folder name another."""
    from retinue import settings
    from retinue.cli.opening import refuse_absent, stored_row
    from retinue.store.connect import connect, default_url

    refuse_absent(db)
    loaded = settings.load(flags={} if db is None else {"db": db})
    store = connect(loaded.settings.db or default_url())
    await store.open()
    try:
        yield await stored_row(store, run), store
    finally:
        await store.close()  # whoever went on with it has closed it before


def folder_of(row: RunRow) -> Path | None:
    """Where the run worked, and works again."""
    from retinue.errors import ConfigError

    if not row.cwd:
        return None
    folder = Path(row.cwd)
    if not folder.is_dir():
        raise ConfigError(f"the run worked in {folder}, which is not there any more")
    return folder


def view_for(manner: Manner) -> View:
    """The live tree where there is a screen to draw it on; else lines, or nothing beside the events."""
    from retinue.view.live import LiveView, PlainView
    from retinue.view.paint import is_screen

    if manner.output == "text" and not manner.quiet and is_screen(sys.stderr) and is_screen(sys.stdout):
        return LiveView()
    return PlainView(quiet=manner.quiet or manner.output == "events", ending=manner.output == "json")


def warn(retinue: Retinue, *, quiet: bool) -> None:
    """What a person should know before anything is done: settings, agents and skills that were left out.

    What a repository brought along is said in any case, to stderr: only who asks is shown nothing else.
    """
    from retinue.view import words
    from retinue.view.paint import note

    for warning in retinue.loaded.warnings:
        note(f"! {warning}", "yellow")
    for each in retinue.agents.replaced(retinue.loaded.trusted):
        model = "" if each.spec.model == "inherit" else f", and runs on {each.spec.model!r} with your key"
        note(f"! {each.spec.name} is the agent of {each.path}, not the built-in one{model}", "yellow")
    if quiet:
        return
    skills = retinue.services.skill_files.catalogue
    for what, problems in (("agent", retinue.unusable_agents()), ("skill", skills.problems)):
        broken = {problem.file for problem in problems}
        if broken:
            said = words.count(len(broken), f"{what} file")
            note(f"! {said} cannot be used: 'retinue {what}s check' says why", "yellow")


async def warn_if_nobody_works(retinue: Retinue, *, quiet: bool) -> None:
    """Where runs are for workers, and there is none for this folder: they wait for one."""
    if quiet or not retinue.hands_over:
        return
    from retinue.store.postgres import PostgresStore
    from retinue.store.postgres_workers import workers
    from retinue.view.paint import note

    label, folder = retinue.settings.workers.queue, str(retinue.project or "")
    assert isinstance(retinue.store, PostgresStore)
    if not any(row.serves(label, folder) for row in await workers(retinue.store)):
        where = f"the queue {label!r}" + (f" in {folder}" if folder else "")
        note(f"! no worker serves {where}: the run waits until 'retinue worker' is started there", "yellow")


def print_event(event: LiveEvent) -> None:
    from retinue.events import encode
    from retinue.view.paint import out_json

    out_json(encode(event).decode())


def _unsupported(report: Report) -> bool:
    return report.uncited > 0 or any(claim.verdict == "contradicted" for claim in report.claims)


def finish(ended: DrivenRun, manner: Manner, copies: Sequence[UnmergedCopy]) -> int:
    """Print the report in the form that was asked for. Returns the exit code."""
    import msgspec

    from retinue.cli import exits
    from retinue.view import answer as view

    report = ended.report
    if manner.output == "json":
        view.print_report_json(report, unmerged=msgspec.to_builtins(copies))
    elif manner.output == "text":
        view.print_answer(report)
        if not manner.quiet or not report.ok:
            view.print_summary(report, ended.tree, claims=manner.sources)
    unverified = any(not source.verified for source in report.sources) or _unsupported(report)
    if manner.strict_sources and unverified and ended.code == exits.OK:
        return exits.INCOMPLETE
    return ended.code
