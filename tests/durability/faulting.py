"""Workflows whose database fails at one chosen write, or whose memory is short at one chosen moment.

All in one process. A trial arms one `Fault`, runs a workflow, takes it up again in a new `Retinue` if it was
stopped, and looks whether everything is there, once. `plan` says which trials there are: all of them for
`scripts/all_faults.py`, every so manieth for the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import killing

import retinue.run_log
import retinue.store.postgres
import retinue.store.sqlite
from faults import Faults, Wire, sqlite_error
from pg import server
from retinue.app import Retinue
from retinue.errors import RunError, StoreError
from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    ChildEnded,
    ChildStarted,
    MessageReceived,
    ModelReplied,
    RunFinished,
    ToolReturned,
    now,
)
from retinue.store import outage, rows
from retinue.store.base import Signal, Store
from retinue.store.connect import connect
from retinue.store.postgres import PostgresStore
from retinue.store.sqlite import SqliteStore
from retinue.testing.script import Script, call
from retinue.testing.scripted import ScriptedModel, Step
from retinue.toolcall import UNKNOWN
from retinue.types import AgentSpec, AssistantMessage, ModelRequest, ToolMessage, UserMessage

ROOT = "r0fault"
EVENT = b'"type":"'
"""What is in every event as it is sent to PostgreSQL, and in nothing else."""
SECONDS = 60.0
"""So long a trial may take: one that takes longer hangs."""
AWAY_SECONDS = 3.0
"""So long a database is away at most, where no run finds out: all of them may wait for a person."""
SCENARIOS = (*killing.SCENARIOS, "follow-up", "spawn", "delegate", "subagent")
WRITES = ("refused once", "answer lost once", "refused until stopped", "answer lost, then refused")
"""What happens to a write: it fails; it is stored, but that is not heard of. Once, or from then on."""
MEMORY = ("stamp", "encode", "append", "read", "decode")
"""Where memory is short, once."""


@dataclass
class Fault:
    """What goes wrong, and at which moment of its kind; `seen` says how many there were of every kind."""

    kind: str = ""
    at: int = 0
    lasting: bool = False
    seen: Counter[str] = field(default_factory=Counter[str])
    struck: bool = False
    lifted: bool = False

    @property
    def lasts(self) -> bool:
        """Whether nothing works since it struck."""
        return self.struck and self.lasting and not self.lifted

    def now(self, kind: str) -> bool:
        """Called at every moment of a kind: whether it goes wrong now."""
        if self.lifted:
            return False
        self.seen[kind] += 1
        if kind != self.kind:
            return False
        if self.seen[kind] == self.at:
            self.struck = True
            return True
        return self.lasts


def fault_of(how: str, at: int) -> Fault:
    if how in MEMORY:
        return Fault(kind=how, at=at)
    return Fault(
        kind="lost" if how.startswith("answer") else "write", at=at, lasting=not how.endswith("once")
    )


# -- databases that fail


class Database:
    """One database for many trials, each with a store of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.fault = Fault()
        self._wire: Wire | None = None

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    @contextlib.asynccontextmanager
    async def failing(self, fault: Fault) -> AsyncIterator[Store]:
        """A store that fails as told; not opened yet."""
        if self.is_sqlite:
            faults = Faults(
                before=lambda _, sql: self._before(fault, sql), after=lambda _, sql: self._after(fault, sql)
            )
            path = self.url.removeprefix("sqlite://")
            yield SqliteStore(path, busy_seconds=0.1, hold=0.1, factory=faults.factory)
            return
        wire = Wire(self.url, server().port)
        wire.sent = lambda data: self._sent(wire, fault, data)
        back = asyncio.create_task(bring_back(wire, fault))
        try:
            yield PostgresStore(await wire.start(), patience=0.1, hold=0.1)
        finally:
            back.cancel()
            await wire.stop()

    def _before(self, fault: Fault, sql: str) -> None:
        if sql == "COMMIT" and fault.now("write"):
            raise sqlite_error("SQLITE_IOERR_WRITE")
        if sql == "BEGIN IMMEDIATE" and fault.kind == "lost" and fault.lasts:
            raise sqlite_error("SQLITE_IOERR_WRITE")
        if sql.startswith("SELECT") and fault.now("read"):
            raise MemoryError

    def _after(self, fault: Fault, sql: str) -> None:
        if sql == "COMMIT" and fault.now("lost"):
            raise sqlite_error("SQLITE_IOERR_FSYNC")

    def _sent(self, wire: Wire, fault: Fault, data: bytes) -> bool:
        """Told of all that is sent to PostgreSQL; True cuts the connection."""
        if fault.kind == "lost" and fault.lasts and wire.lost:
            wire.take_away()
            return True
        if EVENT not in data:
            return False
        if fault.now("write"):
            if fault.lasting:
                wire.take_away()
            return True
        if fault.now("lost"):
            wire.lose_answer_to = EVENT
        return False


async def bring_back(wire: Wire, fault: Fault) -> None:
    while not fault.lasts:
        await asyncio.sleep(0.05)
    await asyncio.sleep(AWAY_SECONDS)
    fault.lifted = True
    wire.bring_back()


@contextlib.contextmanager
def short_of_memory(fault: Fault, failing_store: Store) -> Iterator[None]:
    """Memory is short where the fault says so: while an event is encoded, put in line or read."""

    def failing(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def function(*arguments: Any) -> Any:
            if fault.now(kind):
                raise MemoryError
            return real(*arguments)

        return function

    def appending(real: type[Any]) -> type[Any]:  # others look at the class: only making one fails
        return type("Append", (real,), {"__init__": failing("append", real.__init__), "__slots__": ()})

    def reading(real: Callable[..., Any]) -> Callable[..., Any]:
        def use(store: Any, do: Callable[[Any], Any]) -> Any:  # the person looks as often as there is time
            return real(store, failing("read", do) if store is failing_store else do)

        return use

    patches: list[tuple[Any, str, Any]] = [
        (retinue.run_log, "encode", failing("stamp", retinue.run_log.encode)),
        (rows, "encode", failing("encode", rows.encode)),
        (rows, "decode", failing("decode", rows.decode)),
        (retinue.store.sqlite, "SqliteAppend", appending(retinue.store.sqlite.SqliteAppend)),
        (retinue.store.postgres, "PostgresAppend", appending(retinue.store.postgres.PostgresAppend)),
        (PostgresStore, "_use", reading(PostgresStore._use)),
    ]
    real = [(where, name, getattr(where, name)) for where, name, _ in patches]
    for where, name, function in patches:
        setattr(where, name, function)
    try:
        yield
    finally:
        for where, name, function in real:
            setattr(where, name, function)


# -- what is run


def play(request: ModelRequest) -> Step:
    script = _script(request)
    return Step(text=script.text, calls=script.calls)


def _script(request: ModelRequest) -> Script:
    me = request.system.split("\n", 1)[0]
    task = next(m.text for m in request.messages if isinstance(m, UserMessage))
    turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
    seen = [m.text for m in request.messages if isinstance(m, ToolMessage)]
    if me == "PLAY root" and task in _MORE:
        plan = _MORE[task]
        if turn < len(plan):
            return plan[turn]
        return Script(text=f"{task} finished")
    if not me.startswith("PLAY"):  # one that a model made up
        return Script(calls=(call("look", what=task),)) if turn == 0 else Script(text=f"made up: {seen[0]}")
    return killing.answer(request)  # pyright: ignore[reportArgumentType] # it looks at what both have


_MORE: dict[str, list[Script]] = {
    "follow-up": [
        Script(calls=(call("look", what="one"),)),
        Script(text="the first answer"),
        Script(calls=(call("mark", what="two"), call("leaf", prompt="more"))),
    ],
    "spawn": [
        Script(calls=(call("spawn_agent", name="helper", prompt="h", system_prompt="HELP", tools=["look"]),))
    ],
    "delegate": [Script(calls=(call("delegate_task", agent_id="leaf", prompt="d"),))],
    "subagent": [Script(calls=(call("subagent", label="sub", task_prompt="s", allowed_tools=["look"]),))],
}


def root_of(scenario: str) -> AgentSpec:
    return killing.root_of(scenario)


def key(request: ModelRequest) -> tuple[str, str, int]:
    """One paid call: which agent, on which task, at which turn."""
    agent = request.system.split("\n", 1)[0]
    task = next(m.text for m in request.messages if isinstance(m, UserMessage))
    return agent, task, sum(isinstance(m, AssistantMessage) for m in request.messages)


@dataclass
class Trial:
    """One workflow with one fault."""

    scenario: str
    fault: Fault
    database: Database
    folder: Path
    model: ScriptedModel = field(default_factory=lambda: ScriptedModel(play))
    stopped_by: BaseException | None = None

    def retinue(self, store: Store) -> Retinue:
        asks = self.scenario == "approvals"
        return Retinue(
            db=store,
            model=self.model,
            cwd=self.folder,
            agents=killing.AGENTS,
            tools=killing.tools(self.folder),
            answering="ask" if asks else "refuse",
            yes=not asks,
            environ={"HOME": str(self.folder), "PATH": os.environ["PATH"]},
            settings={
                "delegation.tools": [
                    "agents",
                    "parallel_tasks",
                    "background",
                    "spawn_agent",
                    "delegate_task",
                    "subagent",
                ],
                "delegation.policy": "nested",
                "delegation.parent_ends": "wait",
            },
        )

    async def run(self) -> None:
        """Run with the fault, and once more without if that was the end of it."""
        sound = connect(self.database.url)
        await sound.open()
        await sound.delete(ROOT)
        stop = asyncio.Event()
        person = asyncio.create_task(answer_all(sound, stop))
        try:
            async with asyncio.timeout(SECONDS):
                await self._with_fault()
                before = await sound.events(ROOT)
                paid = Counter(key(request) for request in self.model.requests)
                self.model.requests.clear()
                async with self.retinue(connect(self.database.url)) as app:
                    await self._to_the_end(app)
                again = Counter(key(request) for request in self.model.requests)
            check(self, before, await sound.events(ROOT), paid, again)
        finally:
            stop.set()
            await person
            await sound.close()

    async def _with_fault(self) -> None:
        async with self.database.failing(self.fault) as store:
            with short_of_memory(self.fault, store):
                try:
                    async with self.retinue(store) as app:
                        await self._to_the_end(app)
                except (StoreError, RunError) as error:
                    self.stopped_by = error
            self.fault.lifted = True

    async def _to_the_end(self, app: Retinue) -> None:
        """What a person does: begin or take up, wait, look at the log, say what is still to be said."""
        row = await app.store.run(ROOT)
        if row is None:
            await app.start(root_of(self.scenario), self.scenario, run_id=ROOT)
        elif row.status != "completed":
            await app.resume(ROOT)
        if row is None or row.status != "completed":
            report = await app.wait(ROOT)
            if report.status != "completed":
                raise RunError(f"it ended as {report.status}: {report.error}")
        # Read whatever the scenario: a run itself may end before it has read a single event of its log.
        said = [e for e in await app.store.events(ROOT) if isinstance(e, MessageReceived) and not e.about]
        if self.scenario == "follow-up" and not said:
            await app.resume(ROOT, message="and now the rest")
            report = await app.wait(ROOT)
            if report.status != "completed":
                raise RunError(f"it ended as {report.status}: {report.error}")


async def answer_all(store: Store, stop: asyncio.Event) -> None:
    """A person who approves whatever waits."""
    while not stop.is_set():
        asked_for: list[ApprovalRequested] = []
        with contextlib.suppress(StoreError):  # in the same process, short of memory too: looks again
            asked_for = await store.waiting(ROOT)
        for asked in asked_for:
            body = json.dumps({"decision": "approve"})
            signal = Signal(
                root_id=ROOT, run_id=asked.run_id, kind="answer", key=asked.approval_id, body=body, at=now()
            )
            with contextlib.suppress(StoreError):
                await store.send(signal)
        await asyncio.sleep(0.005)


# -- what must be true afterwards


def check(
    trial: Trial,
    before: Sequence[AnyEvent],
    events: Sequence[AnyEvent],
    paid: Counter[tuple[str, str, int]],
    again: Counter[tuple[str, str, int]],
) -> None:
    scenario = trial.scenario
    ends = [e for e in events if isinstance(e, RunFinished) and e.run_id == ROOT]
    assert ends, "it did not end"
    assert (ends[-1].report.status, ends[-1].report.text) == ("completed", f"{scenario} finished")
    assert [e.pos for e in events] == list(range(1, len(events) + 1))
    for run_id in {e.run_id for e in events}:
        seqs = [e.seq for e in events if e.run_id == run_id]
        assert seqs == list(range(1, len(seqs) + 1)), f"the log of {run_id} has a gap"
    replies = Counter((e.run_id, e.step) for e in events if isinstance(e, ModelReplied))
    assert set(replies.values()) == {1}, "a reply is in the log twice"
    logged = sum(isinstance(e, ModelReplied) for e in before)
    assert all(count == 1 for count in (paid + Counter()).values()), f"paid twice at once: {paid}"
    assert all(count == 1 for count in again.values()), f"paid twice afterwards: {again}"
    twice = sum((paid & again).values())
    assert twice <= sum(paid.values()) - logged, f"what was in the log was paid again: {paid & again}"
    if trial.stopped_by is None:
        assert not again, "it had come to its end"
    marks = (trial.folder / "marks").read_text().split() if (trial.folder / "marks").exists() else []
    assert len(marks) == len(set(marks)), "something that must not happen twice did"
    wanted = {"sequential": {"two"}, "code": {"two"}, "approvals": {"p", "q"}, "follow-up": {"two"}}.get(
        scenario, set[str]()
    )
    unknown = [e for e in events if isinstance(e, ToolReturned) and e.text == UNKNOWN]
    assert set(marks) <= wanted
    assert len(wanted - set(marks)) <= len(unknown), "a mark is missing and nobody was told"
    started = Counter(e.child_id for e in events if isinstance(e, ChildStarted))
    ended = Counter(e.child_id for e in events if isinstance(e, ChildEnded))
    assert started == ended, "every child was started once, and its parent was told of its end once"
    asked = Counter(e.approval_id for e in events if isinstance(e, ApprovalRequested))
    assert all(count == 1 for count in asked.values()), "a person was asked twice"
    failed = [e.text for e in events if isinstance(e, ToolReturned) and e.is_error and UNKNOWN not in e.text]
    assert not failed, f"a fault of the database was told to a model: {failed}"


# -- the plan


async def moments(database: Database, folder: Path, scenario: str) -> Counter[str]:
    """How many moments there are for each kind of fault, from a run that none befalls."""
    folder.mkdir(parents=True)
    trial = Trial(scenario=scenario, fault=Fault(), database=database, folder=folder)
    await trial.run()
    assert trial.stopped_by is None
    return trial.fault.seen


def quick() -> Callable[[], None]:
    """Outages are noticed soon and waited for briefly. Returns how to have them as they were."""
    names = {"_NOTICE_SECONDS": 0.05, "_FIRST_PAUSE": 0.005, "_LONGEST_PAUSE": 0.05, "CLOSING_SECONDS": 0.3}
    real = {name: getattr(outage, name) for name in names}
    for name, value in names.items():
        setattr(outage, name, value)

    def restore() -> None:
        for name, value in real.items():
            setattr(outage, name, value)

    return restore


@dataclass
class Figures:
    """What came of it."""

    trials: int = 0
    stopped: int = 0
    struck: int = 0
    failures: list[str] = field(default_factory=list[str])

    def add(self, other: Figures) -> None:
        self.trials += other.trials
        self.stopped += other.stopped
        self.struck += other.struck
        self.failures += other.failures

    def __str__(self) -> str:
        return (
            f"{self.trials} trials, {self.struck} faults struck, {self.stopped} stopped and resumed, "
            f"{len(self.failures)} failed"
        )


async def all_of(
    database: Database, folder: Path, scenario: str, how: str, at: Iterable[int], figures: Figures
) -> None:
    """The trials of one scenario and one kind of fault, at these moments."""
    for moment in at:
        place = folder / f"{how} {moment}"
        place.mkdir(parents=True)
        trial = Trial(scenario=scenario, fault=fault_of(how, moment), database=database, folder=place)
        try:
            await trial.run()
        except Exception as error:  # whatever it is, it is counted and told
            why = f"{type(error).__name__}: {error} (stopped by {trial.stopped_by!r})"
            figures.failures.append(f"{scenario}, {how} at {moment}: {why}")
        figures.trials += 1
        figures.stopped += trial.stopped_by is not None
        figures.struck += trial.fault.struck
