"""`retinue ask` and `retinue run`: a question, a live tree, an answer.

Builds the prompt, says how the run begins, and leaves the rest to `foreground`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from retinue.cli import options as o
from retinue.cli.foreground import Manner, output_of, with_messages
from retinue.cli.run_flags import RunFlags, with_run_flags

if TYPE_CHECKING:
    from retinue.agents.loader import LoadedAgent
    from retinue.app import Retinue
    from retinue.attachments import Attachment
    from retinue.types import AgentSpec, Effort
    from retinue.view.live import View

Prompt = Annotated[
    list[str] | None,
    typer.Argument(metavar="PROMPT", help="What to do; '-' stands for standard input.", show_default=False),
]


OFFLINE = (
    "offline: answers come from rules, not from a language model. "
    "For a real one: export OPENAI_API_KEY=… or --model ollama:NAME; 'retinue setup' finds what is here"
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
    goes_on: bool = False
    """With the last conversation of the folder."""

    @classmethod
    def of(
        cls,
        flags: RunFlags,
        agent: str | None,
        prompt: str,
        inputs: tuple[str, ...] = (),
        *,
        goes_on: bool = False,
    ) -> Self:
        return cls(
            goes_on=goes_on,
            agent=agent,
            prompt=prompt,
            inputs=inputs,
            attach=tuple(flags.attach or ()),
            tools=tuple(flags.tools or ()),
            label=flags.label,
            model=flags.models,
            small_model=flags.small_model,
            effort=flags.effort or "",
            cwd=flags.cwd,
            db=flags.db,
            limits=flags.settings,
            manner=Manner(
                output=output_of(flags.json, flags.events),
                messages=with_messages(flags.json, flags.messages),
                quiet=flags.quiet,
                yes=flags.yes,
                wait_approvals=flags.wait_approvals,
                wait_limits=flags.wait_limits,
                sources=flags.sources,
                strict_sources=flags.strict_sources,
            ),
            show_prompt=flags.show_prompt,
        )


@with_run_flags()
def ask(
    prompt: Prompt = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Another agent than the default one.")
    ] = None,
    continue_: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the last conversation of this folder.")
    ] = False,
    *,
    flags: RunFlags,
) -> int:
    """Ask the default agent. It does the work, or has it done by other agents, and answers.

    \b
    Examples:
      retinue ask "where are retries decided?"
      retinue ask --continue "and where are they tested?"
      git diff | retinue ask "what could go wrong with this?" -
      retinue ask "describe this" --attach screenshot.png --model openai:gpt-6.1-sol
      retinue ask "plan the change" --max-cost 0.50 --json | jq -r .text
    """
    from retinue.cli.prompting import read_words

    return answer(Question.of(flags, agent, read_words(prompt or ()), goes_on=continue_))


@with_run_flags()
def run(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Its name; see 'retinue agents list'.")],
    prompt: Prompt = None,
    inputs: o.Input = None,
    *,
    flags: RunFlags,
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

    words = read_words(prompt or (() if not inputs else ("",)))
    return answer(Question.of(flags, agent, words, tuple(inputs or ())))


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
        if question.goes_on:
            return await _go_on(retinue, view, question, attachments)
        agent = question.agent or retinue.settings.default_agent
        loaded = retinue.agents.get(agent)
        spec = loaded.spec
        prompt = arguments(spec, question.prompt, question.inputs)
        tell_limits(retinue, spec, quiet=quiet)
        tell_slips(loaded, quiet=quiet)
        tell_missing(retinue, question.prompt, quiet=quiet)
        run_id = await retinue.start(
            agent,
            prompt,
            label=question.label,
            attachments=attachments,
            settings=question.limits,
            strict_sources=question.manner.strict_sources,
            effort=question.effort,
            traceparent=os.environ.get("TRACEPARENT", ""),
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


async def _go_on(
    retinue: Retinue, view: View, question: Question, attachments: Sequence[Attachment]
) -> tuple[str, int]:
    """The question as the next message of the last conversation of this folder."""
    from retinue.cli.opening import resumed, rows_of_folder
    from retinue.errors import ConfigError

    rows = await rows_of_folder(retinue, 1)
    if not rows:
        raise ConfigError("there is no conversation in this folder to go on with", fix="leave out --continue")
    if question.agent and question.agent != rows[0].agent:
        raise ConfigError(
            f"the last conversation here is with {rows[0].agent}",
            fix="leave out --agent, or begin another one without --continue",
        )
    return await resumed(
        retinue,
        view,
        rows[0].run_id,
        message=question.prompt,
        attachments=attachments,
        settings=question.limits,
        model=question.model,
        yes=question.manner.yes,
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


def tell_slips(loaded: LoadedAgent, *, quiet: bool) -> None:
    """What of the agent's file is not obeyed, or not read as it is written."""
    from retinue.view.paint import note

    for finding in () if quiet else loaded.notes:
        if finding.level == "warning":
            note(f"! {finding}", "yellow")


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
