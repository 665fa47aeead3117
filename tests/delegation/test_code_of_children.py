"""Code and children: made-up agents write code as their caller does; calls in code that come to nothing count."""

from __future__ import annotations

from typing import Any

import pytest
from delegating import ALL, echo

from retinue.app import Retinue
from retinue.events import AnyEvent, RunStarted, ToolReturned
from retinue.sandbox.cpython import why_not
from retinue.store.memory import MemoryStore
from retinue.types import AgentSpec, ModelRequest, Report
from trees import Cast, agent, results, turn

pytest.importorskip("pydantic_monty")

COPY = "You do one delegated task. Work through it with your tools, then answer."
MADE = "You are helper. Do the task you are given, and report what you found."
CODE = "print(await echo(text='x'))"


async def played(
    parts: dict[str, Any], root: AgentSpec, *others: AgentSpec, engine: str = "monty"
) -> tuple[Cast, Report, list[AnyEvent]]:
    if engine == "cpython" and why_not() is not None:
        pytest.skip("no cpython engine here")
    model, store = Cast(parts), MemoryStore()
    settings: dict[str, Any] = {"code.engine": engine, "delegation.tools": ALL}
    async with Retinue(
        model=model, db=store, agents=[root, *others], tools=[echo], environ={}, settings=settings, yes=True
    ) as retinue:
        report = await retinue.run(root.name, "go")
    return model, report, await store.events(report.run_id)


def shown(request: ModelRequest) -> set[str]:
    return {spec.name for spec in request.tools}


def codes(request: ModelRequest) -> Any:
    return [("run_code", {"code": CODE})] if turn(request) == 0 else results(request)[0].text


@pytest.mark.parametrize("mode", ["code", "tools"])
@pytest.mark.parametrize("way", ["subagent", "spawn_agent"])
async def test_a_made_up_agent_writes_code_if_its_caller_does(way: str, mode: Any) -> None:
    def root(request: ModelRequest) -> Any:
        if turn(request):
            return "done"
        task = {"label": "l", "task_prompt": "t"} if way == "subagent" else {"name": "helper", "prompt": "t"}
        return [(way, task)]

    parts: dict[str, Any] = {"root": root, COPY: codes, MADE: codes}
    model, _, log = await played(parts, agent("root", mode=mode, tools=("echo", "run_code", way)))
    assert [e.text for e in log if isinstance(e, ToolReturned) and e.name == "run_code"] == ["echo x"]
    child = model.of(COPY if way == "subagent" else MADE)[0]
    assert shown(child) == shown(model.of("root")[0]) - {way}


async def test_a_made_up_agent_with_tools_of_its_own_has_no_code_unless_it_is_named() -> None:
    def root(request: ModelRequest) -> Any:
        task: dict[str, Any] = {"label": "l", "task_prompt": "t", "allowed_tools": ["echo"]}
        return "done" if turn(request) else [("subagent", task)]

    caller = agent("root", mode="code", tools=("echo", "run_code", "subagent"))
    model, _, _ = await played({"root": root, COPY: ["ok", "ok"]}, caller)
    assert shown(model.of(COPY)[0]) == {"echo"}


async def asked(code: str, engine: str, *more: str) -> tuple[str, Report, int]:
    """What a model that writes this was told at last, its report, and how many children it had."""
    replies = [[("run_code", {"code": each})] for each in (code, *more)]
    parts: dict[str, Any] = {"root": [*replies, "done"], "c": ["ok", "ok"]}
    root = agent("root", mode="code", tools=("c", "run_code"))
    model, report, log = await played(parts, root, agent("c"), engine=engine)
    children = [e for e in log if isinstance(e, RunStarted) and e.depth]
    return results(model.of("root")[-1])[-1].text, report, len(children)


@pytest.mark.parametrize("code", ["c(prompt='x')\nprint(1)", "c(prompt='x')", "for n in 'ab':\n    c(n)"])
async def test_an_agent_that_code_calls_and_does_not_await_counts_and_the_model_is_told(code: str) -> None:
    said, report, children = await asked(code, "cpython")
    assert "[c(...) was called and not awaited, so it did not run: await it]" in said
    assert (children, report.shortfall.not_started) == (0, 2 if "for" in code else 1)


async def test_a_call_that_is_awaited_in_a_later_snippet_is_none_of_these() -> None:
    _, report, children = await asked("x = c(prompt='x')", "cpython", "print(await x)")
    assert (children, report.shortfall.not_started) == (1, 0)


@pytest.mark.parametrize("engine", ["monty", "cpython"])
async def test_an_agent_in_code_that_cannot_be_read_counts_until_it_is_asked(engine: str) -> None:
    code = "print('c(this)')  # c(that)\nx = await c(prompt='x'\nprint(x"
    said, report, _ = await asked(code, engine)
    assert said.endswith("[no line of this snippet ran: it cannot be read as a whole]\n[c was not asked]")
    assert report.shortfall.not_started == 1
    _, report, children = await asked(code, engine, "print(await c(prompt='x'))")
    assert (children, report.shortfall.not_started) == (1, 0)
