"""Every event of a run is a place to fork at, also one that was written together with those after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue import AgentSpec, Correct, Guarded, Retinue, Stop
from retinue.events import AnyEvent, ChildStarted, MessageReceived, ModelReplied, RunResumed, RunStarted
from retinue.testing import ScriptedModel, call
from retinue.types import AssistantMessage, ModelRequest, ToolMessage

KID = AgentSpec(name="kid", description="k", prompt="You are kid.", tools=())
BOSS = AgentSpec(name="boss", description="b", prompt="You are boss.", tools=(KID, "delegate_task"))


def _play(request: ModelRequest) -> Any:
    """A boss that has a child work, and then asks it again."""
    said = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if "kid" in request.system.partition("\n")[0]:
        return f"report {said}"
    if said == 0:
        return call("delegate_task", agent_id="kid", prompt="first")
    if said == 1:
        told = next(m.text for m in request.messages if isinstance(m, ToolMessage))
        return call(
            "delegate_task", child_id=told.partition('"child_id": "')[2].partition('"')[0], prompt="again"
        )
    return "both are in" if "report 1" in request.messages[-1].text else "one is missing"


async def test_a_fork_inside_the_write_that_asks_a_child_again_asks_it() -> None:
    settings = {"delegation.tools": ["delegate_task"]}
    async with Retinue(
        model=ScriptedModel(_play), db="memory:", agents=[BOSS], settings=settings, environ={}
    ) as retinue:
        report = await retinue.run("boss", "go")
        assert report.text == "both are in"
        events = await retinue.store.events(report.run_id)
        places = [e for e in events if _of_the_write(e)]
        assert len(places) == 3
        for event in places:
            fork = await retinue.wait(await retinue.fork(report.run_id, at=event.pos))
            assert (fork.text, fork.outcome) == ("both are in", "completed"), type(event).__name__
            assert (await retinue.replay(fork.run_id)).diff == "", type(event).__name__


def _of_the_write(event: AnyEvent) -> bool:
    again = isinstance(event, ChildStarted) and event.continues
    opens = isinstance(event, MessageReceived) and event.opens
    return again or opens or isinstance(event, RunResumed)


def _polite(given: Guarded[Any]) -> Correct | None:
    return Correct("say please") if "please" not in given.text else None


def _quiet(given: Guarded[Any]) -> Stop | None:
    return Stop("it shouts") if given.text.isupper() else None


async def test_a_fork_at_an_answer_that_a_guard_sent_back_does_not_let_it_pass(tmp_path: Path) -> None:
    talker = AgentSpec(name="talker", description="t", prompt="You talk.", tools=(), output_guards=[_polite])
    model = ScriptedModel(["rude", "please", "please"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[talker], environ={}) as retinue:
        report = await retinue.run("talker", "go")
        events = await retinue.store.events(report.run_id)
        rude = next(e for e in events if isinstance(e, ModelReplied))
        fork = await retinue.wait(await retinue.fork(report.run_id, at=rude.pos))
    assert fork.text == "please"


async def test_a_fork_at_a_prompt_that_a_guard_stopped_is_stopped(tmp_path: Path) -> None:
    talker = AgentSpec(name="talker", description="t", prompt="You talk.", tools=(), input_guards=[_quiet])
    model = ScriptedModel(["heard"])
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[talker], environ={}) as retinue:
        report = await retinue.run("talker", "LOUD")
        began = next(e for e in await retinue.store.events(report.run_id) if isinstance(e, RunStarted))
        fork = await retinue.wait(await retinue.fork(report.run_id, at=began.pos))
    assert (fork.ended_by, len(model.requests)) == ("guard", 0)
