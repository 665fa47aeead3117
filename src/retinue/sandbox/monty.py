"""The default sandbox: Monty, an interpreter of its own in a worker process with an empty environment.

A session holds no process between snippets, nor while a snippet waits long for a host function: its
variables are a snapshot of a few kilobytes that is loaded into any free worker, so a thousand waiting runs
cost a thousand small byte strings, and a resumed run goes on in another process. A snippet that hits the time
limit or kills its worker leaves the snapshot as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, cast

import msgspec

from retinue.course import Telling
from retinue.errors import ToolError
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
    keep_value,
    short_trace,
)
from retinue.sandbox.chance import READING
from retinue.sandbox.fields import ASK, PRELUDE, as_written, with_fields
from retinue.sandbox.monty_workers import MontyWorker, MontyWorkers

if TYPE_CHECKING:
    from pydantic_monty import (
        ExternalSettledResult,
        FunctionSnapshot,
        FutureSnapshot,
        Monty,
        MontyError,
        MontySession,
        SyncSnapshot,
    )

# Seconds that a snippet keeps its worker while it waits for a host function. It must not keep it for good:
# the function may be a child agent whose own code waits for a worker.
_PATIENCE = 0.25
_LONGEST_SLEEP = 10.0
_SLEEPS = ("system.sleep", "system.async_sleep")
_ROUND_TRIPS = 10_000


class MontyEngine:
    """Sessions over one pool of workers."""

    name = "monty"

    def __init__(self) -> None:
        self._workers = MontyWorkers()

    def session(self, limits: SandboxLimits) -> MontySandbox:
        return MontySandbox(self._workers, limits)

    async def warm(self) -> None:
        await self._workers.open()

    async def close(self) -> None:
        await self._workers.close()


@dataclass(slots=True)
class _Feed:
    """One snippet under way. It has a worker, but for long waits."""

    functions: Mapping[str, HostFunction]
    printed: Printed
    held: MontyWorker | None
    now: float
    results: _Results
    slept: float = 0.0
    made: dict[int, float] = field(default_factory=dict[int, float])
    """What the clock showed when each call was made."""
    pending: dict[int, asyncio.Task[Any]] = field(default_factory=dict[int, "asyncio.Task[Any]"])
    calls: int = 0
    gone: bool = False
    undefined: str = ""
    """The last name that it asked for and that is none of a function."""

    @property
    def worker(self) -> MontyWorker:
        assert self.held is not None
        return self.held

    def print(self, stream: str, text: str) -> None:
        self.printed.add(text)
        if self.printed.flooded:  # an exception raised here would only be seen when the code ends
            self.worker.kill()


_Kept = tuple[bytes, dict[bytes, tuple[dict[str, Any], bool]], bool]


@dataclass(slots=True)
class _Results:
    """The fields of what a session's functions gave, by the text they belong to: code can hold no others."""

    fields: dict[bytes, tuple[dict[str, Any], bool]] = field(default_factory=dict[bytes, Any])
    """With whether those that others worded have no frame."""
    read: bool = False
    """Whether any of these was read."""

    def add(self, result: CallResult) -> None:
        self.fields[_key(result.text)] = (dict(result.fields), result.outside)

    def answer(self, text: str, name: str) -> list[Any]:
        """A field in a list, or an empty one where there is none."""
        found, outside = self.fields.get(_key(text), ({}, False))
        if not found:
            return []
        self.read = self.read or (outside and name in WORDED)
        return [found.get(name, text)]


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class MontySandbox:
    """One run's session. Snippets of one session run one after the other."""

    def __init__(self, workers: MontyWorkers, limits: SandboxLimits) -> None:
        self._workers = workers
        self._limits = limits
        self._state = b""
        self._results = _Results()
        self._busy = asyncio.Lock()

    async def dump(self) -> bytes:
        async with self._busy:
            kept = (self._state, self._results.fields, self._results.read)
            return msgspec.msgpack.encode(kept) if self._state else b""

    async def load(self, state: bytes) -> None:
        async with self._busy:
            kept: _Kept = (state, {}, False)
            if state:  # of what is none of ours nothing can be loaded: the next snippet says so
                with contextlib.suppress(msgspec.DecodeError):
                    kept = msgspec.msgpack.decode(state, type=_Kept)
            self._state, self._results = kept[0], _Results(kept[1], kept[2])

    async def close(self) -> None:
        self._state = b""

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
            from pydantic_monty import MontyError

            try:
                worker = await self._workers.take(lambda pool: self._check_out(pool, self._restore, seed))
            except MontyError:
                self._state = b""
                return SnippetOutcome(error=GONE, lost=True)
            feed = _Feed(functions, Printed(self._limits.output), worker, at, self._results)
            whole = False
            try:
                outcome = await self._snippet(code, feed)
                whole = not outcome.lost
                return outcome
            finally:
                if feed.held is not None:
                    # Killing first makes a turn that is still under way in its thread end at once.
                    if not whole:
                        feed.held.kill()
                    await self._workers.give_back(feed.held)

    def _restore(self, session: MontySession) -> None:
        if self._state:
            session.load_session(self._state)

    def _check_out(self, pool: Monty, load: Callable[[MontySession], None], seed: str = "") -> MontyWorker:
        """What is loaded has its random numbers with it: the seed is for a session that begins."""
        seconds = self._limits.seconds
        session = pool.checkout(
            script_name="snippet.py",
            limits={
                "max_feed_duration_secs": seconds,
                "max_memory": self._limits.memory,
                "max_suspensions": _ROUND_TRIPS,
                "max_total_sleep_secs": seconds,
            },
            os_policy={
                "sleep": "system",
                "sleep_system_max": min(seconds, _LONGEST_SLEEP),
                "datetime": "call_host",
                "random_start": {"seed": seed},
            },
        )
        session.__enter__()
        pid = session.worker_pid
        handle = os.pidfd_open(pid) if pid is not None and hasattr(os, "pidfd_open") else None
        worker = MontyWorker(session, handle)
        try:
            load(session)
        except BaseException:
            worker.give_back()
            raise
        return worker

    async def _snippet(self, code: str, feed: _Feed) -> SnippetOutcome:
        from pydantic_monty import MontyError, MontyRuntimeError, MontySyntaxError

        began = time.monotonic()
        fielded = with_fields(code)
        source, valued = keep_value(fielded or code)
        error = trace = undefined = ""
        unparsed = False
        value: str | None = None
        lost = False
        try:
            if fielded is not None:
                await self._workers.in_thread(lambda: feed.worker.session.feed_run(PRELUDE))
            await self._drive(source, feed)
            if valued:
                value = await self._workers.in_thread(lambda: _last_value(feed.worker, self._limits.output))
        except MontyError as raised:
            error, trace, lost = self._explain(raised, feed)
            unparsed = isinstance(raised, MontySyntaxError)
            if isinstance(raised, MontyRuntimeError) and isinstance(raised.exception(), NameError):
                undefined = feed.undefined
            await _finish(feed.pending)
        else:
            await _finish(feed.pending)
        finally:
            await _drop(feed.pending)
        if not lost:
            try:
                self._state = await self._workers.in_thread(feed.worker.session.dump)
            except (MontyError, RuntimeError):  # RuntimeError: showing the value has ended the worker already
                lost = True
                error = error or (
                    "the variables need more memory than the sandbox has "
                    f"({self._limits.memory // 1_048_576} MB), so they were not kept"
                )
        return SnippetOutcome(
            stdout=feed.printed.text,
            cut=feed.printed.cut,
            value=value,
            error=error[:MAX_ERROR] or None,
            trace=short_trace(
                _without_name(trace) if fielded is None else as_written(_without_name(trace), code, fielded)
            ),
            calls=feed.calls,
            seconds=time.monotonic() - began,
            lost=lost,
            outside=feed.results.read,
            undefined=undefined,
            unparsed=unparsed,
        )

    async def _drive(self, source: str, feed: _Feed) -> None:
        """Answer what the code asks of the host, until it is done."""
        from pydantic_monty import FunctionSnapshot, FutureSnapshot, NameLookupSnapshot

        def begin() -> SyncSnapshot:
            return feed.worker.session.feed_start(source, print_callback=feed.print)

        turn = begin
        while True:
            snapshot = await self._workers.in_thread(turn)
            if isinstance(snapshot, FunctionSnapshot) and snapshot.function_name in _SLEEPS:
                turn = await self._sleep(snapshot, feed)
            elif isinstance(snapshot, FunctionSnapshot):
                turn = _answer_call(snapshot, feed)
            elif isinstance(snapshot, NameLookupSnapshot):
                known = snapshot.object_id is None and snapshot.variable_name in feed.functions
                value = {"value": _stand_in(snapshot.variable_name)} if known else {}
                feed.undefined = feed.undefined if known else snapshot.variable_name
                turn = _later(snapshot.resume, **value)
            elif isinstance(snapshot, FutureSnapshot):
                turn = await _answer_future(await self._wait(snapshot, feed), feed)
            else:
                return

    async def _sleep(self, snapshot: FunctionSnapshot, feed: _Feed) -> Callable[[], SyncSnapshot]:
        """Code sleeps as long as it may, and its clock moves on by that."""
        seconds = max(0.0, float(snapshot.args[0]))
        feed.slept += seconds
        most = min(self._limits.seconds, _LONGEST_SLEEP)
        if seconds > most or feed.slept > self._limits.seconds:
            told = f"code may sleep {most:g} s at a time and {self._limits.seconds:g} s in all"
            return _later(snapshot.resume, {"exc_type": "TimeoutError", "message": told})
        if snapshot.function_name == _SLEEPS[0]:
            await asyncio.sleep(seconds)
            feed.now += seconds
            return _later(snapshot.resume, {"return_value": None})
        feed.made[snapshot.call_id] = feed.now + seconds
        feed.pending[snapshot.call_id] = asyncio.ensure_future(asyncio.sleep(seconds))
        return _later(snapshot.resume, {"future": ...})

    async def _wait(self, snapshot: FutureSnapshot, feed: _Feed) -> FutureSnapshot:
        """Until the call that was made first has its result. The worker serves others if that takes long."""
        from pydantic_monty import MontyError

        task = feed.pending.get(min(snapshot.pending_call_ids))
        if task is None or task.done():
            return snapshot
        await asyncio.wait({task}, timeout=_PATIENCE)
        if task.done():
            return snapshot
        try:
            state = await self._workers.in_thread(snapshot.dump)
        except MontyError:
            return snapshot  # more than can be put away: it keeps its worker
        worker, feed.held = feed.worker, None
        await self._workers.give_back(worker)
        await asyncio.wait({task})
        again: list[SyncSnapshot] = []

        def load(session: MontySession) -> None:
            again.append(session.load_snapshot(state, print_callback=feed.print))

        try:
            feed.held = await self._workers.take(lambda pool: self._check_out(pool, load))
        except MontyError:
            feed.gone = True
            raise
        return cast("FutureSnapshot", again[0])

    def _explain(self, raised: MontyError, feed: _Feed) -> tuple[str, str, bool]:
        """The error in one line, its traceback, and whether the interpreter's state is beyond use."""
        from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError

        if feed.printed.flooded:
            return f"the code printed more than {FLOOD} characters and was stopped; print less", "", True
        if feed.gone:
            return f"the code could not go on after a long wait: {raised}", "", True
        if isinstance(raised, MontyCrashedError):
            return f"the sandbox stopped the code: {raised}", "", True
        if not isinstance(raised, MontyRuntimeError | MontySyntaxError):
            return str(raised), "", False
        line, trace = raised.display("type-msg"), raised.display()
        if line.startswith("TimeoutError: feed time limit exceeded"):
            seconds = f"{self._limits.seconds:g} s"
            return f"TimeoutError: the code computed for more than {seconds}; do less at a time", "", True
        if line.startswith("MemoryError"):
            megabytes = self._limits.memory // 1_048_576
            return f"{line} (the sandbox has {megabytes} MB; keep less at a time)", trace, True
        return line, trace, False


def _answer_call(snapshot: FunctionSnapshot, feed: _Feed) -> Callable[[], SyncSnapshot]:
    name = snapshot.function_name
    if snapshot.is_os_function:
        return _answer_os(snapshot, feed)
    if name == ASK:
        text, wanted = (str(each) for each in snapshot.args)
        return _later(snapshot.resume, {"return_value": feed.results.answer(text, wanted)})
    function = feed.functions.get(name) if snapshot.object_id is None else None
    if function is None:
        feed.undefined = name
        return _later(snapshot.resume, {"exc_type": "NameError", "message": f"name '{name}' is not defined"})
    feed.calls += 1
    try:
        awaitable = function(*snapshot.args, **snapshot.kwargs)
    except (TypeError, ToolError) as error:
        return _later(snapshot.resume, {"exc_type": "TypeError", "message": str(error)})
    feed.made[snapshot.call_id] = feed.now
    feed.pending[snapshot.call_id] = asyncio.ensure_future(cast("asyncio.Future[Any]", awaitable))  # pyright: ignore[reportArgumentType]  # ensure_future makes a Task of a coroutine
    return _later(snapshot.resume, {"future": ...})


def _answer_os(snapshot: FunctionSnapshot, feed: _Feed) -> Callable[[], SyncSnapshot]:
    """The clock, as it was given. There is nothing else of a machine in here."""
    name = snapshot.function_name
    if name not in ("time.time", "datetime.now", "date.today"):
        return snapshot.resume_not_handled
    feed.now += READING
    now: Any = feed.now
    if name == "datetime.now":
        zone = cast("tzinfo | None", snapshot.args[0] if snapshot.args else None)
        now = datetime.fromtimestamp(feed.now, UTC)
        now = now.replace(tzinfo=None) if zone is None else now.astimezone(zone)
    elif name == "date.today":
        now = datetime.fromtimestamp(feed.now, UTC).date()
    return _later(snapshot.resume, {"return_value": now})


async def _answer_future(snapshot: FutureSnapshot, feed: _Feed) -> Callable[[], SyncSnapshot]:
    """The result of the call that was made first, so that the code's path never depends on timing."""
    call_id = min(snapshot.pending_call_ids)
    task = feed.pending.pop(call_id, None)
    settled: ExternalSettledResult
    if task is None:
        settled = {"exc_type": "RuntimeError", "message": "this call belongs to an earlier snippet"}
    else:
        try:
            value = await task
            settled = {"return_value": value}
            took = value.took if isinstance(value, CallResult) else 0.0
            feed.now = max(feed.now, feed.made.pop(call_id, 0.0) + took)
            if isinstance(value, CallResult):
                feed.results.add(value)
                failure: ExternalSettledResult = {"exc_type": "RuntimeError", "message": value.text}
                settled = failure if value.failed else {"return_value": value.text}
        except ToolError as error:
            settled = {"exc_type": "RuntimeError", "message": str(error)}
    return _later(snapshot.resume, {call_id: settled})


def _later(function: Callable[..., SyncSnapshot], *args: Any, **kwargs: Any) -> Callable[[], SyncSnapshot]:
    return lambda: function(*args, **kwargs)


def _stand_in(name: str) -> Callable[[], None]:
    """What a host function's name is bound to when code passes it around: never called on this side."""

    def function() -> None: ...

    function.__name__ = function.__qualname__ = name
    return function


def _without_name(trace: str) -> str:
    """Without the assignment that `keep_value` put before the last expression, and its carets in place."""
    return re.sub(
        r"(?m)^    _ = \((.*)(?:\n {5}( +~+))?$",
        lambda m: f"    {m[1]}" + (f"\n{m[2]}" if m[2] else ""),
        trace,
    )


def _last_value(worker: MontyWorker, most: int) -> str | None:
    """The repr is made in the sandbox: a huge value must not be built, nor a hostile one touched, here."""
    from pydantic_monty import MontyCrashedError, MontyRuntimeError

    code = f"None if _ is None else repr(_)[:{most + 1}]"
    try:
        value = worker.session.feed_run(code, print_callback=lambda stream, text: None)
    except MontyCrashedError:
        raise
    except MontyRuntimeError as error:
        return f"<a value that cannot be shown: {error.display('type-msg')[:200]}>"
    if value is None:
        return None
    return value if len(value) <= most else value[:most] + " …"


async def _finish(pending: dict[int, asyncio.Task[Any]]) -> None:
    """Let calls end that the code started and did not wait for: they may be half-way through an effect."""
    for task in list(pending.values()):
        with contextlib.suppress(ToolError):
            await task
    pending.clear()


async def _drop(pending: dict[int, asyncio.Task[Any]]) -> None:
    """The run was cancelled, or a call failed in a way that ends it: stop the others."""
    for task in pending.values():
        task.cancel()
    await asyncio.gather(*pending.values(), return_exceptions=True)
    pending.clear()
