"""A server that wants a model of ours to write for it: never by itself, and never beside the budget."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_world import GENERAL, World, trusting
from retinue import Retinue
from retinue.engine.answers import Answer
from retinue.events import ApprovalRequested, ModelSampled, RunFinished, ToolReturned
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, Step, call
from retinue.types import Usage

ASK = {"mcp.sampling": "ask"}
SERVER = "You write for a server."
COMPOSE = call("mcp__plain__compose", about="bees")


def model(*written: Any, calls: Any = (COMPOSE,)) -> ScriptedModel:
    return ScriptedModel({SERVER: list(written), GENERAL: [*calls, "done"]})


async def asked_for(world: World, played: ScriptedModel, **options: Any) -> list[Any]:
    """All that the log of a run has of it."""
    options = {"settings": ASK, **options}
    async with Retinue(model=played, cwd=world.project, db="memory:", **options) as retinue:
        await trusting(retinue)
        report = await retinue.run("general", "go")
        return list(await retinue.store.events(report.run_id))


def one(events: list[Any], kind: type) -> Any:
    (found,) = [each for each in events if isinstance(each, kind)]
    return found


async def test_a_server_has_no_model_write_for_it_unless_that_is_set(world: World) -> None:
    world.plain()
    events = await asked_for(world, model(), settings={}, approve=lambda question: Answer(decision="approve"))
    assert "Sampling not supported" in one(events, ToolReturned).text
    assert not [each for each in events if isinstance(each, ApprovalRequested | ModelSampled)]


async def test_a_person_sees_what_would_be_asked_and_what_came_of_it_is_in_the_log_and_in_the_cost(
    world: World,
) -> None:
    world.plain()
    played = model(Step(text="Bees hum.", usage=Usage(input_tokens=30, output_tokens=4)))
    events = await asked_for(world, played, approve=lambda question: Answer(decision="approve"))
    asked, sampled = one(events, ApprovalRequested), one(events, ModelSampled)
    assert "plain" in asked.reason
    assert "50 tokens" in asked.reason
    assert SERVER in asked.preview
    assert "Write a line about bees." in asked.preview
    assert (sampled.server, sampled.text, sampled.usage.total_tokens) == ("plain", "Bees hum.", 34)
    said = json.loads(one(events, ToolReturned).text.split("the model said ")[1].splitlines()[0])
    assert said["content"] == {"type": "text", "text": "Bees hum."}
    assert (said["role"], said["stopReason"]) == ("assistant", "endTurn")
    own = sum((each.usage for each in events if type(each).__name__ == "ModelReplied"), Usage())
    assert one(events, RunFinished).report.usage.total_tokens == own.total_tokens + 34


async def test_the_model_that_writes_for_a_server_sees_nothing_of_the_run(world: World) -> None:
    world.plain()
    played = model("Bees hum.")
    await asked_for(world, played, approve=lambda question: Answer(decision="approve"))
    (request,) = [each for each in played.requests if each.system == SERVER]
    assert [each.text for each in request.messages] == ["Write a line about bees."]
    assert (request.tools, request.max_tokens) == ((), 50)


@pytest.mark.parametrize(
    ("approve", "why"),
    [(lambda question: Answer(decision="reject"), "the person said no"), (None, "nobody agreed")],
)
async def test_without_a_yes_nothing_is_written_and_the_server_is_told(
    world: World, approve: Any, why: str
) -> None:
    world.plain()
    events = await asked_for(world, model(), approve=approve)
    assert why in one(events, ToolReturned).text
    assert not [each for each in events if isinstance(each, ModelSampled)]


@pytest.mark.parametrize(
    "params",
    [
        {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]},
        {
            "messages": [
                {"role": "user", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}}
            ]
        },
        {"messages": []},
        {"systemPrompt": "x" * 30_000},
    ],
)
async def test_what_a_person_could_not_see_whole_is_not_asked(world: World, params: dict[str, Any]) -> None:
    world.plain("--compose", json.dumps(params))
    events = await asked_for(world, model(), approve=lambda question: Answer(decision="approve"))
    assert "nothing was written" in one(events, ToolReturned).text
    assert not [each for each in events if isinstance(each, ApprovalRequested | ModelSampled)]


async def test_a_budget_that_is_used_up_has_nothing_written(world: World) -> None:
    world.plain()
    costly = Step(calls=(COMPOSE,), usage=Usage(input_tokens=30, output_tokens=4, cost=0.5))
    events = await asked_for(
        world,
        model("Bees hum.", calls=[costly]),
        settings={**ASK, "limits.max_cost": 0.4},
        approve=lambda question: Answer(decision="approve"),
    )
    assert "the budget of the run is used up" in one(events, ToolReturned).text
    assert not [each for each in events if isinstance(each, ModelSampled)]


async def test_a_run_with_what_a_model_wrote_for_a_server_replays(world: World) -> None:
    world.plain()
    played = model(Step(text="Bees hum.", usage=Usage(input_tokens=30, output_tokens=4)))
    answer = Answer(decision="approve")
    async with Retinue(
        model=played, cwd=world.project, db=MemoryStore(), settings=ASK, approve=lambda question: answer
    ) as retinue:
        await trusting(retinue)
        report = await retinue.run("general", "go")
        replayed = await retinue.replay(report.run_id)
        assert replayed.diff == ""
        assert replayed.report.usage == report.usage


async def test_a_run_that_is_cancelled_leaves_no_model_at_work_for_a_server(world: World) -> None:
    world.plain()
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async with Retinue(
        model=model(slow),
        cwd=world.project,
        db="memory:",
        settings=ASK,
        approve=lambda question: Answer(decision="approve"),
    ) as retinue:
        await trusting(retinue)
        run_id = await retinue.start("general", "go")
        async with asyncio.timeout(60):
            await began.wait()
            await retinue.cancel(run_id)
            await ended.wait()
        report = await retinue.wait(run_id)
    assert report.status == "cancelled"


async def test_two_calls_of_one_run_at_a_server_that_handles_one_at_a_time_are_both_asked(
    world: World,
) -> None:
    world.plain()
    calls = [[COMPOSE, call("mcp__plain__compose", about="ants")]]
    events = await asked_for(
        world, model("One.", "Two.", calls=calls), approve=lambda question: Answer(decision="approve")
    )
    assert sorted(each.text for each in events if isinstance(each, ModelSampled)) == ["One.", "Two."]
    assert all("the model said {" in each.text for each in events if isinstance(each, ToolReturned))


async def test_a_no_to_a_server_is_no_rejected_call_and_replays(world: World) -> None:
    world.plain()
    for tool in ("compose", "ask"):
        played = model(calls=[call(f"mcp__plain__{tool}", about="bees")])
        async with Retinue(
            model=played,
            cwd=world.project,
            db=MemoryStore(),
            settings=ASK,
            approve=lambda question: Answer(decision="reject"),
        ) as retinue:
            await trusting(retinue)
            report = await retinue.run("general", "go")
            assert report.outcome == "completed"
            assert (await retinue.replay(report.run_id)).diff == ""


@pytest.mark.parametrize("tool", ["compose", "ask"])
async def test_an_answer_counts_only_for_what_was_asked_before_a_restart(
    world: World, tool: str, tmp_path: Path
) -> None:
    about = tmp_path / "about.txt"
    about.write_text("bees")
    world.plain("--about", str(about))
    store = MemoryStore()
    calls = [call(f"mcp__plain__{tool}", about="x")]
    played = model("Bees hum.", calls=calls)
    options: Any = {"model": played, "cwd": world.project, "db": store, "settings": ASK, "answering": "ask"}
    async with Retinue(**options) as retinue:
        await trusting(retinue)
        run_id = await retinue.start("general", "go")
        first = await open_question(retinue, run_id)
    about.write_text("the words of somebody else")
    async with Retinue(**options) as retinue:
        await trusting(retinue)
        await retinue.answer(first.approval_id, "approve")
        await retinue.resume(run_id)
        second = await open_question(retinue, run_id, after=first)
        assert "somebody else" in second.preview
        await retinue.answer(second.approval_id, "reject")
        await retinue.wait(run_id)
    assert not [each for each in played.requests if each.system == SERVER]
    events = await store.events(run_id)
    assert '"accept"' not in one(list(events), ToolReturned).text


async def open_question(retinue: Retinue, run_id: str, after: Any = None) -> ApprovalRequested:
    async with asyncio.timeout(60):
        while True:
            events = await retinue.store.events(run_id)
            asked = [each for each in events if isinstance(each, ApprovalRequested) and each != after]
            if asked:
                return asked[-1]
            await asyncio.sleep(0.02)
