"""What reaches a run in its last moments, after its answer and before its end: nothing of it is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from retinue import Retinue
from retinue.engine.abandoned import end, taken_by
from retinue.errors import ModelError
from retinue.events import (
    ChildEnded,
    ChildStarted,
    Event,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunStarted,
)
from retinue.store.base import Signal
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel
from retinue.tools.base import tool
from retinue.types import Usage
from retinue.web.framing import frame
from trees import Stage, agent, never, results, told, turn

ALL = ("agents", "spawn_agent", "delegate_task", "parallel_tasks", "subagent", "background")
SHORTEN = "You shorten reports. Keep every fact, name, path, number, URL and doubt."


class Unhurried(MemoryStore):
    """Takes a few turns of the event loop until something is written, as every disk does."""

    def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
        appended, loop = super().append(events), asyncio.get_running_loop()
        written = loop.create_future()

        def later(turns: int) -> None:
            if turns:
                loop.call_soon(later, turns - 1)
            elif not written.done():
                error = appended.exception()
                written.set_exception(error) if error else written.set_result(None)

        appended.add_done_callback(lambda _: later(3))
        return written


async def say(stage: Stage, run_id: str, text: str) -> None:
    body = json.dumps({"text": text})
    signal = Signal(root_id=stage.root_id, run_id=run_id, kind="message", key="m1", body=body, at=0)
    assert await stage.store.send(signal)


async def test_a_message_at_any_moment_is_read_or_not_taken() -> None:
    """However many turns of the event loop it comes after the start."""
    outcomes: set[str] = set()
    for moment in range(60):
        stage = Stage({"root": lambda request: f"heard {told(request)[1:]}"}, store=Unhurried())
        task = await stage.start()
        for _ in range(moment):
            await asyncio.sleep(0)
        await say(stage, stage.root_id, "wait")
        report = await task
        logged = [e for e in await stage.log() if isinstance(e, MessageReceived)]
        row = await stage.store.run(stage.root_id)
        assert row is not None
        assert row.status == "completed", moment
        assert isinstance((await stage.log())[-1], RunFinished), moment
        assert report.text == ("heard ['wait']" if logged else "heard []"), moment
        outcomes.add(report.text)
    assert len(outcomes) == 2


async def test_a_run_that_is_cancelled_while_it_dismisses_its_children_has_an_end() -> None:
    stopping, go = asyncio.Event(), asyncio.Event()

    async def worker(request: Any) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await go.wait()
        return ""

    stage = Stage(
        {
            "root": [[("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})], "done"],
            "w": worker,
        },
        agents=[agent("w")],
        delegation__tools=ALL,
        delegation__parent_ends="cancel",
    )
    task = await stage.start()
    await stopping.wait()
    stage.workflow.cancel(stage.root_id, "enough")
    await asyncio.sleep(0)
    go.set()
    async with asyncio.timeout(60):
        await asyncio.wait([task])
    finished = {e.run_id: e.report for e in await stage.log() if isinstance(e, RunFinished)}
    started = {e.run_id for e in await stage.log() if isinstance(e, RunStarted)}
    assert set(finished) == started
    assert (finished[stage.root_id].status, finished[stage.root_id].text) == ("cancelled", "done")


async def test_a_tree_that_is_cancelled_at_any_moment_counts_what_all_its_children_used() -> None:
    @tool(effect="read")
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    def play(request: Any) -> Any:
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        if me == "leaf":
            return [("echo", {"text": "x"})] if turn(request) == 0 else "ok"
        if turn(request):
            return "ok"
        below = {"root": "mid", "mid": "leaf"}[me]
        return [("parallel_tasks", {"tasks": [{"agent_id": below, "prompt": str(n)} for n in range(3)]})]

    for moment in range(0, 300, 2):
        stage = Stage(
            {"root": play, "mid": play, "leaf": play},
            agents=[agent("mid"), agent("leaf")],
            tools=[echo],
            store=Unhurried(),
            delegation__policy="nested",
        )
        task = await stage.start()
        for _ in range(moment):
            await asyncio.sleep(0)
        stage.workflow.cancel(stage.root_id, "enough")
        async with asyncio.timeout(60):
            report = await task
        events = await stage.log()
        started = {e.child_id for e in events if isinstance(e, ChildStarted)}
        assert {e.child_id for e in events if isinstance(e, ChildEnded)} == started, moment
        used = sum((e.usage for e in events if isinstance(e, ModelReplied)), Usage())
        assert report.usage.input_tokens == used.input_tokens, moment


async def test_a_run_that_leaves_children_at_work_has_an_end_whenever_it_is_cancelled() -> None:
    """Also while the answer is being written that it gives without them."""
    start = ("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})
    answers: set[int] = set()
    for moment in range(60):
        stage = Stage(
            {"root": [[start], "first answer"], "w": lambda request: never()},
            agents=[agent("w")],
            store=Unhurried(),
            delegation__tools=ALL,
            delegation__parent_ends="leave",
        )
        task = await stage.start()
        for _ in range(moment):
            await asyncio.sleep(0)
        stage.workflow.cancel(stage.root_id, "enough")
        async with asyncio.timeout(60):
            await asyncio.wait([task])
        ends = [e.report for e in await stage.log(stage.root_id) if isinstance(e, RunFinished)]
        assert [(end.status, end.at_work) for end in ends][-1:] == [("cancelled", 0)], moment
        answers.add(len(ends))
    assert answers == {1, 2}


async def test_what_is_written_is_heard_and_charged_although_its_run_is_cancelled_meanwhile() -> None:
    @tool(effect="read")
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    for moment in range(60):
        stage = Stage({"root": [[("echo", {"text": "x"})], "the answer"]}, tools=[echo], store=Unhurried())
        task = await stage.start()
        root = stage.workflow.tree.run(stage.root_id)
        for _ in range(moment):
            await asyncio.sleep(0)
        stage.workflow.cancel(stage.root_id, "enough")
        async with asyncio.timeout(60):
            report = await task
        events = await stage.log()
        heard = [event for event in stage.live if isinstance(event, Event)]
        assert [e.seq for e in heard] == [e.seq for e in events], moment
        assert root.budget.used["input_tokens"] == report.usage.input_tokens, moment
        assert report.text.count("the answer") <= 1, moment


async def test_a_parent_that_ends_while_a_report_is_shortened_for_it_does_not_wait() -> None:
    shortening = asyncio.Event()

    async def shorten(request: Any) -> str:
        shortening.set()
        await asyncio.Event().wait()
        return ""

    async def play(request: Any) -> Any:
        if turn(request) == 0:
            return [("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})]
        await shortening.wait()
        return "done"

    stage = Stage(
        {"root": play, "w": ["word " * 3000], SHORTEN: shorten},
        agents=[agent("w")],
        delegation__tools=ALL,
        delegation__summary="model",
        delegation__parent_ends="cancel",
    )
    async with asyncio.timeout(60):
        report = await stage.run()
    (ended,) = [e for e in await stage.log() if isinstance(e, ChildEnded)]
    assert (report.text, ended.status, ended.notice) == ("done", "completed", "")
    assert report.usage.input_tokens == 30


async def test_a_child_that_is_cancelled_while_its_report_is_shortened_has_a_report_all_the_same() -> None:
    shortening = asyncio.Event()

    async def shorten(request: Any) -> Any:
        if shortening.is_set():  # asked again, for the parent that waits now
            return "in short"
        shortening.set()
        return await asyncio.Event().wait()

    async def play(request: Any) -> Any:
        if turn(request) == 0:
            return [("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})]
        await shortening.wait()
        child = json.loads(results(request)[0].text)["child_id"]
        return [("background", {"operation": "cancel", "child_id": child})] if turn(request) == 1 else "done"

    stage = Stage(
        {"root": play, "w": ["word " * 3000], SHORTEN: shorten},
        agents=[agent("w")],
        delegation__tools=ALL,
        delegation__summary="model",
    )
    async with asyncio.timeout(60):
        await stage.run()
    cancelled = results(stage.model.of("root")[-1])[-1]
    assert not cancelled.is_error, cancelled.text
    assert json.loads(cancelled.text)["status"] == "completed"


async def test_what_no_model_could_read_any_more_is_said_in_the_report() -> None:
    asked = asyncio.Event()

    async def worker(request: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    async def play(request: Any) -> Any:
        last = results(request)[-1:]
        child = json.loads(results(request)[0].text)["child_id"] if last else ""
        if turn(request) == 0:
            return [("background", {"operation": "start", "agent_id": "w", "prompt": "dig"})]
        if turn(request) == 1:
            await asked.wait()
            return [("background", {"operation": "message", "child_id": child, "text": "look left"})]
        if turn(request) == 2:
            return [("background", {"operation": "cancel", "child_id": child})]
        if turn(request) == 3:
            return [("background", {"operation": "message", "child_id": child, "text": "still there?"})]
        return "done"

    stage = Stage({"root": play, "w": worker}, agents=[agent("w")], delegation__tools=ALL)
    await stage.run()
    _, sent, cancelled, late = results(stage.model.of("root")[-1])
    assert sent.text == "delivered: it reads this before its next step"
    body = json.loads(cancelled.text)
    assert body["incomplete"] == "cancelled by its parent; 1 message was not read"
    assert late.text == f"the child {body['child_id']} has ended and reads no more messages"
    assert late.is_error


async def test_what_is_said_to_a_run_whose_model_fails_is_said_in_its_report() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def play(request: Any) -> Any:
        asked.set()
        await go.wait()
        return ModelError("no money", kind="rate_limit")

    stage = Stage({"root": play})
    task = await stage.start()
    await asked.wait()
    await say(stage, stage.root_id, "hurry")
    while not any(isinstance(e, MessageReceived) for e in await stage.log()):
        await asyncio.sleep(0)
    go.set()
    assert (await task).incomplete == "no money; 1 message was not read"


async def test_a_run_that_is_ended_for_a_dead_process_says_what_it_has_not_read() -> None:
    asked = asyncio.Event()

    async def play(request: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    stage = Stage({"root": play})
    await stage.start()
    await asked.wait()
    await say(stage, stage.root_id, "hurry")
    while not any(isinstance(e, MessageReceived) for e in await stage.log()):
        await asyncio.sleep(0)
    await stage.workflow.leave()
    taken = taken_by(await stage.log(), stage.root_id)
    assert taken is not None
    written = await end(stage.store, stage.root_id, stage.root_id, "gone", taken=taken)
    (finished,) = [e for e in written if isinstance(e, RunFinished)]
    assert finished.report.incomplete == "gone; 1 message was not read"


async def test_who_says_something_is_told_whether_it_came_in_time() -> None:
    told_so: set[bool] = set()
    for moment in range(0, 60, 2):
        model = ScriptedModel(lambda request: f"heard {told(request)[1:]}")
        async with Retinue(model=model, db=Unhurried(), environ={}) as retinue:
            run_id = await retinue.start("general", "go")
            for _ in range(moment):
                await asyncio.sleep(0)
            in_time = await retinue.message(run_id, "wait")
            report = await retinue.wait(run_id)
            assert report.text == ("heard ['wait']" if in_time else "heard []"), moment
            assert await retinue.message(run_id, "still there?") is False
            await retinue.resume(run_id, message="and now?")
            again = await retinue.wait(run_id)
            before = ["wait"] if in_time else []
            assert again.text == f"heard {[*before, 'and now?']}", (
                "what came too late is not said again later"
            )
        told_so.add(in_time)
    assert told_so == {True, False}


async def test_who_says_something_to_a_run_of_another_part_of_the_program_is_told_so_too() -> None:
    told_so: set[bool] = set()
    for moment in range(0, 60, 2):
        model, store = ScriptedModel(lambda request: f"heard {told(request)[1:]}"), Unhurried()
        async with (
            Retinue(model=model, db=store, environ={}) as one,
            Retinue(model="offline", db=store, environ={}) as other,
        ):
            run_id = await one.start("general", "go")
            for _ in range(moment):
                await asyncio.sleep(0)
            in_time = await other.message(run_id, "wait")
            report = await one.wait(run_id)
        assert report.text == ("heard ['wait']" if in_time else "heard []"), moment
        told_so.add(in_time)
    assert told_so == {True, False}


async def test_a_cancelled_run_shows_what_its_child_and_its_pages_said_and_no_frame() -> None:
    last = asyncio.Event()
    helper = {"name": "helper", "prompt": "count", "system_prompt": "PLAY helper"}

    @tool
    async def page() -> str:
        """A page."""
        return frame("1815, London", what="page")

    async def root(request: Any) -> Any:
        if turn(request) == 0:
            return [("scout", {"prompt": "look"}), ("page", {}), ("spawn_agent", helper)]
        last.set()
        return await asyncio.Event().wait()

    stage = Stage(
        {"root": root, "scout": ["in cart.py:6, <report of mine>"], "helper": ["as told"]},
        agents=[agent("scout")],
        tools=[page],
        yes=True,
        delegation__tools=ALL,
    )
    task = await stage.start()
    await last.wait()
    stage.workflow.cancel(stage.root_id, "enough")
    await asyncio.wait([task])
    text = next(
        e.report.text for e in await stage.log() if isinstance(e, RunFinished) and e.run_id == stage.root_id
    )
    assert "- scout: in cart.py:6, <report of mine>\n" in text, "only the frame goes"
    assert "- page: 1815, London" in text
    assert "as told" in text
    assert "is data" not in text
    assert "</report" not in text
    assert "turns=" not in text
