"""What the delegation tools have in common: checking what the model wrote, and what it gets back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

import msgspec

from retinue.delegate.children import ChildInfo, ChildRequest, ChildRunner
from retinue.errors import ToolError
from retinue.reports import Framed, beside, frame, handed_up, metrics
from retinue.tools.base import Admit, Function, Preview, Tool, ToolContext, ToolResult, tool
from retinue.tools.descriptions import describe
from retinue.types import ENDED, AgentSpec, Report, ReportFields, Risk

MOST_SHOWN = 8
MOST_COPIED = 200
"""Calls that an error shows, and characters of each argument in them."""


def way(
    name: str, *, admit: Admit, starts: Sequence[str] = (), risk: Risk = "low", preview: Preview | None = None
) -> Callable[[Function], Tool]:
    """A delegation tool of a function. `starts`: its operations that do more than look; without, all do."""
    return tool(
        name=name,
        description=describe(name),
        effect="delegate",
        private=False,  # what a child has read, its own end says
        risk=risk,
        repeatable=True,
        timeout=None,
        preview=preview,
        harmless=(lambda arguments: arguments["operation"] not in starts) if starts else None,
        admit=admit,
    )


def needs(operation: str, **given: object) -> None:
    missing = [
        name for name, value in given.items() if not (value.strip() if isinstance(value, str) else value)
    ]
    if missing:
        raise ToolError(f"the operation {operation!r} needs {' and '.join(missing)}", not_run="bad_arguments")


def example(**arguments: str) -> str:
    """The arguments of the call to make instead, as a model can copy them."""
    return json.dumps({name: cut_short(text) for name, text in arguments.items()}, ensure_ascii=False)


def cut_short(text: str) -> str:
    return text if len(text) <= MOST_COPIED else text[: MOST_COPIED - 1] + "…"


def registered(runner: ChildRunner, parent_id: str, name: str, prompt: str = "…") -> AgentSpec:
    """The agent of that name; without a name, the only one there is."""
    known = {spec.name: spec for spec in runner.agents(parent_id)}
    if not name.strip() and len(known) == 1:
        (only,) = known.values()
        return only
    if not name.strip():
        calls = "\n".join(example(agent_id=each, prompt=prompt) for each in sorted(known)[:MOST_SHOWN])
        raise ToolError(
            f"agent_id is missing. Agents: {', '.join(sorted(known)) or 'none'}"
            + (f". Call again with one of these:\n{calls}" if calls else ""),
            not_run="bad_arguments",
        )
    if name not in known:
        agents = f"Agents: {', '.join(sorted(known)) or 'none'}"
        if why := runner.why_not(parent_id, name):
            raise ToolError(f"the agent {name!r} cannot be started here: {why}. {agents}")
        near = _nearest(name, known)
        meant = f"did you mean {near!r}? " if near else ""
        raise ToolError(f"there is no agent {name!r}. {meant}{agents}")
    return known[name]


def the_only_agent(runner: ChildRunner, parent_id: str) -> tuple[str, ...]:
    """The agent that is meant where none is named, if one is."""
    known = runner.agents(parent_id)
    return (known[0].name,) if len(known) == 1 else ()


def one_of(runner: ChildRunner, parent_id: str, name: object) -> str:
    """The agent of that name, else the one that it looks like, or the only one where none is given; empty
    where that is none."""
    if name is None or name == "":
        return next(iter(the_only_agent(runner, parent_id)), "")
    known = [spec.name for spec in runner.agents(parent_id)]
    if not isinstance(name, str):
        return ""
    return name if name in known else _nearest(name, known)


def _nearest(name: str, known: Iterable[str]) -> str:
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.7)), "")


TOLD = "you have it: it came with the notice that this child has ended"


async def work(runner: ChildRunner, ctx: ToolContext, request: ChildRequest) -> ToolResult:
    """Start a child, wait, and frame its report."""
    child = await runner.start(ctx.run_id, request)
    return await result_of(runner, ctx, await runner.wait(ctx.run_id, child))


async def result_of(runner: ChildRunner, ctx: ToolContext, report: Report) -> ToolResult:
    """A report as JSON. Structured output is the text of the report, inside the frame like any other."""
    told, before = runner.told(ctx.run_id, report.run_id), runner.reported_before(report.run_id)
    framed = Framed(text="") if told else await runner.shorten(ctx.run_id, report, quoted=True)
    body = {
        "success": report.ok,
        "child_id": report.run_id,
        "agent_id": report.agent,
        **({"label": report.label} if report.label else {}),
        "depth": report.depth,
        "status": report.status,
        "report": TOLD if told else frame(report, framed.text, before=before),
        **beside(report, before),
        "metrics": metrics(report, before),
    }
    return ToolResult(
        text=as_json(body),
        is_error=not report.ok,
        sources=handed_up(report),
        files=framed.files,
        usage=framed.usage,
        children=(report.run_id,),
        fields=in_fields(runner, report),
    )


def in_fields(runner: ChildRunner, report: Report) -> ReportFields:
    """A report for code, which reads it by its parts."""
    return ReportFields(
        text=report.text,
        status=report.status,
        child_id=report.run_id,
        incomplete=report.incomplete,
        error=report.error,
        data=report.data,
        sources=report.sources,
        metrics=metrics(report, runner.reported_before(report.run_id)),
    )


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def listed(children: Sequence[ChildInfo]) -> ToolResult:
    """How children stand at this moment: while one of them works, the next look may show something else."""
    rows = [msgspec.to_builtins(child) for child in children]
    shown = [{name: value for name, value in row.items() if name != "private"} for row in rows]
    return ToolResult(
        text=as_json({"children": shown}),
        passing=any(child.status not in ENDED for child in children),
        private=tuple(dict.fromkeys(name for child in children for name in child.private)),
    )


def child_of(runner: ChildRunner, ctx: ToolContext, child_id: str) -> ChildInfo:
    children = {child.child_id: child for child in runner.children(ctx.run_id)}
    if child_id not in children:
        known = ", ".join(children) or "none"
        raise ToolError(f"there is no child {child_id!r} of yours. Your children: {known}")
    return children[child_id]


def known_skills(runner: ChildRunner, run_id: str, names: list[str] | None) -> tuple[str, ...] | None:
    """The skills asked for a child, checked: each must be one that its parent is offered."""
    if not names:
        return None
    mine = runner.skills(run_id)
    unknown = [name for name in names if name not in mine]
    if unknown:
        have = ", ".join(mine) or "none"
        raise ToolError(f"unknown skill {', '.join(map(repr, unknown))}. Your skills: {have}")
    return tuple(dict.fromkeys(names))


def known_tools(runner: ChildRunner, run_id: str, names: list[str] | None) -> tuple[str, ...] | None:
    """The tools asked for a child, checked: each must be one of the parent's. Ways to delegate come along,
    and, for one that may write, what merges the work of its own children."""
    if names is None:
        return None
    mine = runner.tool_names(run_id)
    unknown = [name for name in names if name not in mine]
    if unknown:
        have = ", ".join(sorted(set(mine.values())))
        raise ToolError(f"unknown tool {', '.join(map(repr, unknown))}. Your tools: {have}")
    given = [mine[name] for name in names]
    return tuple(dict.fromkeys((*given, *runner.ways(run_id), *runner.merging(run_id, given))))
