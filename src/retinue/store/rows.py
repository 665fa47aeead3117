"""Events as rows and back, the same in every database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from retinue.errors import Fenced, StoreError
from retinue.events import AnyEvent, Event, decode, encode, place

Row = list[Any]
"""An event as it goes into the table: root, place, run, seq, type, time, JSON.

A list, since its place is filled in later, inside the transaction.
"""
ROOT, PLACE, RUN, SEQ, TYPE, AT, DATA = range(7)


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


def placed(pos: int, data: str | bytes, where: str) -> AnyEvent:
    try:
        event = decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(
            f"event {pos} in {where} cannot be read ({error}): it was written by a newer Retinue, or damaged"
        ) from None
    place(event, pos)
    return event


def fenced(run_id: str, seq: int) -> Fenced:
    return Fenced(
        f"run {run_id} was taken over by another process, which has written its event {seq} already; "
        "this process stops working on it",
        run_id=run_id,
    )
