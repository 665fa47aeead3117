"""The sandbox by setting: the whole of Python, in a process of its own that is locked by the kernel.

Each session has its own process, which is started ahead of time and never used again. It has no files, no
network, no environment and no other processes (`seal`); host functions are called over its pipes (`child`).
What comes out of it is checked here as hostile: lengths, types, names of functions, amounts of output.

Where the variables are lost with the process (a limit, a resume) they are made again by running the earlier
snippets once more with the results that their calls had. No host function is called a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from retinue.course import CLOCK, Course, Telling
from retinue.errors import ToolError
from retinue.sandbox import seal
from retinue.sandbox.base import (
    FLOOD,
    GONE,
    MAX_CODE,
    MAX_ERROR,
    WORDED,
    CallResult,
    HostFunction,
    Printed,
    SandboxLimits,
    SnippetOutcome,
    Unawaited,
    short_trace,
)

_CHILD = Path(__file__).with_name("child.py")
_MAX_MESSAGE = 8_000_000
# Of one snippet. Code can write what it likes to its pipe, so each amount needs an end of its own.
_MAX_MESSAGES = 50_000
_MAX_CALLS = 10_000
_MAX_SENT = 64_000_000
_TICK = 0.25
MAX_UNAWAITED = 100


def why_not() -> str | None:
    """Why this engine cannot be used on this machine, or None."""
    return seal.missing()


class HostAnswer(Struct, frozen=True, kw_only=True):
    """What a host function gave: a value, or an error of some `kind`."""

    name: str
    value: Any = None
    kind: str = ""
    message: str = ""
    fields: dict[str, Any] | None = None
    outside: bool = False
    took: float = 0.0


class Snippet(Struct, frozen=True, kw_only=True):
    """A finished snippet and all it learned from the host: enough to come to the same variables again."""

    code: str
    answers: tuple[HostAnswer, ...] = ()
    """In the order of the calls."""
    told: tuple[int, ...] = ()
    """In which order it had them, and when its clock woke it."""
    at: float = 0.0
    seed: str = ""


class ChildMessage(Struct, kw_only=True):
    """A message of the child. Every field is what hostile code may have put there."""

    op: str
    id: int = 0
    name: Annotated[str, Meta(max_length=256)] = ""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    text: str = ""
    value: str | None = None
    error: str | None = None
    trace: str = ""
    memory: bool = False
    outside: bool = False
    timer: Annotated[float, Meta(ge=0)] | None = None
    unparsed: bool = False
    unawaited: Annotated[list[Unawaited], Meta(max_length=MAX_UNAWAITED)] = []


class Stopped(Exception):
    """The process is gone or must go."""


class Process:
    """One sealed interpreter."""

    def __init__(
        self, child: subprocess.Popen[bytes], reader: asyncio.StreamReader, pipes: list[asyncio.BaseTransport]
    ) -> None:
        self._child, self._out, self._pipes = child, reader, pipes
        # A handle never names another process, and becomes readable when its own has ended.
        self._handle = os.pidfd_open(child.pid)
        self.used = 0
        self.sent = 0

    @classmethod
    async def start(cls) -> Process:
        """Start an interpreter and wait until it has loaded its library."""
        child = _spawn()
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        out, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), child.stdout)
        into, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, child.stdin)
        started = cls(child, reader, [into, out])
        try:
            await started.read()
        except BaseException:
            await asyncio.shield(started.end())
            raise
        return started

    def send(self, message: Mapping[str, Any]) -> None:
        """Never waits: a child that does not read must not hold up its host."""
        data = msgspec.json.encode(message)
        pipe = cast("asyncio.WriteTransport", self._pipes[0])
        if not pipe.is_closing():
            pipe.write(len(data).to_bytes(4, "big") + data)

    async def read(self) -> ChildMessage:
        try:
            size = int.from_bytes(await self._out.readexactly(4), "big")
            if size > _MAX_MESSAGE:
                raise Stopped(f"the code sent {size:,} bytes at once, at most {_MAX_MESSAGE:,} are taken")
            self.sent += size
            return msgspec.json.decode(await self._out.readexactly(size), type=ChildMessage)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Stopped(
                "the sandbox's process ended; the code may have crashed or used up its stack"
            ) from None
        except (msgspec.DecodeError, RecursionError):
            raise Stopped("the code sent something that is not a message") from None

    def cpu_seconds(self) -> float:
        try:
            fields = Path(f"/proc/{self._child.pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        for pipe in self._pipes:
            pipe.close()
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._handle)
            os.close(self._handle)
            self._child.wait()


def _spawn() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (sys.executable, "-s", "-P", "-S", "-B", "-X", "utf8", str(_CHILD)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONHASHSEED": "0"},  # code that goes through a set does so in the same order each time
        cwd="/",
        start_new_session=True,
        bufsize=0,
    )


class CPythonEngine:
    """Keeps one process ready for the next session."""

    name = "cpython"

    def __init__(self) -> None:
        self._next: asyncio.Task[Process] | None = None
        self._alive: set[Process] = set()
        self._closed = False

    def session(self, limits: SandboxLimits) -> CPythonSandbox:
        self.prepare()
        return CPythonSandbox(self, limits)

    async def warm(self) -> None:
        await asyncio.shield(self.prepare())

    def prepare(self) -> asyncio.Task[Process]:
        """Have a process on its way for whoever comes next."""
        if self._next is None:
            self._next = asyncio.create_task(Process.start())
        return self._next

    def restock(self) -> None:
        """After a snippet and not before it: starting a process takes a few milliseconds of this thread."""
        if not self._closed:
            self.prepare()

    async def process(self, limits: SandboxLimits) -> Process:
        waiting, self._next = self.prepare(), None
        process = await waiting
        self._alive.add(process)
        process.send({"memory": limits.memory, "cpu_seconds": max(60, int(limits.seconds * 20))})
        return process

    async def end(self, process: Process) -> None:
        self._alive.discard(process)
        await process.end()

    async def close(self) -> None:
        self._closed = True
        if self._next is not None:
            waiting, self._next = self._next, None
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, Stopped, OSError):
                await (await waiting).end()
        for process in list(self._alive):
            await self.end(process)


class CPythonSandbox:
    """One run's session. Snippets of one session run one after the other."""

    def __init__(self, engine: CPythonEngine, limits: SandboxLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._past: list[Snippet] = []
        self._broken = False
        self._process: Process | None = None
        self._busy = asyncio.Lock()

    async def dump(self) -> bytes:
        async with self._busy:
            return msgspec.json.encode(self._past) if self._past else b""

    async def load(self, state: bytes) -> None:
        async with self._busy:
            try:
                self._past = msgspec.json.decode(state, type=list[Snippet]) if state else []
            except msgspec.DecodeError:
                self._broken = True

    async def close(self) -> None:
        async with self._busy:
            await self._end()

    async def run(
        self,
        code: str,
        *,
        functions: Mapping[str, HostFunction],
        at: float = 0.0,
        seed: str = "",
        course: Telling | None = None,
    ) -> SnippetOutcome:
        if len(code) > MAX_CODE:
            return SnippetOutcome(
                error=f"the code has {len(code)} characters, at most {MAX_CODE} are allowed"
            )
        async with self._busy:
            exchange = Exchange(self._limits, functions, course=course)
            snippet = Snippet(code=code, at=at, seed=seed)
            whole = False
            try:
                process = await self._ready()
                outcome = await exchange.run(process, snippet)
                whole = not outcome.lost
                if whole:
                    self._past.append(replace(snippet, answers=exchange.heard, told=tuple(exchange.told)))
                return outcome
            except Stopped as stopped:
                return exchange.outcome(error=str(stopped), lost=True)
            finally:
                if not whole:
                    await asyncio.shield(self._end())
                self._engine.restock()

    async def _ready(self) -> Process:
        if self._broken:
            self._broken = False
            raise Stopped(GONE)
        if self._process is None:
            self._process = await self._engine.process(self._limits)
            for snippet in self._past:
                known = Course.told(snippet.told, len(snippet.answers))
                course = Telling(known, known.wake, played=True)
                again = Exchange(self._limits, {}, replay=snippet.answers, course=course)
                outcome = await again.run(self._process, snippet)
                if outcome.lost or len(again.answers) != len(snippet.answers):
                    self._past = []
                    raise Stopped(GONE)
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await self._engine.end(process)


@dataclass(slots=True)
class Exchange:
    """One snippet: what the child says, what it is answered, and how long it may take."""

    limits: SandboxLimits
    functions: Mapping[str, HostFunction]
    replay: tuple[HostAnswer, ...] | None = None
    course: Telling | None = None
    printed: Printed = field(init=False)
    answers: dict[int, HostAnswer] = field(default_factory=dict[int, HostAnswer])
    told: list[int] = field(default_factory=list[int])
    """The numbers of what it was told, as long as it ran, and `CLOCK`."""
    calls: int = 0
    outside: bool = False
    _heard: int = 0
    _telling: Telling = field(init=False)
    _pending: dict[int, tuple[int, asyncio.Task[HostAnswer]]] = field(default_factory=dict[int, Any])
    """By their numbers, in the order of the calls, with what the child calls them."""
    _unknown: list[tuple[int, HostAnswer]] = field(default_factory=list[Any])
    """Calls of what is not there."""
    _waits: float | None = None
    """Since when the child waits for what it is told next."""
    _timer: float | None = None
    """After how many seconds of that a timer of the code is due."""
    _fresh: bool = False
    """Nobody has looked since whether there is something to tell it."""
    _busy: float = 0.0
    _began: float = field(default_factory=time.monotonic)
    _seen: float = field(default_factory=time.monotonic)
    _measured: float = 0.0

    def __post_init__(self) -> None:
        self.printed = Printed(self.limits.output)
        own = Course()
        self._telling = self.course or Telling(own, own.wake)

    @property
    def heard(self) -> tuple[HostAnswer, ...]:
        return tuple(answer for _, answer in sorted(self.answers.items()))

    async def run(self, process: Process, snippet: Snippet) -> SnippetOutcome:
        process.used += 1
        names = sorted(self._names())
        told = {"file": f"<snippet-{process.used}>", "names": names, "output": self.limits.output}
        given = {"at": snippet.at, "seed": snippet.seed}
        process.send({"op": "run", "code": snippet.code, **told, **given})
        process.sent = 0
        reading = asyncio.create_task(process.read())
        cpu = process.cpu_seconds()
        self._seen = time.monotonic()
        try:
            while True:
                await self._wait(process, reading, cpu)
                self._go_on(process)
                if reading.done():
                    said = reading.result()
                    if said.op == "done":
                        await self._finish(process)
                        return self._done(said)
                    self._hear(process, said)
                    reading = asyncio.create_task(process.read())
        finally:
            reading.cancel()
            calls = [task for _, task in self._pending.values()]
            for task in calls:
                task.cancel()
            await asyncio.gather(reading, *calls, return_exceptions=True)

    def _names(self) -> set[str]:
        """The functions there are; when a snippet is run again, those that it called."""
        return set(self.functions) if self.replay is None else {each.name for each in self.replay}

    async def _wait(self, process: Process, reading: asyncio.Task[ChildMessage], cpu: float) -> None:
        """Until something happens. Time counts only while the child has nothing to wait for but itself."""
        limit = self.limits.seconds
        waits = self._waits is not None
        open_calls = [task for _, task in self._pending.values() if not task.done()] if waits else []
        free = bool(open_calls)
        left = _TICK if free else max(0.0, limit - self._busy)
        if self._waits is not None and self._timer is not None:
            left = min(left, max(0.0, self._waits + self._timer - time.monotonic()))
        if self._fresh:  # a turn of the loop: a call that could not be made at all has its answer by then
            left, self._fresh = 0.0, False
        waiting: set[asyncio.Future[Any]] = {reading, *open_calls}
        await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        now = time.monotonic()
        if not free:
            self._busy += now - self._seen
        self._seen = now
        # Asked on every turn: code that keeps its host busy with messages has computed no less.
        said_all = reading.done() and reading.exception() is None and reading.result().op == "done"
        if not said_all and (self._busy >= limit or self._computed(process, now) - cpu > limit + _TICK):
            raise Stopped(f"TimeoutError: the code computed for more than {limit:g} s; do less at a time")

    def _computed(self, process: Process, now: float) -> float:
        """Seconds of processor the child has used, looked up a few times per second and not per message."""
        if now - self._measured < _TICK:
            return 0.0
        self._measured = now
        return process.cpu_seconds()

    def _hear(self, process: Process, said: ChildMessage) -> None:
        self._heard += 1
        if self._heard > _MAX_MESSAGES or process.sent > _MAX_SENT:
            raise Stopped(
                f"the code sent {self._heard:,} messages of {process.sent:,} bytes; one snippet may send "
                f"{_MAX_MESSAGES:,} of {_MAX_SENT:,} bytes, so do less at a time"
            )
        if said.op == "print":
            self.printed.add(said.text)
            if self.printed.flooded:
                raise Stopped(f"the code printed more than {FLOOD} characters and was stopped; print less")
        elif said.op == "call":
            self._heard_call(said)
        elif said.op == "wait" and self._waits is None:
            self._waits, self._timer, self._fresh = time.monotonic(), said.timer, True
        else:
            raise Stopped("the code sent something that is not a message")

    def _heard_call(self, said: ChildMessage) -> None:
        if self.calls >= _MAX_CALLS:
            raise Stopped(f"the code made more than {_MAX_CALLS:,} calls in one snippet; do less at a time")
        if said.name not in self._names():
            message = f"name {said.name!r} is not defined"
            self._unknown.append((said.id, HostAnswer(name=said.name, kind="NameError", message=message)))
            return
        task = asyncio.create_task(self._call(said, self.calls))
        self.calls += 1
        self._pending[self.calls] = (said.id, task)
        if self.course is None:
            number = self.calls
            task.add_done_callback(lambda _: self._telling.course.answer(number, 0.0))

    async def _call(self, said: ChildMessage, number: int) -> HostAnswer:
        if self.replay is not None:
            if number >= len(self.replay) or self.replay[number].name != said.name:
                raise Stopped(GONE)
            return self.replay[number]
        try:
            awaitable = self.functions[said.name](*said.args, **said.kwargs)
        except TypeError as error:
            return HostAnswer(name=said.name, kind="TypeError", message=str(error))
        try:
            value = await awaitable
        except ToolError as error:
            return HostAnswer(name=said.name, kind="RuntimeError", message=str(error))
        if not isinstance(value, CallResult):
            return HostAnswer(name=said.name, value=value)
        said_so: dict[str, Any] = (
            {"kind": "RuntimeError", "message": value.text} if value.failed else {"value": value.text}
        )
        given: dict[str, Any] = {"fields": dict(value.fields), "outside": value.outside, "took": value.took}
        return HostAnswer(name=said.name, **given, **said_so)

    def _go_on(self, process: Process) -> None:
        """Tell a child that waits the next thing, if there is one: one, in the order of its course."""
        if self._waits is None:
            return
        if self._unknown:  # what is not there is so again when the snippet is run again
            self._send(process, *self._unknown.pop(0))
        elif self._pending:
            numbers = list(self._pending)
            if self._time_is_up():
                self._telling.time_is_up(numbers)
            found = self._telling.next(numbers, lambda number: self._pending[number][1].done())
            if found is None:
                return
            self.told.append(found)
            if found == CLOCK:
                process.send({"op": "tick"})
            else:
                self._tell(process, found)
        elif self._time_is_up():
            process.send({"op": "tick"})
        else:
            return
        self._waits = self._timer = None

    def _time_is_up(self) -> bool:
        """Whether a timer of the code is due."""
        return (
            self._waits is not None
            and self._timer is not None
            and time.monotonic() >= self._waits + self._timer
        )

    def _tell(self, process: Process, number: int) -> None:
        call_id, task = self._pending.pop(number)
        self.answers[number] = task.result()
        self._send(process, call_id, task.result())

    def _send(self, process: Process, call_id: int, answer: HostAnswer) -> None:
        told: dict[str, Any] = {"id": call_id, "took": answer.took}
        if answer.fields is not None:
            told |= {"fields": answer.fields, "outside": sorted(WORDED) if answer.outside else []}
        if answer.kind:
            process.send({**told, "kind": answer.kind, "message": answer.message, "name": answer.name})
        else:
            process.send({**told, "value": answer.value})

    async def _finish(self, process: Process) -> None:
        """Let calls end that the code did not wait for: they may be half-way through an effect."""
        for number in list(self._pending):
            await self._pending[number][1]
            self._tell(process, number)
        for call_id, answer in self._unknown:
            self._send(process, call_id, answer)

    def _done(self, said: ChildMessage) -> SnippetOutcome:
        if said.memory:
            megabytes = self.limits.memory // 1_048_576
            error = f"{said.error or 'MemoryError'} (the sandbox has {megabytes} MB; keep less at a time)"
            return self.outcome(error=error, lost=True)
        self.outside = said.outside
        outcome = self.outcome(value=said.value, error=said.error, trace=said.trace)
        return changed(
            outcome,
            undefined=said.name if said.error is not None else "",
            unparsed=said.unparsed and said.error is not None,
            unawaited=tuple(each for each in said.unawaited if each.name in self._names()),
        )

    def outcome(
        self, *, value: str | None = None, error: str | None = None, trace: str = "", lost: bool = False
    ) -> SnippetOutcome:
        return SnippetOutcome(
            stdout=self.printed.text,
            cut=self.printed.cut,
            value=None if value is None else value[: self.limits.output + 2],
            error=None if error is None else error[:MAX_ERROR],
            trace=short_trace(trace),
            calls=self.calls,
            seconds=time.monotonic() - self._began,
            lost=lost,
            # What a process that was ended had read, nobody knows.
            outside=self.outside or (lost and any(answer.outside for answer in self.answers.values())),
        )
