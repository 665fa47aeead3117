"""`parallel_tasks`: many at once, and no failure that loses the work of another."""

from __future__ import annotations

import asyncio
import json

import pytest
from delegating import answer_of, inner

from retinue.events import ToolCalled, ToolReturned
from retinue.tools.base import tool
from trees import Stage, agent, results, told, turn


async def test_a_batch_runs_side_by_side_and_one_failure_loses_nobody_elses_work() -> None:
    both = asyncio.Barrier(2)

    async def good(request):
        async with asyncio.timeout(60):
            await both.wait()
        return f"report on {told(request)[0]}"

    tasks = [
        {"agent_id": "good", "prompt": "one"},
        {"agent_id": "bad", "prompt": "two"},
        {"agent_id": "good", "prompt": "three"},
    ]
    stage = Stage(
        {
            "root": [[("parallel_tasks", {"tasks": tasks})], "done"],
            "good": good,
            "bad": lambda r: ValueError("no"),
        },
        agents=[agent("good"), agent("bad")],
    )
    await stage.run()
    body = answer_of(stage)
    assert (body["completed"], body["failed"]) == (2, 1)
    assert [row["success"] for row in body["results"]] == [True, False, True]
    assert body["success"] is False
    assert body["results"][1]["error"] == "why is in the report"
    assert "[incomplete: ValueError: no]" in body["results"][1]["report"]
    assert [row["agent_id"] for row in body["results"]] == ["good", "bad", "good"]
    assert inner(body["results"][0]["report"]) == "report on one"
    assert set(body["results"][2]["metrics"]) == {"duration_ms", "tokens_input", "tokens_output"}
    sections = body["aggregated_report"].split("\n\n## ")
    assert [section.split("\n")[0] for section in sections] == [
        "## 1. good: completed",
        "2. bad: error",
        "3. good: completed",
    ]
    assert [inner(section.split("\n", 1)[1]) for section in (sections[0], sections[2])] == [
        "report on one",
        "report on three",
    ]


async def test_a_batch_that_does_not_wait_tells_the_parent_as_each_one_ends() -> None:
    go = asyncio.Event()

    async def slow(request):
        await go.wait()
        return f"found {told(request)[0]}"

    async def play(request):
        if turn(request) == 0:
            tasks = [{"agent_id": "slow", "prompt": "a"}, {"agent_id": "slow", "prompt": "b"}]
            return [("parallel_tasks", {"tasks": tasks, "wait_all": False})]
        if turn(request) == 1:
            assert json.loads(results(request)[0].text)["started"] == 2
            go.set()
            return "waiting for them"
        return "both are in: " + " ".join(sorted(told(request)[1:]))

    stage = Stage({"root": play, "slow": slow}, agents=[agent("slow")], delegation__parent_ends="wait")
    report = await stage.run()
    assert "found a" in report.text
    assert "found b" in report.text


async def test_who_may_start_no_more_children_may_still_wait_for_those_it_has() -> None:
    go = asyncio.Event()

    async def slow(request):
        await go.wait()
        return "found it"

    async def play(request):
        task = {"agent_id": "slow", "prompt": "a"}
        if turn(request) == 0:
            return [("parallel_tasks", {"tasks": [task], "wait_all": False})]
        if turn(request) == 1:
            return [("parallel_tasks", {"tasks": [task]})]
        go.set()
        return [("parallel_tasks", {"operation": "wait"})] if turn(request) == 2 else "done"

    stage = Stage({"root": play, "slow": slow}, agents=[agent("slow")], delegation__max_children=1)
    await stage.run()
    log = await stage.log()
    told_of = [event for event in log if isinstance(event, ToolReturned)]
    assert [event.is_error for event in told_of] == [False, True, False]
    assert told_of[1].not_started == 1
    made = {event.call_id for event in log if isinstance(event, ToolCalled)}
    assert [event.call_id in made for event in told_of] == [True, False, True]
    assert json.loads(told_of[2].text)["completed"] == 1


async def test_no_more_of_a_batch_work_at_once_than_the_setting_allows() -> None:
    at_work, most = 0, 0

    async def busy(request):
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        for _ in range(50):  # long enough for the others to begin, if they may
            await asyncio.sleep(0)
        at_work -= 1
        return "done"

    tasks = [{"agent_id": "busy", "prompt": str(number)} for number in range(4)]
    play = {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "busy": busy}
    stage = Stage(play, agents=[agent("busy")], delegation__concurrency=2, delegation__max_children=9)
    await stage.run()
    assert answer_of(stage)["completed"] == 4
    assert most == 2


def _wide(count: int, broken: int = -1, **more: object) -> Stage:
    """A batch of so many tasks, one of which fails."""
    tasks = [{"agent_id": "leaf", "prompt": str(n)} for n in range(count)]

    def leaf(request):
        number = told(request)[0]
        return ValueError("no luck") if number == str(broken) else f"FACT-{number}. " + "word. " * 5

    return Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks, **more})], "done"], "leaf": leaf},
        agents=[agent("leaf")],
        delegation__max_children=count,
        delegation__tools=("parallel_tasks",),
        delegation__parent_ends="wait",
        limits__timeout=600,
    )


@pytest.mark.parametrize("count", [90, 160])
async def test_each_task_of_a_wide_batch_has_a_row_and_a_report_in_one_result(count: int) -> None:
    stage = _wide(count)
    report = await stage.run()
    body = answer_of(stage)
    assert [row["task"] for row in body["results"]] == list(range(1, count + 1))
    assert len({row["child_id"] for row in body["results"]}) == count
    assert all(f"FACT-{n}. word." in body["aggregated_report"] for n in range(count))
    assert len(results(stage.model.of("root")[1])[0].text) <= 50_000
    assert f"{count} of {count} tasks are shown" in body["rest"]
    assert any(path in body["rest"] for path in report.files)


async def test_of_more_tasks_than_fit_those_that_failed_are_shown_and_the_rest_is_counted() -> None:
    stage = _wide(600, broken=599)
    await stage.run()
    body = answer_of(stage)
    assert (body["completed"], body["failed"]) == (599, 1)
    assert [row["task"] for row in body["results"]] == [600]
    assert "no luck" in body["aggregated_report"]
    assert 200 < body["shown"] < 600
    assert body["aggregated_report"].count("\n<report ") == body["shown"]
    text = results(stage.model.of("root")[1])[0].text
    assert 40_000 < len(text) <= 50_000


@pytest.mark.parametrize(
    ("tools", "readable"), [(("parallel_tasks", "read"), True), (("parallel_tasks",), False)]
)
async def test_whether_the_rest_of_a_wide_batch_can_be_read_is_said(
    tools: tuple[str, ...], readable: bool
) -> None:
    @tool(name="read", effect="read")
    async def read(path: str) -> str:
        """Read."""
        return path

    tasks = [{"agent_id": "leaf", "prompt": str(n)} for n in range(80)]
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "leaf": lambda r: "found " * 50},
        agents=[agent("leaf")],
        tools=[read],
        delegation__max_children=80,
        delegation__tools=("parallel_tasks",),
    )
    await stage.run(agent("root", tools=(*tools, "leaf")))
    assert ("no tool to read" not in answer_of(stage)["rest"]) is readable


async def test_a_wide_batch_in_the_background_names_its_children_in_one_result() -> None:
    stage = _wide(600, wait_all=False)
    await stage.run()
    body = answer_of(stage)
    assert body["started"] == 600
    assert 0 < len(body["results"]) == body["shown"] < 600
    assert len(results(stage.model.of("root")[1])[0].text) <= 50_000


async def test_the_head_of_a_batch_says_how_many_of_its_reports_are_incomplete() -> None:
    tasks = [{"agent_id": "leaf", "prompt": str(n)} for n in range(3)]

    def leaf(request):
        if told(request)[0] == "0" or not request.tools:
            return "an answer"
        return [("leafier", {"prompt": "more"})]

    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "leaf": leaf, "leafier": lambda r: "x"},
        agents=[agent("leaf", max_turns=1), agent("leafier")],
        delegation__policy="nested",
    )
    await stage.run()
    body = answer_of(stage)
    assert (body["completed"], body["incomplete"], body["failed"]) == (3, 2, 0)
