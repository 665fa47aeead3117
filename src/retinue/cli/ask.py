"""`retinue ask` and `retinue run`: a question, a live tree, an answer.

Builds the prompt, says how the run begins, and leaves the rest to `foreground`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from retinue.cli import options as o
from retinue.cli.foreground import Manner, output_of

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.types import AgentSpec, Effort
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
    tools: tuple[str, ...] = ()
    label: str = ""
    model: str | None = None
    small_model: str | None = None
    effort: Effort = ""
    cwd: Path | None = None
    db: str | None = None
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    manner: Manner
    show_prompt: bool = False


def ask(
    prompt: Prompt = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Another agent than the default one.")
    ] = None,
    model: o.Model = None,
    small_model: o.SmallModel = None,
    effort: o.Effort = None,
    cwd: o.Cwd = None,
    db: o.Db = None,
    max_turns: o.MaxTurns = None,
    timeout: o.Timeout = None,
    max_cost: o.MaxCost = None,
    policy: o.Policy = None,
    attach: o.Attach = None,
    tools: o.Tools = None,
    label: o.Label = "",
    yes: o.Yes = False,
    sandbox: o.Sandbox = False,
    wait_approvals: o.WaitApprovals = False,
    wait_limits: o.WaitLimits = False,
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
            tools=tuple(tools or ()),
            label=label,
            model=model,
            small_model=small_model,
            effort=effort or "",
            cwd=cwd,
            db=db,
            limits=limits_of(max_turns, timeout, max_cost, policy, sandbox=sandbox),
            manner=Manner(
                output=output_of(json, events),
                quiet=quiet,
                yes=yes,
                wait_approvals=wait_approvals,
                wait_limits=wait_limits,
                strict_sources=strict_sources,
            ),
            show_prompt=show_prompt,
        )
    )


def run(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its name; see 'retinue agents list'.")],
    prompt: Prompt = None,
    inputs: o.Input = None,
    model: o.Model = None,
    small_model: o.SmallModel = None,
    effort: o.Effort = None,
    cwd: o.Cwd = None,
    db: o.Db = None,
    max_turns: o.MaxTurns = None,
    timeout: o.Timeout = None,
    max_cost: o.MaxCost = None,
    policy: o.Policy = None,
    attach: o.Attach = None,
    tools: o.Tools = None,
    label: o.Label = "",
    yes: o.Yes = False,
    sandbox: o.Sandbox = False,
    wait_approvals: o.WaitApprovals = False,
    wait_limits: o.WaitLimits = False,
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
            tools=tuple(tools or ()),
            inputs=tuple(inputs or ()),
            label=label,
            model=model,
            small_model=small_model,
            effort=effort or "",
            cwd=cwd,
            db=db,
            limits=limits_of(max_turns, timeout, max_cost, policy, sandbox=sandbox),
            manner=Manner(
                output=output_of(json, events),
                quiet=quiet,
                yes=yes,
                wait_approvals=wait_approvals,
                wait_limits=wait_limits,
                strict_sources=strict_sources,
            ),
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


def answer(question: Question) -> int:
    """Ask, show, print. Returns the exit code."""
    return asyncio.run(_answer(question))


async def _answer(question: Question) -> int:
    from retinue.attachments import attach
    from retinue.cli.foreground import in_foreground
    from retinue.cli.prompting import arguments

    project = (question.cwd or Path()).absolute()
    attachments = [await attach(path, project=project) for path in question.attach]
    quiet = question.manner.quiet

    async def begin(retinue: Retinue, view: View) -> tuple[str, int]:
        agent = question.agent or retinue.settings.default_agent
        spec = retinue.agents.get(agent).spec
        prompt = arguments(spec, question.prompt, question.inputs)
        tell_limits(retinue, spec, quiet=quiet)
        tell_missing(retinue, question.prompt, quiet=quiet)
        run_id = await retinue.start(
            agent,
            prompt,
            label=question.label,
            attachments=attachments,
            settings=question.limits,
            strict_sources=question.manner.strict_sources,
            effort=question.effort,
        )
        if question.show_prompt:
            await show_prompt(retinue, run_id)
        return run_id, 0

    return await in_foreground(
        begin,
        question.manner,
        db=question.db,
        cwd=question.cwd,
        model=question.model,
        small_model=question.small_model,
        tools=question.tools,
    )


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
