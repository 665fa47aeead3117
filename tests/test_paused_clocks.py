"""While a person is asked for one run, nobody loses time for it: not its parent, not those beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from retinue.clock import Clock
from retinue.events import ApprovalRequested, RunFinished, StepStarted, now
from retinue.store.base import Signal
from retinue.store.outage import Outage
from retinue.tools.base import tool
from retinue.types import Report
from trees import Stage, agent, results, told, turn

ALL = ("agents", "parallel_tasks", "background")


@tool(effect="write")
def put(text: str) -> str:
    """Put it there."""
    return f"put {text}"


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """So many seconds pass, for every timer there is."""
    loop = asyncio.get_running_loop()
    real, ahead = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])

    def pass_by(seconds: float) -> None:
        ahead[0] += seconds

    return pass_by


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(50):
        await asyncio.sleep(0)


async def question(stage: Stage) -> ApprovalRequested:
    while True:
        for event in await stage.log():
            if isinstance(event, ApprovalRequested):
                return event
        await asyncio.sleep(0)


async def approve(stage: Stage, asked: ApprovalRequested) -> None:
    await stage.store.send(
        Signal(
            root_id=asked.root_id,
            run_id=asked.run_id,
            kind="answer",
            key=asked.approval_id,
            body=json.dumps({"decision": "approve"}),
            at=now(),
        )
    )


def reports(log: list[Any]) -> dict[str, Report]:
    return {event.report.agent: event.report for event in log if isinstance(event, RunFinished)}


# -- the clock ----------------------------------------------------------------------------------------------------


def rest(timeout: asyncio.Timeout) -> float | None:
    """Seconds until it expires."""
    when = timeout.when()
    return None if when is None else round(when - asyncio.get_running_loop().time())


class Family:
    """A root, a child with one of its own, and another child, on a clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 0.0
        self.root = self.clock(600)
        self.child = self.clock(3600, self.root)
        self.grandchild = self.clock(3600, self.child)
        self.other = self.clock(3600, self.root)

    def clock(self, seconds: float, parent: Clock | None = None) -> Clock:
        return Clock(seconds, parent=parent, now=lambda: self.time)

    async def __aenter__(self) -> dict[str, asyncio.Timeout]:
        self.stack = contextlib.AsyncExitStack()
        clocks = {"root": self.root, "child": self.child, "grandchild": self.grandchild, "other": self.other}
        return {name: await self.stack.enter_async_context(clock.start()) for name, clock in clocks.items()}

    async def __aexit__(self, *_: object) -> None:
        await self.stack.aclose()


async def test_a_child_does_not_run_out_of_its_parents_time_while_that_stands_still() -> None:
    family = Family()
    async with family as timeouts:
        assert {name: rest(each) for name, each in timeouts.items()} == {
            "root": 600, "child": 540, "grandchild": 486, "other": 540,
        }  # fmt: skip
        family.time = 100
        family.other.pause()
        assert {name: rest(each) for name, each in timeouts.items()} == {
            "root": None, "child": 3500, "grandchild": 3446, "other": None,
        }  # fmt: skip
        family.time = 1100
        assert (family.child.left, family.child.whole, family.child.short()) == (440, 1540, None)
        assert (family.child.kept, family.grandchild.left) == (54, 386), "what it keeps is as it was"
        family.other.resume()
        assert {name: rest(each) for name, each in timeouts.items()} == {
            "root": 500, "child": 440, "grandchild": 386, "other": 440,
        }  # fmt: skip


async def test_a_child_has_the_time_that_its_parent_is_given_anew() -> None:
    family = Family()
    async with family:
        family.time = 500
        late = family.clock(3600, family.root)
        async with late.start() as timeout:
            assert rest(timeout) == 40
            family.root.renew()
            assert rest(timeout) == 540
        family.root.pause()  # and who has ended is not set any more


async def test_one_that_has_used_all_it_may_says_which_limit_that_was() -> None:
    family = Family()
    async with family as timeouts:
        family.other.pause()
        family.time = 3600
        assert family.child.why == "timed out after 3600 s"
        family.time = 700
        family.other.resume()
        family.time = 1240
        family.root.pause()
        assert rest(timeouts["child"]) == 0
        assert family.child.why == "timed out after 1240 s: its parent keeps the rest to sum up"


async def times_out(clock: Clock, then: Callable[[], object]) -> bool:
    try:
        async with clock.start():
            then()
            await settle()
    except TimeoutError:
        return clock.expired
    return False


@pytest.mark.parametrize("then", ["nothing", "pause", "pause and resume", "renew", "again", "of its parent"])
async def test_a_clock_that_is_told_to_expire_does_so_whatever_comes_then(then: str) -> None:
    root = Clock(600)
    clock = Clock(600, parent=root)

    def happen() -> None:
        clock.expire("played back")
        match then:
            case "renew":
                clock.renew()
            case "again":
                clock.expire("played back")
            case "of its parent":
                root.pause()
            case "pause":
                clock.pause()
            case "pause and resume":
                clock.pause()
                clock.resume()
            case _:
                pass

    async with root.start():
        assert await times_out(clock, happen)
    assert clock.why == "played back"


async def test_a_clock_that_is_told_to_expire_before_it_starts_does_so_then() -> None:
    clock = Clock(600)
    clock.expire("played back")
    assert await times_out(clock, lambda: None)


async def test_a_clock_that_has_expired_can_be_told_so_again() -> None:
    clock = Clock(600)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(contextlib.suppress(TimeoutError))
        await stack.enter_async_context(clock.start())
        clock.expire("played back")
        with contextlib.suppress(asyncio.CancelledError):  # a tool may swallow it
            await settle()
        clock.expire("played back")
        clock.pause()
        clock.resume()
    assert clock.expired


# -- trees --------------------------------------------------------------------------------------------------------


async def test_a_child_that_works_is_not_cut_while_a_person_is_asked_for_another(
    later: Callable[[float], None],
) -> None:
    go = asyncio.Event()

    async def b(request: Any) -> Any:
        await go.wait()
        return "b is done"

    tasks = [{"agent_id": name, "prompt": "x"} for name in ("a", "b")]
    stage = Stage(
        {
            "root": [[("parallel_tasks", {"tasks": tasks})], "done"],
            "a": [[("put", {"text": "x"})], "a is done"],
            "b": b,
        },
        agents=[agent("a", tools=("put",)), agent("b")],
        tools=[put],
        answering="wait",
        delegation__tools=ALL,
        limits__timeout=400,
    )
    task = await stage.start(agent("root"))
    asked = await question(stage)
    later(380)  # its parent has 360 s for it, and has used none of them
    await settle()
    go.set()
    await approve(stage, asked)
    assert (await task).outcome == "completed"
    ended = reports(await stage.log())
    assert (ended["a"].text, ended["b"].text) == ("a is done", "b is done")


async def test_a_parent_waits_for_a_child_in_the_background_as_long_as_a_person_is_asked(
    later: Callable[[float], None],
) -> None:
    said = asyncio.Event()

    def root(request: Any) -> Any:
        if not turn(request):
            return [("background", {"operation": "start", "agent_id": "w", "prompt": "x"})]
        if turn(request) == 1:
            said.set()
            return "an answer without it"
        return f"with it: {told(request)[-1]}"

    stage = Stage(
        {"root": root, "w": [[("put", {"text": "x"})], "w is done"]},
        agents=[agent("w", tools=("put",))],
        tools=[put],
        answering="wait",
        delegation__tools=ALL,
        delegation__parent_ends="wait",
        limits__timeout=400,
    )
    task = await stage.start(agent("root"))
    await said.wait()
    asked = await question(stage)
    await settle()
    later(10_000)
    await settle()
    await approve(stage, asked)
    report = await task
    assert report.outcome == "completed"
    assert "w is done" in report.text


async def test_a_parent_waits_for_a_child_in_the_background_no_longer_than_its_own_time(
    later: Callable[[float], None],
) -> None:
    hanging = asyncio.Event()

    async def w(request: Any) -> Any:
        hanging.set()
        try:
            await asyncio.Event().wait()
        finally:
            # It does not let itself be stopped when its time is up, but when its parent has no more either.
            await stopped.wait()

    stopped = asyncio.Event()

    def root(request: Any) -> Any:
        if not turn(request):
            return [("background", {"operation": "start", "agent_id": "w", "prompt": "x"})]
        return "an answer without it"

    stage = Stage(
        {"root": root, "w": w},
        agents=[agent("w")],
        delegation__tools=ALL,
        delegation__parent_ends="wait",
        limits__timeout=400,
    )
    task = await stage.start(agent("root"))
    await hanging.wait()
    while stage.root_id not in stage.workflow.tree._spoken:
        await asyncio.sleep(0)
    later(370)  # the child had 360 s, and its parent waits until half of what it keeps is left: 380 s
    await settle()
    assert stage.root_id in stage.workflow.tree._spoken
    later(20)
    await settle()
    assert stage.root_id not in stage.workflow.tree._spoken
    stopped.set()
    assert (await task).text.startswith("an answer without it")


async def test_a_step_says_how_much_of_its_time_the_run_had_used_without_an_outage_of_the_database() -> None:
    passed = 0.0

    def play(request: Any) -> Any:
        nonlocal passed
        if turn(request) == 0:
            clock = stage.workflow.tree.run(stage.root_id).clock
            began = clock._now()
            clock._now = lambda: began + passed
            passed = 7.0
            stage.workflow.tree.outage(Outage(reason="gone", since=0.0))
            passed = 507.0
            stage.workflow.tree.outage(None)
            return [("put", {"text": "x"})]
        return "done"

    stage = Stage({"root": play}, tools=[put], yes=True)
    await stage.run()
    used = [event.used for event in await stage.log() if isinstance(event, StepStarted)]
    assert [None if each is None else round(each) for each in used] == [0, 7]


# -- the limit of a tool ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passes", "own", "text"),
    [
        (95.0, 1000.0, "looked"),
        (1001.0, 1000.0, "look did not finish within"),
        (31.0, 30.0, "look did not finish within 30 s"),
    ],
    ids=["the run's time stands still", "its own does not", "and cuts it as ever"],
)
async def test_a_tool_that_works_while_a_person_is_asked_has_the_time_of_its_run_and_its_own(
    later: Callable[[float], None], passes: float, own: float, text: str
) -> None:
    go = asyncio.Event()

    @tool(timeout=own)
    async def look() -> str:
        """Look."""
        await go.wait()
        return "looked"

    calls = [("put", {"text": "x"}), ("look", {})]
    stage = Stage({"root": [calls, "done"]}, tools=[put, look], answering="ask")
    task = await stage.start(agent("root", timeout=100))
    asked = await question(stage)
    later(passes)
    await settle()
    go.set()
    await settle()
    await approve(stage, asked)
    assert (await task).status == "completed"
    assert any(text in each.text for each in results(stage.model.of("root")[-1]))


async def test_a_tool_leaves_time_for_the_report_and_has_half_of_that_where_there_is_no_more() -> None:
    family = Family()
    async with family:
        for time, limit in ((0, 540), (500, 40), (530, 30), (560, 30), (590, 10)):
            family.time = time
            async with family.root.of_tool(3600).start() as timeout:
                assert rest(timeout) == limit
        family.time = 0
        async with family.root.of_tool(20).start() as timeout:
            assert rest(timeout) == 20
