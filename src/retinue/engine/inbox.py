"""The inbox of a workflow: what arrives for its runs as signals, from whatever process.

Answers go to `engine.questions`, where calls wait for them; cancels and messages to the runs. The first
signal of a key wins.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec import convert

from retinue.engine.answers import Answer, answer_in
from retinue.engine.bring import bring
from retinue.engine.outbox import Spoken
from retinue.engine.questions import Questions
from retinue.engine.tree import RunTree
from retinue.errors import StoreError
from retinue.events import MessageReceived
from retinue.run import Run
from retinue.store.base import Signal
from retinue.store.rows import fenced, gone

log = logging.getLogger("retinue.engine")

SOON, LATEST = 0.1, 5.0
"""Seconds until signals are read again that could not be read, since the store failed: at first, at most."""


class Inbox:
    """What arrives for the runs of a tree."""

    def __init__(self, tree: RunTree, questions: Questions) -> None:
        self.tree = tree
        self.questions = questions
        self._messages: dict[str, list[tuple[Spoken, str]]] = {}
        """Said to runs that are not begun or taken up yet, with their keys."""
        self._cancels: dict[str, tuple[str, str]] = {}
        self._last = 0
        self.ask_for_people: Callable[[Run], Awaitable[None]] = _nobody
        """Asks the children again that people asked, by the log of the run that started them."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def last(self) -> int:
        """The last signal that was read."""
        return self._last

    async def open(self, *, old: int = 0, ended: frozenset[str] = frozenset()) -> None:
        """Begin to read signals, those first that came while nothing ran.

        A cancel up to the signal `old` is what the run is resumed from, and who said something to a run that
        had `ended` was told that it was too late.
        """
        unsubscribe = self.tree.config.store.subscribe(self.tree.root_id, self._wake.set, signals=True)
        try:
            await self._read(old, ended)
        except BaseException:
            unsubscribe()
            raise
        self._task = asyncio.create_task(self._watch(unsubscribe), name=f"signals {self.tree.root_id}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _watch(self, unsubscribe: Callable[[], None]) -> None:
        delay = SOON
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                try:
                    await self._read()
                    await self._look()
                except (StoreError, MemoryError) as error:
                    # What woke us is still unread, and nothing may come after it.
                    log.warning("%s: signals cannot be read yet: %s", self.tree.root_id, error)
                    await asyncio.sleep(delay)
                    delay = min(2 * delay, LATEST)
                    self._wake.set()
                else:
                    delay = SOON
        finally:
            unsubscribe()

    async def _read(self, old: int = 0, ended: frozenset[str] = frozenset()) -> None:
        for signal in await self.tree.config.store.signals(self.tree.root_id, after=self._last):
            late = signal.kind == "cancel" or (signal.kind == "message" and signal.run_id in ended)
            if signal.id > old or not late:
                try:
                    self._take(signal)
                except MemoryError:
                    raise  # read again when there is some
                except Exception as error:  # signals come from other processes: one must not stop the rest
                    log.warning("%s: a signal cannot be read: %s", signal.key, error)
            self._last = signal.id

    def _take(self, signal: Signal) -> None:
        if signal.kind == "answer":
            self.tell(signal.key, answer_in(signal))
            return
        body: dict[str, Any] = json.loads(signal.body)
        if signal.kind == "cancel":
            self.cancel(signal.run_id, body.get("reason") or "cancelled", by=body.get("by", "person"))
        else:
            self._deliver(signal.run_id, convert(body, Spoken), signal.key)

    def cancel(self, run_id: str, reason: str, *, by: str) -> None:
        """Stop a run and everything below it: now, or as soon as it is there."""
        past = self.tree.past.get(run_id)
        if run_id in self.tree.live:
            self.tree.cancel(run_id, reason, by=by)
        elif past is not None and past.is_remains:
            return  # it has ended here
        else:
            self._cancels[run_id] = (reason, by)

    def _deliver(self, run_id: str, said: Spoken, message_id: str) -> None:
        live = self.tree.live.get(run_id)
        if self.tree.has_ended(run_id):
            self._ask_again(run_id, said, message_id)
        elif live is None:
            self._messages.setdefault(run_id, []).append((said, message_id))
        elif not live.over and message_id not in live.run.state.seen_messages:
            _write(live.run, said, message_id)
            self.tree.spoken_to(run_id)
            if live.run.depth == 0:
                live.run.budget.renew()
                live.run.clock.renew()
            bring(live.run, self.tree)

    def _ask_again(self, run_id: str, said: Spoken, message_id: str) -> None:
        """A child that has ended is asked again by a person, if the run that started it goes on."""
        state = self.tree.state(run_id)
        parent = self.tree.live.get(state.started.parent_id or "") if state and state.started else None
        if parent is None or parent.over or parent.run.is_ending:
            return
        if message_id in parent.run.state.seen_messages:
            return
        if run_id in self.tree.continuing or any(
            one.asks == run_id for one in parent.run.state.asks.values()
        ):
            self._messages.setdefault(run_id, []).append((said, message_id))  # it reads that as it works
            return
        _write(parent.run, said, message_id, asks=run_id)
        self.tree.spoken_to(parent.run.id)
        if parent.run.depth == 0:
            parent.run.budget.renew()
            parent.run.clock.renew()
        self.ask_children(parent.run)

    def ask_children(self, parent: Run) -> None:
        """Have the children asked that people asked. Their parent waits for that as for their reports."""
        task = asyncio.ensure_future(self.ask_for_people(parent))
        self.tree.asking.setdefault(parent.id, set()).add(task)
        task.add_done_callback(partial(self._asked, parent.id))

    def deliver_again(self, run_id: str) -> None:
        """A child could not be asked again: what was said to it meanwhile has nobody to read it."""
        for said, message_id in self._messages.pop(run_id, []):
            self._deliver(run_id, said, message_id)

    def _asked(self, parent_id: str, task: asyncio.Future[None]) -> None:
        """Whoever lingers for its background children has one more, or was told why not."""
        self.tree.asking.get(parent_id, set()).discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: a child could not be asked again: %s", self.tree.root_id, error)

    def hand_over(self, run_id: str) -> None:
        """A run is there now: what came for it before is its own."""
        for said, message_id in self._messages.pop(run_id, ()):
            self._deliver(run_id, said, message_id)
        if run_id in self._cancels:
            reason, by = self._cancels.pop(run_id)
            self.tree.cancel(run_id, reason, by=by)

    async def _look(self) -> None:
        """Another process has written here. If it was to the root's log, that one is its owner now; if there
        is none any more, somebody deleted it."""
        root_id = self.tree.root_id
        root = self.tree.live.get(root_id)
        if root is None or root.task.done():
            return
        started = root.run.state.started
        was_stored = started is not None and started.pos > 0  # asked first: it may be on its way to the disk
        last = await self.tree.config.store.tail(root_id, limit=1, run_id=root_id)
        if not last and was_stored:
            self.tree.give_up(gone(root_id))
        elif last and last[0].seq > root.run.state.seq:
            self.tree.give_up(fenced(root_id, last[0].seq))

    def tell(self, approval_id: str, answer: Answer) -> None:
        """Hand an answer to the call that waits for it, or keep it for the one that will."""
        self.questions.tell(approval_id, answer)


async def _nobody(run: Run) -> None:
    """There are no children."""


def _write(run: Run, said: Spoken, message_id: str, *, asks: str = "") -> None:
    run.log.write(
        MessageReceived,
        text=said.text,
        rendered=said.rendered,
        images=said.images,
        sender="person",
        message_id=message_id,
        asks=asks,
        awaited=bool(asks),
        next_turn=run.state.at_work > 0,
    )
