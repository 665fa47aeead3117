"""How a run is shown while it goes on: the live tree on a terminal, plain lines everywhere else.

Both take every event of the workflow and show it on stderr; the answer itself is printed by the command
once it is there. Neither ever writes to stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import Protocol

from retinue.events import (
    ApprovalRequested,
    CallReviewed,
    ChildStarted,
    ClaimsJudged,
    LimitPassed,
    LimitReached,
    LiveEvent,
    ModelSampled,
    RunFinished,
    RunQueued,
    RunResumed,
    StepRetried,
    ToolCalled,
    ToolReturned,
)
from retinue.story import Story
from retinue.story_nodes import Node
from retinue.view import words
from retinue.view.commands import command
from retinue.view.notes import noted
from retinue.view.paint import Line, columns, put, rows, wants_colour
from retinue.view.picture import MARKS, outline, picture
from retinue.view.screen import Screen
from retinue.view.words import clean

WAITING = 10.0
WAITING_ON = 60.0
"""Seconds of silence after which a pipe is told what is being waited for, and then told again."""
FRAME = 0.1
IDLE_FRAME = 0.25


class View(Protocol):
    asks_here: bool
    """Whether the person is asked right here, or has to be told how to answer from elsewhere."""

    @property
    def tree(self) -> Story: ...

    async def __aenter__(self) -> View: ...

    async def __aexit__(self, *_: object) -> None: ...

    def show(self, event: LiveEvent) -> None:
        """Take in one event."""
        ...

    def note(self, text: str) -> None:
        """Tell the person something that is not an event."""
        ...

    async def pause(self) -> None:
        """Leave the terminal alone until `go_on`: a person is being asked."""
        ...

    def go_on(self) -> None: ...

    def abandon(self) -> None:
        """The process ends right now: leave the terminal usable."""
        ...


class LiveView:
    """The tree, drawn in place at most ten times a second."""

    def __init__(self) -> None:
        self.tree = Story()
        self.asks_here = False
        self._screen = Screen(sys.stderr, colour=wants_colour(sys.stderr))
        self._changed = asyncio.Event()
        self._running = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._drawing = asyncio.Lock()
        self._note = ""
        self._tick = 0

    async def __aenter__(self) -> LiveView:
        self._running.set()
        self._task = asyncio.create_task(self._draw_on(), name="live view")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._screen.clear()
        self._screen.close()
        left = outline(self.tree, width=columns(sys.stderr), height=16, now=time.time())
        put([*left, *([[("", "")]] if left else [])], sys.stderr)

    def show(self, event: LiveEvent) -> None:
        self.tree.apply(event)
        self._changed.set()

    def note(self, text: str) -> None:
        self._note = text
        self._changed.set()

    async def pause(self) -> None:
        self._running.clear()
        async with self._drawing:
            await self._screen.clear()

    def go_on(self) -> None:
        self._running.set()
        self._changed.set()

    def abandon(self) -> None:
        self._screen.restore()

    async def _draw_on(self) -> None:
        while True:
            await self._running.wait()
            async with self._drawing:
                if self._running.is_set():
                    self._screen.draw(self._frame())
            await asyncio.sleep(FRAME)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                # Not wait_for: on Python 3.11 it swallows a cancel that comes together with the event.
                async with asyncio.timeout(IDLE_FRAME - FRAME):
                    await self._changed.wait()

    def _frame(self) -> list[Line]:
        self._tick += 1
        width, height = columns(sys.stderr), rows(sys.stderr)
        note: list[Line] = [[(self._note, "yellow")]] if self._note else []
        # One line less than the terminal has: the cursor needs one, and a full screen would scroll.
        room = max(2, height - 2 - len(note))
        return picture(self.tree, width=width, height=room, now=time.time(), tick=self._tick) + note


class PlainView:
    """One line on stderr for each thing that happens, without any control codes.

    `ending`: the end of the root too, where no summary follows.
    """

    def __init__(self, *, quiet: bool = False, ending: bool = False) -> None:
        self.tree = Story()
        self.asks_here = False
        self._quiet, self._ending = quiet, ending
        self._began: float | None = None
        self._troubles: set[tuple[str, int, str]] = set()
        self._heard = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> PlainView:
        if not self._quiet:
            self._task = asyncio.create_task(self._tell_of_waiting(), name="plain view")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _tell_of_waiting(self) -> None:
        """A model may compute for minutes: say so, soon at first and then once a minute."""
        patience = WAITING
        while True:
            self._heard.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._heard.wait()
                patience = WAITING
            except TimeoutError:
                patience = WAITING_ON
                self._waiting()

    def _waiting(self) -> None:
        for node in self.tree.nodes.values():
            if node.asking == "thinking" and not node.over and self._began is not None:
                past = time.time() - self._began
                self._say(f"[{past:6.1f} s] {node.agent}: waits for the model ({words.model(node.model)})")

    def show(self, event: LiveEvent) -> None:
        self._heard.set()
        before = self.tree.nodes.get(event.run_id)
        called = before.calls.get(getattr(event, "call_id", "")) if before else None
        self.tree.apply(event)
        at: float | None = getattr(event, "at", None)
        if self._quiet or at is None:
            return
        if isinstance(event, RunFinished) and event.parent_id is None and not self._ending:
            return
        if self._began is None or (isinstance(event, RunResumed) and event.parent_id is None):
            self._began = at  # what is taken up again begins anew: its past was told when it happened
        node = self.tree.nodes.get(event.run_id)
        text = _told(event, node, known=called is not None) if node else ""
        if isinstance(event, StepRetried) and self._said_before(event):
            return
        if node and text:
            indent = "  " * event.depth
            self._say(f"[{at - self._began:6.1f} s] {indent}{node.agent}{text}")
        if isinstance(event, ApprovalRequested) and not self.asks_here:
            self._say(f"           answer with: {command(f'approvals answer {event.approval_id} approve')}")

    def _said_before(self, event: StepRetried) -> bool:
        """A model that cannot be asked is worth one line, not one for each attempt."""
        trouble = (event.run_id, event.step, event.reason)
        known = trouble in self._troubles
        self._troubles.add(trouble)
        return known

    def note(self, text: str) -> None:
        self._say(text)

    async def pause(self) -> None:
        return None

    def go_on(self) -> None:
        return None

    def abandon(self) -> None:
        return None

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed stderr must not end the run
            sys.stderr.write(clean(text) + "\n")
            sys.stderr.flush()


def _told(event: LiveEvent, node: Node, *, known: bool) -> str:
    """An event in a few words, or nothing where it is not worth a line."""
    match event:
        case RunResumed():
            limit = node.parked
            if limit is None or limit.until <= event.at or event.model not in ("", limit.model):
                return " goes on"
            reason = words.one_line(limit.reason, 160)
            return f" goes on: {words.parked(limit.until, event.at)}: {reason}"
        case ToolCalled() if event.effect == "delegate":
            return ""  # who is started says so
        case ToolCalled():
            return f": {event.name}  {words.arguments(event.arguments)}"
        case ToolReturned() if event.is_error:
            # A refusal ends with how to allow it.
            most = 500 if event.not_run in ("unattended", "denied", "forbidden") else 160
            why = words.one_line(words.failure(event.text), most)
            return f": {event.name} {'failed' if known else 'did not run'}: {why}"
        case ChildStarted():
            about = words.one_line(event.label or event.prompt, 120)
            does = f"asks {event.agent} again" if event.continues else f"starts {event.agent}"
            return f": {does}  {about}"
        case RunQueued() if event.parent_id is None:
            return f": {noted(event)}"
        case StepRetried() | LimitReached():
            return f": {words.one_line(noted(event), 200)}"
        case LimitPassed():
            return ": asks the model again"
        case ApprovalRequested():
            return f": waits for approval: {event.tool}  {words.arguments(event.arguments)}"
        case CallReviewed() | ClaimsJudged() | ModelSampled():
            return f": {noted(event)}"
        case RunFinished() if event.report.at_work:
            return f": answered, {words.count(event.report.at_work, 'child', 'children')} still at work"
        case RunFinished():
            return f": {_ending(node)}"
        case _:
            return ""


def _ending(node: Node) -> str:
    report = node.report
    if report is None:
        return node.status
    turns, calls, took = report.turns, report.tool_calls, report.duration_ms
    failed = report.failed_calls
    if node.before is not None:  # it was asked again: this is about what it did since
        turns, calls = turns - node.before.turns, calls - node.before.tool_calls
        took, failed = took - node.before.duration_ms, failed - node.before.failed_calls
    facts = [
        f"{MARKS[node.outcome][0]} {words.outcome(node.outcome, node.shortfall.denied)}",
        words.count(turns, "turn"),
        words.calls(calls, failed),
        words.duration(took / 1000),
    ]
    why = report.error or report.incomplete
    return ", ".join(facts) + (f": {words.one_line(why, 160)}" if why else "")
