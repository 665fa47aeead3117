"""What the events of a run do to its row in `runs`: pure functions, shared by every store.

A store hands over the events of one batch and gets back one `Change` per run, however many events the run
had. Sums are added to what the row holds; where a run stands (its status, its open questions, how it
ended) is computed from where it stood, which a store looks up only when `Change.needs_standing` says so:
a run asks a person, or ends, far less often than it calls a model. Which columns there are, and which event
does what to them, is said in `runs`.

Touches no database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from retinue.events import Event, RunStarted
from retinue.store.runs import Added, Moved, Standing, Started, StoredRun, added, columns, moved

ADDED, MOVED = added(), moved()
_FIRST: Standing = {column.name: column.first for column in columns() if isinstance(column.how, Moved)}
_NOTHING = [0] * len(ADDED)


def standing_of(values: Sequence[Any]) -> Standing:
    """Where a run stands, as its row has it: the columns of `MOVED`."""
    return dict(zip(MOVED, values, strict=True))


class Change:
    """What one batch of events does to one row. Mutable while the batch is read."""

    __slots__ = ("moves", "run_id", "standing", "started", "sums")

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.sums: list[Any] = _NOTHING.copy()
        """To be added to the columns of `ADDED`."""
        self.started: RunStarted | None = None
        self.moves: list[Event] = []
        self.standing: Standing | None = None

    @property
    def needs_standing(self) -> bool:
        return bool(self.moves) and self.started is None

    @property
    def spends(self) -> bool:
        return self.sums != _NOTHING

    def settle(self, before: Standing | None) -> None:
        """Compute `standing` from where the run stood; None if it has no row yet."""
        standing = before or _FIRST
        for event in self.moves:
            standing = move(standing, event)
        self.standing = standing


def changes(batch: Iterable[Sequence[Event]]) -> dict[str, Change]:
    """One change per run that has any. A run that starts here is settled already."""
    found: dict[str, Change] = {}
    for events in batch:
        for event in events:
            kind = type(event)
            adders, moves = _ADDERS.get(kind), kind in _MOVERS
            if adders is None and not moves:
                continue
            change = found.get(event.run_id)
            if change is None:
                change = found[event.run_id] = Change(event.run_id)
            if adders is not None:
                sums = change.sums
                for index, value in adders:
                    sums[index] = plus(sums[index], value(event))
            if moves:
                change.moves.append(event)
                if isinstance(event, RunStarted):
                    change.started = event
    for change in found.values():
        if change.started is not None:
            change.settle(None)
    return found


def plus(one: Any, other: Any) -> Any:
    """None is unknown, and so is a sum with it."""
    return None if one is None or other is None else one + other


def move(standing: Standing, event: Event) -> Standing:
    """Where a run stands after an event: the same answer as folding its whole log."""
    now = {name: change(standing, event) for name, change in _MOVERS.get(type(event), ())}
    return {**standing, **now} if now else standing


def _adders() -> dict[type[Event], tuple[tuple[int, Callable[[Any], Any]], ...]]:
    found: dict[type[Event], list[tuple[int, Callable[[Any], Any]]]] = {}
    for column in columns():
        if isinstance(column.how, Added):
            for kind, value in column.how.by.items():
                found.setdefault(kind, []).append((ADDED.index(column.name), value))
    return {kind: tuple(values) for kind, values in found.items()}


def _movers() -> dict[type[Event], tuple[tuple[str, Callable[[Standing, Any], Any]], ...]]:
    found: dict[type[Event], list[tuple[str, Callable[[Standing, Any], Any]]]] = {RunStarted: []}
    for column in columns():
        if isinstance(column.how, Moved):
            for kind, change in column.how.by.items():
                found.setdefault(kind, []).append((column.name, change))
    return {kind: tuple(changes) for kind, changes in found.items()}


_ADDERS = _adders()
_MOVERS = _movers()


def new_row(change: Change) -> StoredRun:
    """The row of a run that started in this batch."""
    started, standing = change.started, change.standing
    assert started is not None
    assert standing is not None
    values = {**standing, **dict(zip(ADDED, change.sums, strict=True))}
    for column in columns():
        if isinstance(column.how, Started):
            values[column.name] = column.how.value(started)
    return StoredRun(**values)
