"""One run at the terminal, from its start to its report: shown, asked about, interrupted.

`ask`, `run` and `runs resume` go through here. Ctrl-C cancels the run and waits for its partial report; a
second one kills at once. It talks to `Retinue` and to a view, and knows neither model nor store.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retinue.cli import exits
from retinue.cli.process import make_room
from retinue.errors import RetinueError, Withdrawn
from retinue.events import Event, LiveEvent
from retinue.story import Story
from retinue.types import Report
from retinue.view.commands import command
from retinue.view.live import View

if TYPE_CHECKING:
    from retinue.app import Retinue
    from retinue.cli.limits import LimitWatch
    from retinue.view.keyboard import Keyboard

MODEL_KINDS = frozenset({"auth", "not_found", "invalid", "too_long", "rate_limit", "overloaded"}) | frozenset(
    {"timeout", "connection", "refused", "protocol", "too_large"}
)


@dataclass(frozen=True, kw_only=True)
class DrivenRun:
    """How a run ended, and the code to exit with."""

    report: Report
    tree: Story
    code: int


def open_keyboard() -> Keyboard | None:
    """The person's keyboard, if a person is there to be asked."""
    if sys.platform == "win32":
        return None
    from retinue.view.keyboard import Keyboard

    return Keyboard.open()


async def drive(
    retinue: Retinue,
    begin: Callable[[], Awaitable[tuple[str, int]]],
    *,
    view: View,
    keyboard: Keyboard | None,
    tell: Callable[[LiveEvent], None] | None = None,
    wait_limits: bool = False,
) -> DrivenRun:
    """Start a run with `begin` and stay with it to its end.

    `begin` returns the id of the run, and the place up to which the view knows its log already. `tell` is
    handed every event as well. Unless it is to `wait_limits`, a run that only waits for a limit of its
    provider is left there, or a person is asked about it.
    """
    from retinue.cli.limits import LimitWatch, left_at

    make_room()
    view.asks_here = keyboard is not None
    with Interrupts(view, keyboard) as interrupts, _Heard(retinue) as heard:
        run_id, after = await begin()
        interrupts.run_id = run_id
        interrupts.stop = lambda reason: retinue.cancel(run_id, reason)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(view)
            limits = LimitWatch(retinue, view.tree, leaves=keyboard is None and not wait_limits)
            stack.callback(limits.stop)
            hear = await _asking(stack, retinue, view, keyboard, None if wait_limits else limits)
            async for event in heard.of(run_id, after):
                view.show(event)
                hear(event)
                limits.hear(event)
                if tell is not None:
                    tell(event)
            try:
                report = await heard.report
            except Withdrawn:
                if limits.left is None:
                    raise
                raise left_at(run_id, limits.left) from None
        code = interrupts.code if report.status == "cancelled" else code_of(report, view.tree)
        return DrivenRun(report=report, tree=view.tree, code=code)


class _Heard:
    """Everything that happens in this process, from before the run begins: not a word of it is missed."""

    report: asyncio.Future[Report]

    def __init__(self, retinue: Retinue) -> None:
        self.retinue = retinue
        self._queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue()

    def __enter__(self) -> _Heard:
        self._stop = self.retinue.hear(self._queue.put_nowait)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if hasattr(self, "report"):
            self.report.cancel()

    async def of(self, run_id: str, after: int) -> AsyncIterator[LiveEvent]:
        """The events of a workflow that runs here, until its report is there."""
        self.report = asyncio.ensure_future(self.retinue.wait(run_id))
        self.report.add_done_callback(lambda _: self._queue.put_nowait(None))
        caught_up = False
        while (event := await self._queue.get()) is not None:
            if event.root_id != run_id:
                continue
            if not caught_up and isinstance(event, Event):
                # A forked run begins with events that were copied, and nobody heard.
                missed = event.pos - after - 1
                for earlier in (
                    await self.retinue.store.events(run_id, after=after, limit=missed) if missed > 0 else ()
                ):
                    yield earlier
                caught_up = True
            yield event


async def _asking(
    stack: contextlib.AsyncExitStack,
    retinue: Retinue,
    view: View,
    keyboard: Keyboard | None,
    limits: LimitWatch | None,
) -> Callable[[LiveEvent], None]:
    """Put approvals to the person for as long as the stack is open, if there is one."""
    if keyboard is None:
        return lambda event: None
    from retinue.cli.asking import Asking

    keyboard.use("keys")
    asking = Asking(retinue, view, keyboard, limits)
    task = asyncio.create_task(asking.run(), name="approvals at the terminal")

    async def stop() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(stop)
    return asking.hear


def code_of(report: Report, tree: Story) -> int:
    """The exit code of a run that was not cancelled from here."""
    if report.status == "cancelled":
        return exits.CANCELLED
    if report.status == "error":
        root = tree.root
        if report.ended_by == "refusal":
            return exits.MODEL
        return exits.MODEL if root is not None and root.failure_kind in MODEL_KINDS else exits.FAILED
    return exits.OF_OUTCOME.get(report.outcome, exits.OK)


TOGETHER = 1.0
"""Seconds in which several requests of programs to end (SIGTERM, SIGHUP) are one."""


class Interrupts:
    """Ctrl-C, a termination request, a closed terminal and Ctrl-Z, while a run is on the screen."""

    def __init__(self, view: View, keyboard: Keyboard | None) -> None:
        self.view, self.keyboard = view, keyboard
        self.code = exits.CANCELLED
        self.stop: Callable[[str], Awaitable[Any]] | None = None
        self.run_id = ""
        self._count = 0
        self._asked_at = -math.inf
        self._stopping: asyncio.Task[None] | None = None
        self._main: asyncio.Task[Any] | None = None

    def __enter__(self) -> Interrupts:
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt, exits.CANCELLED, "stopped with Ctrl-C")
        loop.add_signal_handler(signal.SIGTERM, self._interrupt, exits.TERMINATED, "asked to terminate")
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it outlives its terminal
            loop.add_signal_handler(signal.SIGHUP, self._interrupt, exits.HUNG_UP, "its terminal is gone")
        if self.keyboard is not None:
            loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
            loop.remove_signal_handler(number)
        if self.keyboard is not None:
            self.keyboard.close()

    def _interrupt(self, code: int, why: str) -> None:
        now, before = time.monotonic(), self._asked_at
        self._asked_at = now
        if code != exits.CANCELLED and now - before < TOGETHER:
            return  # 'timeout' asks the process and then its group: no person was twice as urgent
        self._count += 1
        self.code = code
        if self._count > 1:
            self._kill()
        if self.stop is None:
            if self._main is not None:
                self._main.cancel()
            return
        self._stopping = asyncio.ensure_future(self._stop(why))
        with contextlib.suppress(OSError):  # there may be no terminal any more
            self.view.note("stopping … (Ctrl-C again kills at once)")

    async def _stop(self, why: str) -> None:
        assert self.stop is not None
        try:
            await self.stop(why)
        except RetinueError:
            if self._main is not None:
                self._main.cancel()  # the signal could not be sent: stop it the hard way

    def _kill(self) -> None:
        """Now. What tools have started goes too."""
        if self.keyboard is not None:
            self.keyboard.restore()
        for pid in children():
            with contextlib.suppress(OSError):
                # Tools start each command in a group of its own, so that the whole of it can be ended.
                os.killpg(pid, signal.SIGKILL) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGKILL)
        resume = command(f"runs resume {self.run_id}")
        goes_on = f"; '{resume}' goes on where it was" if self.run_id else ""
        last_words = threading.Thread(target=self._last_words, args=(goes_on,), daemon=True)
        last_words.start()
        last_words.join(0.5)  # no longer: a terminal that is held would never let go
        os._exit(self.code)

    def _last_words(self, goes_on: str) -> None:
        self.view.abandon()
        sys.stderr.write(f"\nretinue: killed{goes_on}\n")
        sys.stderr.flush()

    def _suspend(self) -> None:
        """Ctrl-Z: the terminal as it was until the process is brought back."""
        assert self.keyboard is not None
        self.view.abandon()
        self.keyboard.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.keyboard.again()


def children() -> list[int]:
    """The processes this one has started, where the system says so."""
    found: list[int] = []
    folder = f"/proc/{os.getpid()}/task"
    with contextlib.suppress(OSError, ValueError):
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/children") as file:
                found.extend(int(word) for word in file.read().split())
    return found
