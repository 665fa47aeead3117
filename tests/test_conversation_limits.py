"""A conversation goes on: what is allowed is allowed for each message of a person, and money for all of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from retinue import Retinue
from retinue.engine.elapsed import seconds_used
from retinue.events import ChildStarted, MessageReceived, RunResumed, RunStarted, StepStarted
from retinue.store.base import Signal
from retinue.testing import FakeProvider, ScriptedModel, call
from retinue.tools.base import tool
from retinue.types import AssistantMessage, Report, UserMessage
from trees import Stage, agent, results, told

ALL = ("agents", "spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background")


@tool(effect="read")
async def echo(text: str) -> str:
    """Say it again."""
    return f"echo {text}"


def since(request: Any) -> int:
    """How often the model has answered since a person last spoke."""
    last = max(n for n, m in enumerate(request.messages) if isinstance(m, UserMessage))
    return sum(isinstance(m, AssistantMessage) for m in request.messages[last:])


async def go_on(stage: Stage, message: str, **dotted: Any) -> tuple[Stage, Report]:
    """The next message of a conversation, as another process would take it up."""
    again = Stage(
        stage.model.parts,
        agents=list(stage.config.agents.values()),
        tools=list(stage.config.tools.values()),
        store=stage.store,
        root_id=stage.root_id,
        yes=True,
        **dotted,
    )
    return again, await (await again.resume(message))


@pytest.mark.parametrize("policy", ["flat", "nested"])
async def test_a_conversation_of_thirty_messages_with_two_children_each_goes_on(policy: str) -> None:
    tasks = [{"agent_id": "leaf", "prompt": "a"}, {"agent_id": "leaf", "prompt": "b"}]

    def root(request: Any) -> Any:
        if since(request):
            body = json.loads(results(request)[-1].text)
            return f"{body['completed']} of 2"
        return [("parallel_tasks", {"tasks": tasks})]

    dotted: dict[str, Any] = {"delegation__policy": policy}
    stage = Stage({"root": root, "leaf": lambda r: "ok"}, agents=[agent("leaf")], yes=True, **dotted)
    report = await stage.run()
    for number in range(29):
        stage, report = await go_on(stage, f"and {number}?", **dotted)
        assert (report.text, report.outcome) == ("2 of 2", "completed"), number
    started = [e for e in await stage.log() if isinstance(e, ChildStarted)]
    assert len(started) == 60


async def test_turns_are_allowed_for_each_message() -> None:
    def root(request: Any) -> Any:
        return [("echo", {"text": str(since(request))})] if since(request) < 3 else "done"

    stage = Stage({"root": root}, tools=[echo], limits__max_turns=4, limits__tree_turns=6)
    report = await stage.run()
    assert report.outcome == "completed"
    for number in range(3):
        stage, report = await go_on(stage, f"{number}", limits__max_turns=4, limits__tree_turns=6)
        assert report.outcome == "completed"
    assert report.turns == 16, "those of the whole conversation"


async def test_corrections_are_allowed_for_each_message() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def root(request: Any) -> Any:
        return '{"n": 1}' if "does not fit" in told(request)[-1] else "no JSON"

    stage = Stage({"root": root}, delegation__corrections=1)
    assert (await stage.run(agent("root", output_schema=schema))).outcome == "completed"
    stage, report = await go_on(stage, "again", delegation__corrections=1)
    assert (report.outcome, report.data) == ("completed", {"n": 1})


async def test_the_price_is_for_the_whole_conversation() -> None:
    stage = Stage(
        {"root": lambda r: "done" if since(r) else [("leaf", {"prompt": "x"})], "leaf": lambda r: "ok"},
        agents=[agent("leaf")],
        limits__max_cost=0.007,  # three calls a message, at 0.001 each
    )
    assert (await stage.run()).outcome == "completed"
    stage, second = await go_on(stage, "again", limits__max_cost=0.007)
    assert second.outcome == "completed"
    stage, third = await go_on(stage, "again", limits__max_cost=0.007)
    assert third.incomplete is not None
    assert "(limits.max_cost)" in third.incomplete
    assert third.usage.cost is not None
    assert third.usage.cost < 0.0085


async def test_a_limit_that_was_raised_counts_for_a_run_that_is_there_already() -> None:
    def root(request: Any) -> Any:
        return [("leaf", {"prompt": str(n)}) for n in range(4)] if not since(request) else "done"

    parts: dict[str, Any] = {"root": root, "leaf": lambda r: "ok"}
    stage = Stage(parts, agents=[agent("leaf")], delegation__agent_calls=2)
    assert (await stage.run()).shortfall.not_started == 2
    stage, report = await go_on(stage, "again", delegation__agent_calls=4)
    assert report.shortfall.not_started == 0


async def test_what_was_used_for_this_message_still_counts_after_a_restart() -> None:
    """One that is cut off in the middle of its second message has what that message left it."""
    asked = asyncio.Event()

    async def root(request: Any) -> Any:
        if told(request)[-1] == "second" and since(request) == 2:
            asked.set()
            await asyncio.Event().wait()
        return [("leaf", {"prompt": "x"})] if since(request) < 2 else "done"

    limits: dict[str, Any] = {"delegation__agent_calls": 3}
    parts: dict[str, Any] = {"root": root, "leaf": lambda r: "ok"}
    stage = Stage(parts, agents=[agent("leaf")], **limits)
    await stage.run()
    again = Stage(parts, agents=[agent("leaf")], store=stage.store, root_id=stage.root_id, **limits)
    task = await again.resume("second")
    await asked.wait()
    await again.workflow.leave()
    assert task.done()
    parts["root"] = lambda r: [("leaf", {"prompt": "y"})] if since(r) < 4 else "done"
    last = Stage(parts, agents=[agent("leaf")], store=stage.store, root_id=stage.root_id, **limits)
    report = await (await last.resume())
    assert report.shortfall.not_started == 1, "two were called before, so one more is left and not two"


async def test_what_a_person_says_to_a_run_at_work_begins_its_count_anew() -> None:
    spoken = asyncio.Event()

    async def root(request: Any) -> Any:
        if since(request) == 2 and not spoken.is_set():
            spoken.set()
            body = json.dumps({"text": "and more"})
            me = stage.root_id
            await stage.store.send(Signal(root_id=me, run_id=me, kind="message", key="m", body=body, at=0.0))
            while not any(isinstance(e, MessageReceived) for e in await stage.log()):
                await asyncio.sleep(0)
        return [("leaf", {"prompt": "x"})] if since(request) < 3 else "done"

    stage = Stage(
        {"root": root, "leaf": lambda r: "ok"},
        agents=[agent("leaf")],
        delegation__agent_calls=4,
        limits__max_turns=5,
        limits__tree_turns=11,
    )
    report = await stage.run()
    assert (report.outcome, report.shortfall.not_started) == ("completed", 0)
    assert len([e for e in await stage.log() if isinstance(e, ChildStarted)]) > 3


def test_time_is_counted_from_what_a_person_said_last() -> None:
    def event(kind: Any, at: float, **fields: Any) -> Any:
        return kind(run_id="r", root_id="r", parent_id=None, depth=0, seq=1, at=at, **fields)

    log = [
        event(RunStarted, 0, spec=agent("a"), prompt="p", system="", model="m"),
        event(StepStarted, 0, step=1, model="m"),
        event(MessageReceived, 50, text="from the system", sender="system"),
        event(MessageReceived, 100, text="and now?"),
        event(MessageReceived, 130, text="from the system", sender="system"),
    ]
    assert seconds_used("r", {"r": log}) == 30


async def test_resume_takes_limits_and_a_model_and_keeps_them(tmp_path: Path) -> None:
    def answer(request: Any) -> Any:
        return call("echo", text=str(since(request))) if since(request) < 5 else "done"

    async def take(message: str, **given: Any) -> tuple[Report, Mapping[str, Any]]:
        async with Retinue(
            model=ScriptedModel(answer, name="scripted:one"),
            db=f"sqlite:///{tmp_path / 'r.db'}",
            cwd=tmp_path,
            tools=[echo],
        ) as retinue:
            if not runs:
                runs.append(await retinue.start(agent("root"), message, **given))
            else:
                await retinue.resume(runs[0], message=message, **given)
            report = await retinue.wait(runs[0])
            log = await retinue.store.events(runs[0])
            return report, next((e.settings for e in reversed(log) if isinstance(e, RunResumed)), {})

    runs: list[str] = []
    first, _ = await take("go", settings={"limits.max_turns": 3})
    assert first.incomplete == "max turns reached: 3 of 3"
    second, given = await take("go on", settings={"limits.max_turns": 8})
    assert (second.outcome, given) == ("completed", {"limits.max_turns": 8})
    third, _ = await take("and again")
    assert third.outcome == "completed", "what it was given on the way holds from there on"


async def test_a_run_that_is_resumed_with_another_model_goes_on_with_that(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path / 'r.db'}"
    async with (
        FakeProvider() as provider,
        Retinue(model="offline", db=db, cwd=tmp_path, environ=provider.environ()) as retinue,
    ):
        run_id = await retinue.start("general", "what is 2 + 3?")
        await retinue.wait(run_id)
        log = await retinue.store.events(run_id)
        began = next(e for e in log if isinstance(e, RunStarted))
        assert began.model == "offline"
        with pytest.raises(Exception, match="nowhere"):
            await retinue.resume(run_id, message="and now?", model="nowhere:none")
        assert len(await retinue.store.events(run_id)) == len(log), "nothing was written for what cannot be"
        provider.reply("seven")
        provider.reply("still seven")
        await retinue.resume(run_id, message="and 3 + 4?", model="openai:other")
        assert (await retinue.wait(run_id)).text == "seven"
        await retinue.resume(run_id, message="and again?")
        assert (await retinue.wait(run_id)).text == "still seven", "it stays with the model it was given"
        resumed = [e for e in await retinue.store.events(run_id) if isinstance(e, RunResumed)]
        assert resumed[0].model == "openai:other"
