"""How deep and how many: the policies `flat` and `nested`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from delegating import ALL, answer_of

from retinue.events import (
    ChildEnded,
    ChildStarted,
    RunStarted,
)
from trees import Stage, agent, results, told, turn


def nest(levels: int) -> dict[str, Any]:
    """Agents that each delegate to the next: a0 is the root's first child."""

    def play(request):
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        depth = 0 if me == "root" else int(me[1:]) + 1
        if turn(request) == 0:
            return [(f"a{depth}", {"prompt": f"level {depth + 1}"})]
        return f"{me} got: {results(request)[0].text}"

    return {"root": play, **{f"a{n}": play for n in range(levels)}}


async def test_flat_lets_only_the_root_delegate() -> None:
    stage = Stage(nest(3), agents=[agent(f"a{n}") for n in range(4)])
    await stage.run()
    assert "a1" in [spec.name for spec in stage.model.of("root")[0].tools]
    assert stage.model.of("a0")[0].tools == (), "a child is not offered any way to delegate"
    (result,) = results(stage.model.of("a0")[1])
    assert result.text == (
        "not started: the policy 'flat' lets only the root delegate, and you are at depth 1. Do the work yourself."
    )


async def test_nested_goes_three_levels_deep_and_no_further() -> None:
    stage = Stage(nest(4), agents=[agent(f"a{n}") for n in range(5)], delegation__policy="nested")
    await stage.run()
    assert "a1" in [spec.name for spec in stage.model.of("a0")[0].tools]
    assert stage.model.of("a1")[0].tools == (), "the deepest level is not offered any way to delegate"
    (result,) = results(stage.model.of("a1")[1])
    assert result.text == (
        "not started: the depth limit is 3 levels (0 to 2); you are at depth 2, so the child would be at depth "
        "3. Do the work yourself."
    )
    depths = sorted(e.depth for e in await stage.log() if isinstance(e, RunStarted))
    assert depths == [0, 1, 2]


async def test_children_are_counted_over_every_way_to_delegate_together() -> None:
    """Agents that are called by their own names are counted apart."""
    ways: list[tuple[str, dict[str, Any] | str]] = [
        ("delegate_task", {"agent_id": "a", "prompt": "1"}),
        ("spawn_agent", {"name": "s", "prompt": "2", "system_prompt": "PLAY a"}),
        ("subagent", {"label": "l", "task_prompt": "3"}),
        ("background", {"operation": "start", "agent_id": "a", "prompt": "4"}),
        ("parallel_tasks", {"tasks": [{"agent_id": "a", "prompt": "5"}]}),
        ("a", {"prompt": "6"}),
    ]
    subagent = "You do one delegated task. Work through it with your tools, then answer."
    stage = Stage(
        {"root": [[way] for way in ways] + ["done"], "a": lambda r: "ok", subagent: lambda r: "ok"},
        agents=[agent("a")],
        yes=True,
        delegation__tools=ALL,
    )
    await stage.run()
    assert [m.is_error for m in results(stage.model.of("root")[-1])] == [False] * 3 + [True] * 2 + [False]
    assert sum(isinstance(e, ChildStarted) for e in await stage.log()) == 4
    assert results(stage.model.of("root")[-1])[3].text == (
        "not started: 3 of 3 children already started for this message "
        "(policy flat, delegation.max_children = 3). Work with the reports you have."
    )


async def test_fifty_starts_at_one_instant_never_pass_the_limit() -> None:
    tasks = [{"agent_id": "a", "prompt": str(n)} for n in range(50)]
    calls: list[tuple[str, dict[str, Any] | str]] = [
        ("parallel_tasks", {"tasks": tasks[n::5]}) for n in range(5)
    ]
    stage = Stage(
        {"root": [calls, "done"], "a": lambda r: ValueError("x") if int(told(r)[0]) % 3 else "ok"},
        agents=[agent("a")],
        delegation__max_children=20,
    )
    await stage.run()
    assert sum(isinstance(e, ChildStarted) for e in await stage.log()) == 20
    whole, refused = results(stage.model.of("root")[1])[:2], results(stage.model.of("root")[1])[2:]
    assert [len(json.loads(batch.text)["results"]) for batch in whole] == [10, 10]
    assert len(refused) == 3
    assert all("20 of 20 children already started" in batch.text for batch in refused)


async def test_no_more_children_run_at_once_than_the_limit_and_no_slot_is_lost() -> None:
    running, most = 0, 0

    async def worker(request):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        if int(told(request)[0]) % 4 == 0:
            return ValueError("broken")
        return "ok"

    tasks = [{"agent_id": "w", "prompt": str(n)} for n in range(24)]
    stage = Stage(
        {"root": [[("parallel_tasks", {"tasks": tasks})], "done"], "w": worker},
        agents=[agent("w")],
        delegation__max_children=24,
        delegation__concurrency=4,
    )
    await stage.run()
    assert most == 4
    assert answer_of(stage)["completed"] == 18


async def test_a_tree_deeper_than_its_slots_does_not_block_itself() -> None:
    def play(request):
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        if me == "leaf" or turn(request) > 0:
            return me
        below = {"root": "mid", "mid": "leaf"}[me]
        return [("parallel_tasks", {"tasks": [{"agent_id": below, "prompt": str(n)} for n in range(4)]})]

    stage = Stage(
        {"root": play, "mid": play, "leaf": play},
        agents=[agent("mid"), agent("leaf")],
        delegation__policy="nested",
        delegation__concurrency=2,
    )
    async with asyncio.timeout(60):
        report = await stage.run()
    assert report.status == "completed"
    assert sum(isinstance(e, ChildEnded) and e.status == "completed" for e in await stage.log()) == 20
