"""`retinue research`: a long question, a plan that a person may change, a report as files.

The run itself is one of the agent `research`, as `retinue run research` begins it too; what is here is how
far it may go, what is said of that before it starts, and where the report is written.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from retinue.cli.ask import Prompt, Question, tell_limits
from retinue.cli.run_flags import RunFlags, with_run_flags

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.types import AgentSpec, Report
    from retinue.view.live import View

Thoroughness = Literal["quick", "normal", "deep"]
CHILDREN: dict[Thoroughness, int] = {"quick": 3, "normal": 8, "deep": 12}
"""Sub-agents for each thoroughness, within what the agent declares."""
AGENT = "research"


@with_run_flags(but=("show_prompt", "attach"))
def research(
    prompt: Prompt = None,
    thoroughness: Annotated[
        Thoroughness, typer.Option(help="How far to go: 3, 8 or 12 sub-agents; 1, 2 or 3 rounds.")
    ] = "normal",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the report goes: FILE.md and FILE.html; '-': nowhere.",
        ),
    ] = None,
    *,
    flags: RunFlags,
) -> int:
    """Research a long question, and write a report with numbered sources.

    It plans questions and shows them: change what you like, or let it go on. They are looked into side by
    side, what was read is compared, gaps are closed in rounds, and each claim of the report is held against
    the page that it cites: what does not hold is marked.

    \b
    Examples:
      retinue research "how do heat pumps compare with gas boilers in old houses?"
      retinue research "who holds the rights to X?" --thoroughness deep --max-cost 2.00
      retinue research "state of solid-state batteries" --yes -o batteries --strict-sources
      retinue runs resume last        goes on after a crash, with the pages it has read
    """
    from retinue.cli.prompting import read_words

    words = read_words(prompt or ())
    question = Question.of(flags, AGENT, words)
    base = None if str(output) == "-" else _base(output or Path(_slug(question.prompt)), question)
    return asyncio.run(_research(question, thoroughness, base))


async def _research(question: Question, thoroughness: Thoroughness, base: Path | None) -> int:
    from retinue.cli.foreground import in_foreground
    from retinue.types import Limits

    async def begin(retinue: Retinue, view: View) -> tuple[str, int]:
        spec = retinue.agents.get(AGENT).spec
        most = CHILDREN[thoroughness]
        tell_limits(retinue, spec, quiet=question.manner.quiet)
        _tell_manner(retinue, spec, question, most)
        run_id = await retinue.start(
            AGENT,
            {"question": question.prompt, "thoroughness": thoroughness},
            label=question.label,
            settings=question.limits,
            strict_sources=question.manner.strict_sources,
            effort=question.effort,
            limits=Limits(children=most),
            traceparent=os.environ.get("TRACEPARENT", ""),
        )
        return run_id, 0

    def keep(report: Report) -> None:
        if base is not None and report.text.strip():
            _written(report, base, question)

    return await in_foreground(
        begin,
        question.manner,
        db=question.db,
        cwd=question.cwd,
        model=question.model,
        small_model=question.small_model,
        tools=question.tools,
        after=keep,
    )


def _tell_manner(retinue: Retinue, spec: AgentSpec, question: Question, most: int) -> None:
    """How it will delegate and what it may cost, before it starts."""
    from retinue.view.paint import note

    if question.manner.quiet:
        return
    chosen = retinue.delegating(spec, question.limits)
    delegation = retinue.settings.delegation
    policy = chosen.get("delegation.policy", delegation.policy)
    number = "max_children" if policy == "flat" else "nested_children"
    allowed = min(most, chosen.get(f"delegation.{number}", getattr(delegation, number)))
    cost = question.limits.get("limits.max_cost", retinue.settings.limits.max_cost)
    money = "no limit of money (--max-cost)" if cost is None else f"at most ${cost:.2f}"
    note(f"research: policy {policy}, up to {allowed} sub-agents, {money}")


def _slug(question: str) -> str:
    words = re.sub(r"\W+", "-", question.lower()).strip("-")[:60].strip("-")
    return f"research-{words or 'report'}"


def _base(wanted: Path, question: Question) -> Path:
    """The files of the report without their endings. Raises before the work if they cannot be written."""
    from retinue.cli.exporting import place_for_new

    project = (question.cwd or Path()).absolute()
    base = project / (wanted.with_suffix("") if wanted.suffix in (".md", ".html") else wanted)
    place_for_new(base, project=project)
    return base


def _written(report: Report, base: Path, question: Question) -> None:
    """Write the report as Markdown, and as a page where that can be made."""
    from retinue.cli.exporting import write_new
    from retinue.cli.extras import install
    from retinue.view.paint import note
    from retinue.view.research_page import research_page
    from retinue.view.words import clean

    base = _free(base)
    texts = {".md": report.text, ".html": research_page(report)}
    names: list[str] = []
    for suffix, text in texts.items():
        if text is not None:
            path = base.with_name(base.name + suffix)
            write_new(path, clean(text).encode(), project=(question.cwd or Path()).absolute())
            names.append(str(path))
    if not question.manner.quiet:
        note(f"report: {', '.join(names)}")
        if texts[".html"] is None:
            note(f"! no HTML: {install('server')}", "yellow")


def _free(base: Path) -> Path:
    """A name that nothing has yet: a report never replaces another one."""
    for number in range(1, 1000):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        if not any(os.path.lexists(path.with_name(path.name + suffix)) for suffix in (".md", ".html")):
            return path
    return base
