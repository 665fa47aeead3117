"""Events as rows and back, the same in every database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from retinue.errors import Fenced, Gone, StoreError
from retinue.events import AnyEvent, Event, RunResumed, RunStarted, decode, encode, place

Row = list[Any]
"""An event as it goes into the table: root, place, run, seq, type, time, JSON.

A list, since its place is filled in later, inside the transaction.
"""
ROOT, PLACE, RUN, SEQ, TYPE, AT, DATA = range(7)
_FIRST = RunStarted.__struct_config__.tag


def encoded(events: Sequence[Event]) -> list[Row]:
    try:
        return [
            [e.root_id, 0, e.run_id, e.seq, e.__struct_config__.tag, e.at, encode(e)]  # pyright: ignore[reportArgumentType]  # an event is one of AnyEvent; a cast per event would cost
            for e in events
        ]
    except UnicodeEncodeError as error:
        raise StoreError(
            f"an event of run {events[0].run_id} holds text that is not valid Unicode ({error.reason}): "
            "replace what cannot be encoded before it is logged"
        ) from None
    except MemoryError:
        raise no_memory(events) from None


def placed(pos: int, data: str | bytes, where: str) -> AnyEvent:
    try:
        event = decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(
            f"event {pos} in {where} cannot be read ({error}): it was written by a newer Retinue, or damaged"
        ) from None
    except MemoryError:
        raise StoreError(f"no memory left to read event {pos} in {where}: free some", passing=True) from None
    place(event, pos)
    return event


def no_memory(events: Sequence[Event]) -> StoreError:
    return StoreError(
        f"no memory left to store event {events[0].seq} of run {events[0].run_id}: free some, then resume "
        "the run",
        passing=True,
    )


def fenced(run_id: str, seq: int) -> Fenced:
    return Fenced(
        f"run {run_id} was taken over by another process, which has written its event {seq} already; "
        "this process stops working on it",
        run_id=run_id,
    )


def gone(root_id: str) -> Gone:
    return Gone(
        f"{root_id} was deleted while this process worked on it: it stops, and nothing more of it is kept"
    )


def begins(kind: str) -> bool:
    """Whether an event of this type may be the first of a workflow. Without it, the workflow was deleted."""
    return kind == _FIRST


class Lost:
    """Runs that this process can write no more: another one has taken them over, or an event was not stored.

    Events may be in line behind the one that failed. They follow from it, so they must fail too, although
    their own places may still be free: until the run is begun or taken up again.
    """

    def __init__(self) -> None:
        self._runs: dict[str, BaseException] = {}

    def note(self, run_ids: Iterable[str], error: BaseException) -> None:
        """Events of these runs were not stored."""
        for run_id in run_ids:
            self._runs[run_id] = error

    def verdict(self, events: Sequence[Event]) -> Fenced | StoreError | None:
        if not self._runs:
            return None
        for event in events:
            if isinstance(event, RunResumed | RunStarted):
                self._runs.pop(event.run_id, None)
            elif (why := self._runs.get(event.run_id)) is not None:
                return _again(event, why)
        return None


def _again(event: Event, why: BaseException) -> Fenced | StoreError:
    """What is said of an event behind one that was not stored."""
    if isinstance(why, Fenced):
        return fenced(event.run_id, event.seq)
    return gone(event.root_id) if isinstance(why, Gone) else _behind(event, why)


def _behind(event: Event, why: BaseException) -> StoreError:
    passing = isinstance(why, StoreError) and why.passing
    return StoreError(
        f"event {event.seq} of run {event.run_id} was not stored, since one before it was not: {why}",
        passing=passing,
    )
