"""The log of one run while it is at work: events stamped, written in order, and shown once they are durable.

Also what a text and an event have to be so that every store can keep them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from retinue.errors import StoreError, Unwritable, told
from retinue.events import Event, LiveEvent, ModelReplied, RunStarted, ToolReturned, decode, encode, now
from retinue.fold import apply
from retinue.run_state import RunState

E = TypeVar("E", bound=Event)


class RunLog:
    """The log of one run: stamps events, applies them to the state, hands them to the store in order."""

    def __init__(
        self,
        *,
        run_id: str,
        root_id: str,
        parent_id: str | None,
        depth: int,
        append: Callable[[Sequence[Event]], asyncio.Future[None]],
        publish: Callable[[LiveEvent], None],
        state: RunState | None = None,
    ) -> None:
        self.run_id, self.root_id, self.parent_id, self.depth = run_id, root_id, parent_id, depth
        self.state = state or RunState()
        self.publish = publish
        self._append = append
        self._noted: list[Event | LiveEvent] = []
        """What is to be written next, and what is shown in between."""
        self._line: list[Event | LiveEvent] | None = None
        """What is published as soon as the last write is durable."""
        self._failure: BaseException | None = None

    def stamp(self, kind: type[E], /, **fields: Any) -> E:
        """The next event of this run, already part of its state; it still has to be committed."""
        event = storable_event(
            kind(
                run_id=self.run_id,
                root_id=self.root_id,
                parent_id=self.parent_id,
                depth=self.depth,
                seq=self.state.seq + 1,
                at=now(),
                **fields,
            )
        )
        try:
            apply(self.state, event)
        except BaseException as error:  # half applied, it is no state to go on from
            self.shut(error)
            raise
        return event

    def commit(self, *events: Event) -> asyncio.Future[None]:
        """Put these events in line as one transaction. Done when they are durable.

        Whoever is cancelled while it waits for that takes nothing back: they are written and published.
        """
        if self._failure is not None:
            raise self._failure
        line, self._noted = [*self._noted, *events], []
        try:
            written = self._append([each for each in line if isinstance(each, Event)])
        except BaseException as error:
            self.shut(error)  # they are part of the state, and will never be part of the log
            raise
        if written.done() and not written.cancelled() and (failure := written.exception()) is not None:
            self.shut(failure)  # at once: what follows from these events must not be stored without them
        self._line = line
        written.add_done_callback(partial(self._written, line))
        waited_for = asyncio.shield(written)
        waited_for.add_done_callback(_looked_at)  # not everyone waits
        return waited_for

    def write(self, kind: type[Event], /, **fields: Any) -> asyncio.Future[None]:
        return self.commit(self.stamp(kind, **fields))

    def note(self, kind: type[Event], /, **fields: Any) -> None:
        """Write what nobody waits for: together with what follows at once, or else by itself."""
        if self._failure is not None:
            raise self._failure
        if not self._noted:
            asyncio.get_running_loop().call_soon(self._write_noted)
        self._noted.append(self.stamp(kind, **fields))

    def show(self, event: LiveEvent) -> None:
        """Publish what is not kept, after all that was written before it: a call before its progress."""
        line = self._noted or self._line
        if line is None:
            self.publish(event)
        else:
            line.append(event)

    def _write_noted(self) -> None:
        if self._noted and self._failure is None:
            self.commit()

    def shut(self, why: BaseException) -> None:
        """Nothing more is written from here: whoever tries gets `why`."""
        self._failure = why

    def _written(self, line: list[Event | LiveEvent], written: asyncio.Future[None]) -> None:
        if self._line is line:
            self._line = None
        if written.cancelled():
            return
        failure = written.exception()
        if failure is not None:  # not everyone waits for a write: the run must still stop at its next
            self._failure = failure
            return
        for event in line:  # nobody hears of what is not durable
            self.publish(event)  # pyright: ignore[reportArgumentType] # every event class is in the union


def _looked_at(written: asyncio.Future[None]) -> None:
    """Its failure is kept by the log: nobody has to be warned that nobody waited for it."""
    if not written.cancelled():
        written.exception()


def storable(text: str) -> str:
    """Text as every database takes it: without lone surrogates and NULs, which models and files can hold."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def storable_event(event: E) -> E:
    """The event with every text in it as every database takes it, whoever wrote that text.

    The one place that all events pass: text comes from models, tools, people and files, and a log that
    holds one such character could never be written, nor its run be taken up.
    """
    try:
        try:
            written = encode(event)  # pyright: ignore[reportArgumentType] # every event class is in the union
        except UnicodeEncodeError:
            written = None
        if written is None or b"\\u0000" in written:
            return msgspec.convert(_storable_in(msgspec.to_builtins(event)), type(event))
        if isinstance(
            event, RunStarted | ModelReplied | ToolReturned
        ):  # what others filled in may be of any type
            decode(written)
    except MemoryError:
        raise StoreError(
            f"no memory left to write event {event.seq} of run {event.run_id} to its log: free some memory, "
            "then resume the run",
            passing=True,
        ) from None
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise Unwritable(told(error), run_id=event.run_id) from None
    return event


def _storable_in(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {storable(name): _storable_in(each) for name, each in fields.items()}
    if isinstance(value, list | tuple):
        return [_storable_in(each) for each in cast("list[Any]", value)]
    return value
