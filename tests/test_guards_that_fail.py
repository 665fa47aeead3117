"""Guards that fail or say what means nothing: nothing passes, and whoever takes it up asks them again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Correct, Guarded, Mend, Report, Retinue, Stop
from retinue.events import GuardSpoke, ModelReplied, encode
from retinue.guards import AnyGuard
from retinue.testing import ScriptedModel, call
from retinue.testing.scripted import Step
from retinue.types import Usage

PAID = Usage(input_tokens=1000, output_tokens=500, cost=0.25)


def here(tmp_path: Path, model: Any, agent: AgentSpec | None = None, **more: Any) -> Retinue[None]:
    talker = agent or AgentSpec(name="talker", description="talks", prompt="You talk.", tools=())
    return Retinue(
        model=model, db=f"sqlite:///{tmp_path}/guards.db", cwd=tmp_path, **{"agents": [talker], **more}
    )


WRONG: list[Any] = [Mend(None), Mend(5), Stop(None), Stop("no", hide="yes"), Mend("a", why=7), Correct(None)]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("verdict", WRONG, ids=repr)
@pytest.mark.parametrize("side", ["input_guards", "output_guards"])
async def test_a_verdict_of_a_wrong_form_stops_the_run_and_what_was_paid_counts(
    tmp_path: Path, side: str, verdict: Any
) -> None:
    def odd(given: Guarded[Any]) -> Any:
        return verdict

    guards: Any = {side: [odd]}
    async with here(tmp_path, ScriptedModel([Step(text="Hello.", usage=PAID)]), **guards) as retinue:
        report = await retinue.run("talker", "Hi")
        assert (report.status, report.ended_by, report.text) == ("error", "guard", "")
        assert "stopped by the guard odd: it returned " in (report.error or "")
        assert report.usage == (PAID if side == "output_guards" else Usage())
        assert not (await retinue.replay(report.run_id)).diff


class Down:
    """A guard whose service is not there at first."""

    def __init__(self) -> None:
        self.is_down = True
        self.seen: list[str] = []

    async def __call__(self, given: Guarded[Any]) -> None:
        self.seen.append(given.text)
        if self.is_down:
            raise ConnectionError("the service is down")


def talker(side: str, guard: AnyGuard) -> AgentSpec:
    guards: Any = {side: [guard]}
    return AgentSpec(name="talker", description="talks", prompt="You talk.", tools=(), **guards)


async def mapped(retinue: Retinue[None], prompt: str) -> Report:
    (item,) = [item async for item in retinue.map("talker", [prompt])]
    assert item.report is not None
    return item.report


@pytest.mark.parametrize("side", ["input_guards", "output_guards"])
async def test_an_input_of_a_batch_whose_guard_failed_is_guarded_again_when_it_is_taken_up(
    tmp_path: Path, side: str
) -> None:
    guard = Down()
    model = ScriptedModel(lambda request: Step(text="Hello."))
    async with here(tmp_path, model, talker(side, guard)) as retinue:
        report = await mapped(retinue, "a secret?")
        for _ in range(2):
            assert (report.ended_by, report.text) == ("guard", "")
            assert "the service is down" in (report.error or "")
            assert not (await retinue.replay(report.run_id)).diff
            report = await mapped(retinue, "a secret?")
        guard.is_down = False
        done = await mapped(retinue, "a secret?")
        assert (done.outcome, done.text, done.run_id) == ("completed", "Hello.", report.run_id)
        if side == "input_guards":
            assert [[m.text for m in request.messages] for request in model.requests] == [["a secret?"]]
        else:
            assert [[m.text for m in request.messages] for request in model.requests] == [["a secret?"]] * 4
        assert (await mapped(retinue, "a secret?")).text == "Hello."
    assert guard.seen == ["a secret?" if side == "input_guards" else "Hello."] * 4


async def test_what_is_said_to_a_run_at_work_is_guarded_again_where_its_guard_failed(tmp_path: Path) -> None:
    guard, asked, go_on = Down(), asyncio.Event(), asyncio.Event()
    guard.is_down = False

    async def work() -> str:
        """Work."""
        asked.set()
        await go_on.wait()
        return "done"

    worker = AgentSpec(
        name="worker", description="works", prompt="You work.", tools=[work], input_guards=[guard]
    )
    model = ScriptedModel([call("work"), "Hello."])
    async with here(tmp_path, model, worker) as retinue:
        run_id = await retinue.start("worker", "go")
        await asked.wait()
        guard.is_down = True
        assert await retinue.message(run_id, "and now?")
        go_on.set()
        assert (await retinue.wait(run_id)).ended_by == "guard"
        assert len(model.requests) == 1
        guard.is_down = False
        await retinue.resume(run_id)
        assert (await retinue.wait(run_id)).text == "Hello."
    assert model.requests[1].messages[-1].text == "and now?"
    assert guard.seen == ["go", "and now?", "and now?"]


async def test_a_turn_whose_guard_failed_was_never_said_and_the_next_one_is(tmp_path: Path) -> None:
    guard = Down()
    guard.is_down = False
    model = ScriptedModel(["One.", "Two."])
    async with here(tmp_path, model, talker("input_guards", guard)) as retinue:
        chat = retinue.conversation("talker")
        await chat.send("first")
        guard.is_down = True
        assert (await chat.send("lost")).ended_by == "guard"
        guard.is_down = False
        assert (await chat.send("third")).text == "Two."
        log = await retinue.store.events(chat.run_id)
        assert b"lost" not in b"".join(map(encode, log))
        assert [event.failed for event in log if isinstance(event, GuardSpoke)] == [True]
        assert len([event for event in log if isinstance(event, ModelReplied)]) == 2
    assert [message.text for message in model.requests[1].messages] == ["first", "One.", "third"]
