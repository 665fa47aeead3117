"""Small parts of the engine, each by itself: what trees of runs reach only now and then."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib
import inspect
import os
import pkgutil
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import pytest
from pydantic import Field
from typing_extensions import TypedDict

import retinue.delegate
import retinue.engine
import retinue.events
import retinue.types
from retinue.approvals import Verdict
from retinue.authority.flows import Concern
from retinue.authority.rules import Asked
from retinue.engine import listeners as listening
from retinue.engine.abandoned import is_left_by_process
from retinue.engine.answers import Answer, signal_of
from retinue.engine.approve_function import ApproveFunction
from retinue.engine.asking_order import AskingOrder
from retinue.engine.bring import MOST_WORDS, files_in
from retinue.engine.fork import beginning
from retinue.engine.isolation import merge_tool
from retinue.engine.listeners import Listeners
from retinue.engine.merge_diffs import _one_diff
from retinue.engine.offers import nobody_to_ask
from retinue.engine.take_up import FIRST_PAUSE, LONGEST_PAUSE, Tries
from retinue.engine.watch import died, watch
from retinue.engine.workbooks import ATTACHED, kept_with_message, kept_workbooks
from retinue.errors import ConfigError, Fenced, RunError, Withdrawn
from retinue.events import AnyEvent, ApprovalRequested, Event, RunStarted, StepStarted, Streamed
from retinue.store.base import KeptFile
from retinue.store.memory import MemoryStore
from retinue.tools.base import ToolContext, ToolResult, tool
from retinue.tools.sheets import Workbook
from retinue.types import AgentSpec, FileState, Report, type_problems
from retinue.workspace import Files
from trees import Stage, agent, reply

PLACE: dict[str, Any] = {"run_id": "r", "root_id": "r", "parent_id": None, "depth": 0}


def test_a_path_as_long_as_is_looked_at_is_brought_and_no_longer_one(tmp_path: Path) -> None:
    folders = "/".join(["d" * 199] * 9)
    paths = [f"{folders}/{'f' * (MOST_WORDS - len(folders) - 1 + more)}" for more in (0, 1)]
    (tmp_path / folders).mkdir(parents=True)
    for path in paths:
        (tmp_path / path).write_text("x")
    project = Files(project=tmp_path, workspace=None)
    assert list(files_in(f"read {paths[0]} and {paths[1]}", project)) == paths[:1]
    project.close()


def test_a_file_that_is_named_twice_is_brought_once(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    project = Files(project=tmp_path, workspace=None)
    assert list(files_in("read a.py, then `./a.py`, b.py and a.py again", project)) == ["a.py", "b.py"]
    project.close()


def test_who_is_far_behind_misses_text_and_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MOST_QUEUED", 2)
    room = Listeners()
    queue = room.listen("r")
    text = Streamed(run_id="r", root_id="r", depth=0, step=1, text="x")
    for _ in range(4):
        room.publish(text)
    assert queue.qsize() == 2
    room.publish(StepStarted(**PLACE, seq=1, at=1.0, step=1, model="m"))
    assert queue.qsize() == 3


async def ended(error: BaseException | None) -> asyncio.Task[Report]:
    async def work() -> Report:
        if error is not None:
            raise error
        return Report(run_id="r", status="completed", text="done", agent="root")

    task = asyncio.create_task(work())
    await asyncio.wait({task})
    return task


async def test_what_stopped_here_without_a_report_has_died_unless_another_took_it() -> None:
    assert died(None) is False
    assert died(await ended(None)) is False
    assert died(await ended(asyncio.CancelledError())) is True
    assert died(await ended(RunError("broken"))) is True
    assert died(await ended(Fenced("another process goes on with it"))) is False
    assert died(await ended(Withdrawn("it was taken back"))) is True


ASKED = ApprovalRequested(
    **PLACE,
    seq=2,
    at=1.0,
    approval_id="r:call",
    call_id="call",
    tool="mark",
    arguments="{}",
    effect="write",
    risk="medium",
    reason="",
    path=("root",),
)


async def test_a_question_to_a_function_is_let_go_once_it_is_answered() -> None:
    given: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def give(approval_id: str, decision: Any, **_: Any) -> Any:
        given.put_nowait((approval_id, decision))

    async def approve(asked: ApprovalRequested) -> Answer:
        return Answer(decision="approve")

    asking = ApproveFunction(give)
    asking.ask(approve, ASKED, 60)
    async with asyncio.timeout(60):
        assert await given.get() == ("r:call", "approve")
        (task,) = tasks("ask r:call")
        await task
    del task
    await asyncio.sleep(0)  # the loop itself holds what it was woken by
    gc.collect()
    assert tasks("ask r:call") == []
    asking.close()


async def test_a_question_to_a_function_ends_with_the_program() -> None:
    began = asyncio.Event()

    async def approve(asked: ApprovalRequested) -> Answer:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def give(approval_id: str, decision: Any, **_: Any) -> Any:
        raise AssertionError

    asking = ApproveFunction(give)
    asking.ask(approve, ASKED, 60)
    async with asyncio.timeout(60):
        await began.wait()
        (task,) = tasks("ask r:call")
        asking.close()
        await asyncio.wait({task})
    assert task.cancelled()


def tasks(name: str) -> list[asyncio.Task[Any]]:
    return [one for one in gc.get_objects() if isinstance(one, asyncio.Task) and one.get_name() == name]


async def test_a_child_has_ended_when_it_has_an_end_and_a_root_never_in_its_own_tree() -> None:
    gate, began = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> str:
        began.set()
        await gate.wait()
        return "fine"

    stage = Stage({"root": [[("fine", {"prompt": "x"})], "done"], "fine": slow}, agents=[agent("fine")])
    task = await stage.start()
    tree = stage.workflow.tree
    async with asyncio.timeout(60):
        await began.wait()
        (child,) = (run_id for run_id in tree.live if run_id != stage.root_id)
        assert (tree.has_ended(child), tree.is_over(child)) == (False, False)
        assert (tree.has_ended("nobody"), tree.is_over("nobody")) == (False, True)
        gate.set()
        await task
    assert (tree.has_ended(child), tree.is_over(child)) == (True, True)
    assert (tree.has_ended(stage.root_id), tree.is_over(stage.root_id)) == (False, False)


async def test_a_merge_leaves_conflicts_out_only_where_that_is_asked_for(tmp_path: Path) -> None:
    merged: list[tuple[str, bool]] = []

    async def merge(ctx: ToolContext, child_id: str, rest: bool) -> ToolResult:
        merged.append((child_id, rest))
        return ToolResult(text="merged")

    made = merge_tool(merge, lambda arguments, files: "")
    files = Files(project=tmp_path, workspace=None)
    ctx: ToolContext[Any] = ToolContext(
        run_id="r",
        root_id="r",
        depth=0,
        agent="root",
        call_id="call",
        files=files,
        progress=lambda text: None,
        denied=lambda what, detail: None,
    )
    for arguments in ('{"child_id": "c"}', '{"child_id": "c", "rest": true}'):
        await made.call(made.parse(arguments), ctx)
    files.close()
    assert merged == [("c", False), ("c", True)]


def test_pauses_between_tries_double_up_to_the_longest() -> None:
    tries = Tries()
    pauses: list[float] = []
    while tries.pause < LONGEST_PAUSE:
        pauses.append(tries.pause)
        tries.failed("busy")
    assert pauses == [FIRST_PAUSE * 2**n for n in range(len(pauses))]
    assert len(pauses) > 2
    tries.count = 5000  # a server that has tried for years
    assert tries.pause == LONGEST_PAUSE


def test_the_same_reason_is_no_news_twice() -> None:
    tries = Tries()
    assert [tries.failed(why) for why in ("busy", "busy", "locked", "busy")] == [True, False, True, True]


KEPT_UP_TO_DATE = {"RunState", "Run", "Call", "Node", "LiveRun", "_Chain"}
"""What changes while a run goes on, each changed by one owner."""
BY_PLACE = {"Task", "PromptPart", "TextDelta", "ThinkingDelta"}
"""A task of a batch is what a model wrote; the others are of one or two fields, and many."""
KERNEL = [
    "loop",
    "toolcall",
    "tool_running",
    "fold",
    "budget",
    "approvals",
    "sources",
    "reports",
    "context",
    "run",
    "run_state",
    "standing",
    "story",
    "story_nodes",
]


WITHOUT_SLOTS = {"WorkflowConfig", "Replayed"}
"""These remember what they worked out."""
GIVEN_UNLESS_SAID = {
    ("Authority", "writable"): True,
    ("Authority", "project"): True,
    ("Policy", "enabled"): True,
    ("Policy", "agent_calls"): 24,
    ("Run", "corrections"): 2,
    ("FileState", "kept"): True,
    ("Source", "verified"): True,
    ("ResearchPlan", "round"): 1,
}


def handed_about() -> list[type[Any]]:
    """The classes of facts, as dataclasses and as structs, of the kernel and the engine."""
    names = [f"retinue.{name}" for name in KERNEL] + ["retinue.events"]
    for package in (retinue.engine, retinue.delegate, retinue.events, retinue.types):
        names += [one.name for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    return [
        found
        for name in names
        for found in vars(importlib.import_module(name)).values()
        if isinstance(found, type)
        and found.__module__ == name
        and (dataclasses.is_dataclass(found) or issubclass(found, msgspec.Struct))
    ]


def test_what_the_kernel_and_the_engine_hand_to_each_other_cannot_be_changed_and_is_named() -> None:
    changing: set[str] = set()
    by_place: set[str] = set()
    for found in handed_about():
        if dataclasses.is_dataclass(found):
            frozen = cast("Any", found).__dataclass_params__.frozen
            named = all(one.kw_only for one in dataclasses.fields(found))
        else:
            frozen = found.__struct_config__.frozen
            named = all(one.kind is one.KEYWORD_ONLY for one in inspect.signature(found).parameters.values())
        changing |= set() if frozen else {found.__name__}
        by_place |= set() if named else {found.__name__}
    assert changing == KEPT_UP_TO_DATE
    assert by_place == BY_PLACE


def test_nothing_is_written_beside_the_fields_that_there_are() -> None:
    made = [found for found in handed_about() if dataclasses.is_dataclass(found)]
    assert {found.__name__ for found in made if "__slots__" not in vars(found)} == WITHOUT_SLOTS


def test_a_fact_that_is_not_given_is_none_at_all() -> None:
    """So a field that is new says nothing of what was written before it."""
    given: dict[tuple[str, str], Any] = {}
    for found in handed_about():
        if dataclasses.is_dataclass(found):
            fields = [(one.name, one.default) for one in dataclasses.fields(found)]
        else:
            fields = [(one.name, one.default) for one in msgspec.structs.fields(found)]
        for name, default in fields:
            if isinstance(default, int | float) and default and not (name == "v" and default == 2):
                given[found.__name__, name] = default
    assert given == GIVEN_UNLESS_SAID


@pytest.mark.parametrize(
    ("tokens", "said"), [(10, "the price of cast"), (0, "did not say what its answer used")]
)
async def test_a_limit_on_money_ends_a_run_whose_model_has_no_known_price(tokens: int, said: str) -> None:
    unpriced = reply(calls=[("fine", {"prompt": "x"})], input_tokens=tokens, output_tokens=0, cost=None)
    stage = Stage(
        {"root": [unpriced, "done"], "fine": ["fine"]}, agents=[agent("fine")], limits__max_cost=1.0
    )
    report = await stage.run()
    assert report.outcome == "incomplete"
    assert said in (report.incomplete or "")
    assert len(stage.model.of("fine")) == 0


def test_what_a_rule_asks_about_is_never_said_to_be_allowed_by_another_rule() -> None:
    asked = Asked(
        tool="fetch", effect="network", risk="medium", agent="a", arguments={"url": "https://a.test"}
    )
    concern = Concern(why="private data could reach a.test", about=("a.test",), rule="fetch(a.test)")
    by_rule = nobody_to_ask(Verdict(action="ask", why="the rule fetch", by_rule=True), asked, concern)
    assert "take that rule out of ask" in by_rule
    assert "fetch(a.test)" not in by_rule
    allowed = nobody_to_ask(Verdict(action="allow", why="it is allowed"), asked, concern)
    assert 'add "fetch(a.test)" to allow' in allowed


class Meanwhile(MemoryStore):
    """A log to which something is written in the moment in which somebody begins to read it."""

    def __init__(self, listeners: Listeners) -> None:
        super().__init__()
        self.listeners, self.late = listeners, list[AnyEvent]()

    async def write(self, event: AnyEvent) -> None:
        await self.append([event])
        self.listeners.publish(event)

    async def events(
        self, root_id: str, *, after: int = 0, run_id: str | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        while self.late:
            await self.write(self.late.pop(0))
        return await super().events(root_id, after=after, run_id=run_id, limit=limit)


async def test_what_is_in_the_log_and_heard_as_well_is_told_once() -> None:
    listeners = Listeners()
    store = Meanwhile(listeners)
    spec = AgentSpec(name="a", description="", prompt="")
    steps = [StepStarted(**PLACE, seq=n + 1, at=n, step=n, model="m") for n in (1, 2, 3)]
    await store.append([RunStarted(**PLACE, seq=1, at=0, spec=spec, prompt="go")])
    store.late += steps[:2]
    working: asyncio.Task[Any] = asyncio.create_task(asyncio.Event().wait())
    told = watch(store, listeners, "r", lambda: working, 0)
    async with asyncio.timeout(30):
        seen = [await anext(told) for _ in range(3)]
        await store.write(steps[2])
        seen.append(await anext(told))
    assert [event.pos for event in seen if isinstance(event, Event)] == [1, 2, 3, 4]
    await told.aclose()
    working.cancel()


def test_a_mode_that_was_not_looked_at_is_not_said_to_have_changed() -> None:
    def told(before: int | None, after: int | None) -> str:
        states = [
            FileState(kind="file", mode=mode, size=1, sha256=f"{n}") for n, mode in enumerate((before, after))
        ]
        return _one_diff("a", *states, content=lambda sha256: b"0\n" if sha256 == "0" else b"1\n", why=None)

    assert told(0o644, 0o755).startswith("a: mode 644 becomes 755\n")
    for before, after in ((None, 0o755), (0o644, None), (0o644, 0o644), (None, None)):
        assert "mode" not in told(before, after), (before, after)


def test_an_answer_is_addressed_to_the_run_whose_call_waits() -> None:
    sent = signal_of("root", "child:call-1", Answer(decision="approve"))
    assert (sent.root_id, sent.run_id, sent.key) == ("root", "child", "child:call-1")


def test_what_a_log_without_owners_names_is_left_behind_unless_its_process_may_be_at_work() -> None:
    here, ended = socket.gethostname(), subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for host, pid, left in (
        ("", 1, True),  # it says nothing
        (here, 0, True),
        (here, os.getpid(), True),  # this one would have written its owner
        (here, ended.pid, True),
        (here, os.getppid(), False),
        ("elsewhere", ended.pid, False),
    ):
        assert is_left_by_process(host, pid, time.time()) == left, (host, pid)


async def test_a_fork_has_the_sheets_that_had_come_until_then() -> None:
    store = MemoryStore()
    for at, path in ((9.0, "workbooks"), (4.0, "workbooks/a"), (5.0, "workbooks/b"), (6.0, "workbooks/c")):
        book = Workbook(name=f"{path}.csv", sheets=())
        data = msgspec.json.encode([book])
        await store.keep(KeptFile(root_id="r", run_id=ATTACHED, path=path, seq=0, at=at, data=data))
    found = await kept_workbooks(store, "r", until=5.0)
    assert {book.name for book in found} == {"workbooks.csv", "workbooks/a.csv", "workbooks/b.csv"}
    assert len(await kept_workbooks(store, "r")) == 4


async def test_of_runs_whose_calls_have_all_asked_no_line_is_kept() -> None:
    order, run = AskingOrder(), cast("Any", types.SimpleNamespace(id="r"))
    with order.in_line(run, "a"), order.in_line(run, "b"):
        order.leave(run, "a")
        await order.turn(run, "b")
        assert list(order._lines) == ["r"]
    assert not order._lines


async def test_who_leaves_a_run_has_left_when_it_is_said_so(tmp_path: Path) -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Takes a while to stop."""
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            over.set()
        return ""

    stage = Stage({"root": [[("slow", {})], "done"]}, tools=[slow])
    task = await stage.start()
    await asked.wait()
    await stage.workflow.leave()
    assert (over.is_set(), task.done()) == (True, True)


async def test_sheets_of_a_message_are_kept_if_and_only_if_it_is_written() -> None:
    store, book = MemoryStore(), Workbook(name="a.csv", sheets=())

    async def fails() -> None:
        async with kept_with_message(store, "r", [book]):
            assert await kept_workbooks(store, "r") == [book]
            raise RunError("it was not written")

    with pytest.raises(RunError):
        await fails()
    assert await kept_workbooks(store, "r") == []
    async with kept_with_message(store, "r", [book]):
        pass
    assert await kept_workbooks(store, "r") == [book]


@pytest.mark.parametrize("events", [1, 2])
def test_no_workflow_is_forked_at_an_event_that_it_does_not_have(events: int) -> None:
    spec = AgentSpec(name="a", description="", prompt="")
    log: list[AnyEvent] = [RunStarted(**PLACE, seq=1, at=0, pos=1, spec=spec, prompt="go")]
    log += [StepStarted(**PLACE, seq=2, at=1, pos=2, step=1, model="m")][: events - 1]
    assert beginning(log, events, goes_on=False) == log
    with pytest.raises(ConfigError, match="no event 5"):
        beginning(log, 5, goes_on=False)


class Stay(TypedDict):
    nights: Annotated[int, Field(gt=0)]
    guests: list[str]


def test_a_type_says_of_each_part_what_it_has_against_it() -> None:
    assert type_problems({"nights": 1, "guests": ["Ada"]}, Stay) == []
    said = type_problems({"nights": 0, "guests": ["Ada", 1]}, Stay)
    assert [problem.partition(": ")[0] for problem in said] == ["nights", "guests.1"]
    (whole,) = type_problems("a week", Stay)
    assert whole.startswith("the whole: ")
