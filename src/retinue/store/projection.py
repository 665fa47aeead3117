"""What the events of a batch do to the rows of `runs`: pure functions, shared by every store.

A store hands over the events of one batch and gets back one `Change` per row, however many events there were.
Sums are added to what a row holds, and those over a tree to the rows above it too. Where a run stands (its
status, its open questions, how it ended) is computed from where it stood, which a store looks up only for the
rows that `Batch.asked` names: a run asks a person, or ends, far less often than it calls a model. Which
columns there are is said in `runs`, and how a run stands in `standing`.

Touches no database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from retinue.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    LimitPassed,
    LimitReached,
    MessageReceived,
    RunFinished,
    RunResumed,
    RunStarted,
)
from retinue.standing import Standing, held, holding, moved, moves
from retinue.store.runs import (
    Added,
    KeptColumns,
    Moved,
    Rolled,
    Started,
    StoredRun,
    columns,
    moved_columns,
    stands,
    summed,
)

SUMMED, MOVED, _STANDS = summed(), moved_columns(), stands()
_FIRST: KeptColumns = {column.name: column.first for column in columns() if column.name in MOVED}
_NOTHING = [0] * len(SUMMED)
_HOLDING = (
    ApprovalRequested,
    ApprovalAnswered,
    LimitReached,
    LimitPassed,
    MessageReceived,
    RunFinished,
    RunResumed,
)
"""What may change that those above a run wait."""
_MOST_KNOWN = 10_000
_Adder = tuple[int | None, int | None, Callable[[Any], Any]]


def standing_of(values: Sequence[Any]) -> KeptColumns:
    """Where a run stands, as its row has it: the columns of `MOVED`."""
    return dict(zip(MOVED, values, strict=True))


class Change:
    """What one batch of events does to one row. Mutable while the batch is read.

    `standing` is None while the row stays where it stood.
    """

    __slots__ = ("run_id", "standing", "started", "sums")

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.sums: list[Any] = _NOTHING.copy()
        """To be added to the columns of `SUMMED`."""
        self.started: RunStarted | None = None
        self.standing: KeptColumns | None = None

    @property
    def spends(self) -> bool:
        return self.sums != _NOTHING


class Ancestry:
    """Who is above a run. An event names its parent and its root, which is all for two levels below a root;
    for deeper runs it must be known who started those in between."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def learn(self, events: Iterable[Event]) -> set[str]:
        """Take note of who starts whom. Returns those whose parent must be looked up."""
        missing: set[str] = set()
        for event in events:
            if event.depth < 2:
                continue
            assert event.parent_id is not None
            self._parents[event.run_id] = event.parent_id
            above, depth = event.parent_id, event.depth - 1
            while depth >= 2:
                if (found := self._parents.get(above)) is None:
                    missing.add(above)
                    break
                above, depth = found, depth - 1
        return missing

    def add(self, parents: Iterable[tuple[str, str | None]]) -> None:
        """What was looked up: a run and its parent, of everything up to the root."""
        self._parents.update((run_id, parent) for run_id, parent in parents if parent is not None)

    def above(self, event: Event) -> Sequence[str]:
        """From its parent up to its root. What nobody knows is left out."""
        if event.parent_id is None:
            return ()
        if event.depth <= 2:
            return (event.parent_id,) if event.depth == 1 else (event.parent_id, event.root_id)
        found, depth = [event.parent_id], event.depth - 1
        while depth >= 1:
            above = event.root_id if depth == 1 else self._parents.get(found[-1])
            if above is None:
                return [*found, event.root_id]
            found.append(above)
            depth -= 1
        return found

    def tidy(self) -> None:
        """Before a batch: what is known is looked up again, should it be needed."""
        if len(self._parents) > _MOST_KNOWN:
            self._parents.clear()


class Batch:
    """What all events of a batch do: a change for every row that they may touch."""

    def __init__(self, appends: Iterable[Sequence[Event]], ancestry: Ancestry) -> None:
        self.changes: dict[str, Change] = {}
        self._moving: list[Event] = []
        self._ancestry = ancestry
        for events in appends:
            for event in events:
                self._take(event)
        self.asked = self._asked()
        """Runs whose standing is to be looked up before `settle`."""

    def _take(self, event: Event) -> None:
        kind = type(event)
        adders = _ADDERS.get(kind)
        if adders is not None:
            self._add(event, adders)
        if kind in _MOVERS or moves(event):
            self._moving.append(event)
            change = self._change(event.run_id)
            if isinstance(event, RunStarted):
                change.started = event

    def _change(self, run_id: str) -> Change:
        change = self.changes.get(run_id)
        if change is None:
            change = self.changes[run_id] = Change(run_id)
        return change

    def _add(self, event: Event, adders: Sequence[_Adder]) -> None:
        """To the run's own sums, and to those of the tree, which all above it have too."""
        rolled: list[tuple[int, Any]] = []
        own: list[Any] | None = None
        for index, tree, value in adders:
            more = value(event)
            if more == 0:
                continue
            own = own or self._change(event.run_id).sums
            if index is not None:
                own[index] = plus(own[index], more)
            if tree is not None:
                own[tree] = plus(own[tree], more)
                rolled.append((tree, more))
        if rolled and event.parent_id is not None:
            for run_id in self._ancestry.above(event):
                sums = self._change(run_id).sums
                for tree, more in rolled:
                    sums[tree] = plus(sums[tree], more)

    def _asked(self) -> list[str]:
        asked: dict[str, None] = {}
        for event in self._moving:
            above = self._ancestry.above(event) if isinstance(event, _HOLDING) else ()
            asked.update(dict.fromkeys((event.run_id, *above)))
        return [one for one in asked if one not in self.changes or self.changes[one].started is None]

    def settle(self, stood: Mapping[str, KeptColumns]) -> None:
        """Compute where runs stand from where they stood. A run that is not in there has no row yet."""
        now: dict[str, KeptColumns] = dict(stood)
        for event in self._moving:
            run_id = event.run_id
            before = now.get(run_id, _FIRST)
            after = now[run_id] = move(before, event)
            more = _held(after) - _held(before)
            if more:
                for above in self._ancestry.above(event):
                    if above in now:
                        now[above] = {**now[above], **_changed(held(_standing(now[above]), more, event.at))}
        for run_id, standing in now.items():
            if standing is not stood.get(run_id):
                self._change(run_id).standing = standing


def plus(one: Any, other: Any) -> Any:
    """None is unknown, and so is a sum with it."""
    return None if one is None or other is None else one + other


def move(standing: KeptColumns, event: Event) -> KeptColumns:
    """Where a run stands after an event: the same answer as folding its whole log."""
    now = {name: change(standing, event) for name, change in _MOVERS.get(type(event), ())}
    if moves(event):
        now |= _changed(moved(_standing(standing), event))
    return {**standing, **now} if now else standing


def _standing(standing: KeptColumns) -> Standing:
    return Standing(**{name: standing[name] for name in _STANDS})


def _changed(standing: Standing) -> KeptColumns:
    return {name: getattr(standing, name) for name in _STANDS}


def _held(standing: KeptColumns) -> int:
    waits = standing["approvals"] or standing["parked_until"] is not None
    return holding(_standing(standing)) if waits else 0


def _adders() -> dict[type[Event], tuple[_Adder, ...]]:
    """What each kind of event adds to: a sum of the run, the sum over its tree that goes with it, or both."""
    trees = {
        column.how.of: SUMMED.index(column.name) for column in columns() if isinstance(column.how, Rolled)
    }
    found: dict[type[Event], list[_Adder]] = {}
    if "" in trees:
        found[RunStarted] = [(None, trees[""], lambda event: 1)]
    for column in columns():
        if isinstance(column.how, Added):
            index, tree = SUMMED.index(column.name), trees.get(column.name)
            for kind, value in column.how.by.items():
                found.setdefault(kind, []).append((index, tree, value))
    return {kind: tuple(adders) for kind, adders in found.items()}


def _movers() -> dict[type[Event], tuple[tuple[str, Callable[[KeptColumns, Any], Any]], ...]]:
    found: dict[type[Event], list[tuple[str, Callable[[KeptColumns, Any], Any]]]] = {}
    for column in columns():
        if isinstance(column.how, Moved):
            for kind, change in column.how.by.items():
                found.setdefault(kind, []).append((column.name, change))
    return {kind: tuple(changes) for kind, changes in found.items()}


_ADDERS = _adders()
_MOVERS = _movers()


def may_change(event: Event) -> bool:
    """Whether a row, of the run or of one above it, may be another after this event."""
    return type(event) in _ADDERS or type(event) in _MOVERS or moves(event)


def new_row(change: Change) -> StoredRun:
    """The row of a run that started in this batch."""
    started, standing = change.started, change.standing
    assert started is not None
    assert standing is not None
    values = {**standing, **dict(zip(SUMMED, change.sums, strict=True))}
    for column in columns():
        if isinstance(column.how, Started):
            values[column.name] = column.how.value(started)
    return StoredRun(**values)


def _changed_row(row: StoredRun, change: Change) -> StoredRun:
    added = zip(SUMMED, change.sums, strict=True)
    sums = {name: plus(getattr(row, name), more) for name, more in added if more != 0}
    return msgspec.structs.replace(row, **sums, **(change.standing or {}))


class Rows(dict[str, StoredRun]):
    """Rows that are all in memory: those of a store there, or of a workflow whose log is read again."""

    def __init__(self) -> None:
        super().__init__()
        self._ancestry = Ancestry()

    def take(self, events: Sequence[Event]) -> None:
        self._ancestry.learn(events)
        batch = Batch([events], self._ancestry)
        stood = {one: self[one] for one in batch.asked if one in self}
        batch.settle({one: standing_of([getattr(row, name) for name in MOVED]) for one, row in stood.items()})
        for run_id, change in batch.changes.items():
            if run_id in self:
                self[run_id] = _changed_row(self[run_id], change)
            elif change.started is not None:
                self[run_id] = new_row(change)
