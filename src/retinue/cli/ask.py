"""`retinue ask` and `retinue run`: a question, a live tree, an answer.

Builds the prompt, opens `Retinue`, and leaves the rest to `driving`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from retinue.cli import options as o

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.cli.driving import DrivenRun
    from retinue.events import LiveEvent
    from retinue.types import AgentSpec
    from retinue.view.live import View

Prompt = Annotated[
    list[str] | None,
    typer.Argument(metavar="PROMPT", help="What to do; '-' stands for standard input.", show_default=False),
]


OFFLINE = (
    "offline: answers come from rules, not from a language model. "
    "For a real one: export OPENAI_API_KEY=… or --model ollama:NAME"
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """Everything the two commands were told."""

    agent: str | None
    prompt: str
    attach: tuple[Path, ...] = ()
    inputs: tuple[str, ...] = ()
    label: str = ""
    model: str | None = None
    small_model: str | None = None
    cwd: Path | None = None
    db: str | None = None
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    yes: bool = False
    wait_approvals: bool = False
    output: Literal["text", "json", "events"] = "text"
    quiet: bool = False
    strict_sources: bool = False
    show_prompt: bool = False


def ask(
    prompt: Prompt = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Another agent than the default one.")
    ] = None,
    model: o.Model = None,
    small_model: o.SmallModel = None,
    cwd: o.Cwd = None,
    db: o.Db = None,
    max_turns: o.MaxTurns = None,
    timeout: o.Timeout = None,
    max_cost: o.MaxCost = None,
    policy: o.Policy = None,
    attach: o.Attach = None,
    label: o.Label = "",
    yes: o.Yes = False,
    sandbox: o.Sandbox = False,
    wait_approvals: o.WaitApprovals = False,
    json: o.ReportJson = False,
    events: o.Events = False,
    quiet: o.Quiet = False,
    strict_sources: o.StrictSources = False,
    show_prompt: o.ShowPrompt = False,
) -> int:
    """Ask the default agent. It does the work, or has it done by other agents, and answers.

    \b
    Examples:
      retinue ask "where are retries decided?"
      git diff | retinue ask "what could go wrong with this?" -
      retinue ask "describe this" --attach screenshot.png --model openai:gpt-6.1-sol
      retinue ask "plan the change" --max-cost 0.50 --json | jq -r .text
    """
    from retinue.cli.prompting import read_words

    return answer(
        Question(
            agent=agent,
            prompt=read_words(prompt or ()),
            attach=tuple(attach or ()),
            label=label,
            model=model,
            small_model=small_model,
            cwd=cwd,
            db=db,
            limits=limits_of(max_turns, timeout, max_cost, policy, sandbox=sandbox),
            yes=yes,
            wait_approvals=wait_approvals,
            output=output_of(json, events),
            quiet=quiet,
            strict_sources=strict_sources,
            show_prompt=show_prompt,
        )
    )


def run(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its name; see 'retinue agents list'.")],
    prompt: Prompt = None,
    inputs: o.Input = None,
    model: o.Model = None,
    small_model: o.SmallModel = None,
    cwd: o.Cwd = None,
    db: o.Db = None,
    max_turns: o.MaxTurns = None,
    timeout: o.Timeout = None,
    max_cost: o.MaxCost = None,
    policy: o.Policy = None,
    attach: o.Attach = None,
    label: o.Label = "",
    yes: o.Yes = False,
    sandbox: o.Sandbox = False,
    wait_approvals: o.WaitApprovals = False,
    json: o.ReportJson = False,
    events: o.Events = False,
    quiet: o.Quiet = False,
    strict_sources: o.StrictSources = False,
    show_prompt: o.ShowPrompt = False,
) -> int:
    """Run one agent on a prompt.

    \b
    Examples:
      retinue run code-search "where is the retry policy?"
      retinue run code-review src/app.py --input focus=security
      retinue run planner "add a cache to the client" --max-turns 4
      cat notes.txt | retinue run general "summarise this" -
    """
    from retinue.cli.prompting import read_words

    return answer(
        Question(
            agent=agent,
            prompt=read_words(prompt or (() if not inputs else ("",))),
            attach=tuple(attach or ()),
            inputs=tuple(inputs or ()),
            label=label,
            model=model,
            small_model=small_model,
            cwd=cwd,
            db=db,
            limits=limits_of(max_turns, timeout, max_cost, policy, sandbox=sandbox),
            yes=yes,
            wait_approvals=wait_approvals,
            output=output_of(json, events),
            quiet=quiet,
            strict_sources=strict_sources,
            show_prompt=show_prompt,
        )
    )


def limits_of(
    max_turns: int | None,
    timeout: str | None,
    max_cost: float | None,
    policy: str | None,
    *,
    sandbox: bool = False,
) -> dict[str, Any]:
    """The flags as settings of this run alone."""
    from retinue.cli.units import seconds
    from retinue.errors import ConfigError

    if max_cost is not None and max_cost <= 0:
        raise ConfigError(f"--max-cost {max_cost:g}: it has to be greater than 0", fix="for example 0.50")
    found: dict[str, Any] = {
        "limits.max_turns": max_turns,
        "limits.max_cost": max_cost,
        "delegation.policy": policy,
        "approvals.sandbox": "project" if sandbox else None,
    }
    if timeout is not None:
        # For the root alone and for the tree: an agent's own, longer timeout must not win.
        found["limits.timeout"] = found["limits.tree_seconds"] = seconds(timeout, what="--timeout")
    return {name: value for name, value in found.items() if value is not None}


def output_of(json: bool, events: bool) -> Literal["text", "json", "events"]:
    from retinue.errors import ConfigError

    if json and events:
        raise ConfigError("--json and --events cannot be used together", fix="choose one")
    return "events" if events else "json" if json else "text"


def answer(question: Question) -> int:
    """Ask, show, print. Returns the exit code."""
    return asyncio.run(_answer(question))


async def _answer(question: Question) -> int:
    from retinue.app import Retinue
    from retinue.attachments import attach
    from retinue.cli.driving import drive, open_keyboard
    from retinue.cli.prompting import arguments

    project = (question.cwd or Path()).absolute()
    attachments = [await attach(path, project=project) for path in question.attach]
    view = view_for(question.output, quiet=question.quiet)
    keyboard = open_keyboard() if question.output == "text" else None
    try:
        async with Retinue(
            model=question.model,
            small_model=question.small_model,
            db=question.db,
            cwd=question.cwd,
            answering="ask" if keyboard is not None or question.wait_approvals else "refuse",
            yes=question.yes,
            fallback="offline",
        ) as retinue:
            warn(retinue, quiet=question.quiet)

            async def begin() -> str:
                agent = question.agent or retinue.settings.default_agent
                spec = retinue.agents.get(agent).spec
                prompt = arguments(spec, question.prompt, question.inputs)
                tell_limits(retinue, spec, quiet=question.quiet)
                tell_missing(retinue, question.prompt, quiet=question.quiet)
                run_id = await retinue.start(
                    agent,
                    prompt,
                    label=question.label,
                    attachments=attachments,
                    settings=question.limits,
                    strict_sources=question.strict_sources,
                )
                if question.show_prompt:
                    await show_prompt(retinue, run_id)
                return run_id

            tell = print_event if question.output == "events" else None
            outcome = await drive(retinue, begin, view=view, keyboard=keyboard, tell=tell)
            return finish(
                outcome, question.output, quiet=question.quiet, strict_sources=question.strict_sources
            )
    finally:
        if keyboard is not None:
            keyboard.close()


def view_for(output: str, *, quiet: bool) -> View:
    """The live tree where there is a screen to draw it on; else lines, or nothing beside the events."""
    from retinue.view.live import LiveView, PlainView
    from retinue.view.paint import is_screen

    if output == "text" and not quiet and is_screen(sys.stderr) and is_screen(sys.stdout):
        return LiveView()
    return PlainView(quiet=quiet or output == "events", ending=output == "json")


def warn(retinue: Retinue, *, quiet: bool) -> None:
    """What a person should know before anything is done: settings that were left out."""
    from retinue.view.paint import note

    for warning in () if quiet else retinue.loaded.warnings:
        note(f"! {warning}", "yellow")


def tell_limits(retinue: Retinue, spec: AgentSpec, *, quiet: bool) -> None:
    """What an agent will have to do without: a language model, tools that are not installed."""
    from retinue.cli.extras import install, lacking
    from retinue.view.paint import note

    if quiet:
        return
    for extra, missing in lacking(spec.tools or ()).items():
        note(f"! {spec.name} has to do without {', '.join(missing)}: {install(extra)}", "yellow")
    if retinue.model_name == "offline":
        note(OFFLINE, "yellow")


def tell_missing(retinue: Retinue, prompt: str, *, quiet: bool) -> None:
    """A prompt that is one path and nothing else should be there: an agent would search for it in vain."""
    word = prompt.strip()
    path = re.fullmatch(r"(?:\.{0,2}/)?(?:[\w.@-]+/)+[\w.@-]+\.\w{1,8}", word)
    if path and not quiet and not (retinue.cwd / word).exists():
        from retinue.view.paint import note

        note(f"! there is no {word} in {retinue.cwd}", "yellow")


def print_event(event: LiveEvent) -> None:
    from retinue.events import encode
    from retinue.view.paint import out_json

    out_json(encode(event).decode())


async def show_prompt(retinue: Retinue, run_id: str) -> None:
    """What the model is told at the start, with the size of every section and the most it may take."""
    from retinue.view.paint import note
    from retinue.view.words import clean

    found = await retinue.sections(run_id)
    for section in found:
        most = "" if section.most is None else f" of at most {section.most:,}"
        note(f"── {section.title} · about {section.tokens:,} tokens{most} ──", "bold")
        note(clean(section.text) + "\n")
    note(f"── in all · about {sum(section.tokens for section in found):,} tokens ──", "bold")


def finish(outcome: DrivenRun, output: str, *, quiet: bool, strict_sources: bool) -> int:
    """Print the report in the form that was asked for. Returns the exit code."""
    from retinue.cli import exits
    from retinue.view import answer as view

    report = outcome.report
    if output == "json":
        view.print_report_json(report)
    elif output == "text":
        view.print_answer(report)
        if not quiet or not report.ok:
            view.print_summary(report, outcome.tree)
    unverified = any(not source.verified for source in report.sources)
    if strict_sources and unverified and outcome.code == exits.OK:
        return exits.INCOMPLETE
    return outcome.code
