"""Budgets of a tree, and how many of its runs work at the same time.

A run's `Budget` says what it and everything below it may still use. A limit holds for a run and all below it;
a run without a limit of its own is held by those above it. Every child has a share: so much is held back for
it while it runs, whoever else runs, and it may go on beyond that with whatever nobody else holds. What a
child really uses is charged to every ancestor. Turns are charged before a model call and tokens after it. A
tree does not overspend by its calls in flight: each holds as much as the largest that its run has made, and
as much again for the call that sums up.

Nothing here knows a database: after a restart the same calls are made again from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from retinue.errors import BudgetExhausted, Refused
from retinue.types import Limits, Reply, Usage

Dimension = Literal["turns", "input_tokens", "output_tokens", "cost", "children", "agent_calls"]
SHARED: tuple[Dimension, ...] = ("turns", "input_tokens", "output_tokens", "cost")
PAID: tuple[Dimension, ...] = ("input_tokens", "output_tokens", "cost")
"""What a model call takes is known of these when it is over."""
ALL: tuple[Dimension, ...] = (*SHARED, "children", "agent_calls")
PER_MESSAGE: tuple[Dimension, ...] = tuple(dimension for dimension in ALL if dimension != "cost")
"""What is allowed anew with every message of a person. Money is for the whole conversation."""

NEARLY = 1e-9
"""Sums of prices are not exact."""

RUN: dict[Dimension, int] = {"turns": 250, "input_tokens": 7_500_000, "output_tokens": 750_000}
"""What one run is expected to need at the very most: ceilings of `auto` are reckoned by it."""

WORDS: dict[Dimension, str] = {
    "turns": "model calls",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "cost": "US dollars",
    "children": "children",
    "agent_calls": "calls of agents",
}


def say(dimension: Dimension, amount: float) -> str:
    return f"${amount:.4f}" if dimension == "cost" else f"{int(amount)} {WORDS[dimension]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """How many children there may be of a kind, and what says so."""

    most: int
    says: str
    counts: Literal["all", "delegated", "agents"] = "all"
    """`agents` are those that were called as tools, `delegated` the others."""

    def taken(self, used: Mapping[Dimension, float], held: float) -> int:
        agents, every = used["agent_calls"], used["children"] + held
        return int({"all": every, "agents": agents, "delegated": every - agents}[self.counts])

    def speaks_of(self, as_tool: bool) -> bool:
        return self.counts == "all" or (self.counts == "agents") == as_tool


class Budget:
    """What a run may still use. Reserve, charge, release; nothing else changes it.

    `says` names what set a limit, for whoever is refused by it. `sharers` is how many children may want a
    share, in the whole tree. `elastic` are the ceilings that grow with a child that may need more than is
    usual.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        parent: Budget | None = None,
        name: str = "the tree",
        sharers: int = 1,
        says: Mapping[Dimension, str] | None = None,
        places: Sequence[Places] | None = None,
        elastic: Collection[Dimension] = (),
    ) -> None:
        self.limits = limits
        self.parent = parent
        self.name = name
        self.sharers = sharers if parent is None else parent.sharers
        self.used: dict[Dimension, float] = dict.fromkeys(ALL, 0)
        """By this run and everything below it."""
        self.own: dict[Dimension, float] = dict.fromkeys(ALL, 0)
        """By this run alone."""
        self.held: dict[Dimension, float] = dict.fromkeys(ALL, 0)
        """The shares of those below whose nearest limit this is, as far as they are not used."""
        self.share: dict[Dimension, float] = dict.fromkeys(ALL, 0)
        self.call: dict[Dimension, float] = dict.fromkeys(PAID, 0)
        """What the largest model call of this run has taken: so much the next may take."""
        self._open = True
        self._says = says or {}
        self._elastic = frozenset(elastic)
        self._limits: dict[Dimension, float | None] = {
            dimension: getattr(limits, dimension) for dimension in SHARED
        }
        own = () if limits.children is None else (Places(most=limits.children, says=self._named("children")),)
        self.places = tuple(own if places is None else places)
        self._holder: dict[Dimension, Budget | None] = {
            dimension: None
            if parent is None
            else parent
            if parent.limit(dimension) is not None
            else parent._holder[dimension]
            for dimension in SHARED
        }
        self._bounded: tuple[Dimension, ...] = tuple(
            dimension
            for dimension in SHARED
            if self._limits[dimension] is not None or self._holder[dimension] is not None
        )
        """What has a limit, here or above."""

    def limit(self, dimension: Dimension) -> float | None:
        return self._limits[dimension]

    def left(self, dimension: Dimension) -> float | None:
        """What is neither used nor held for others. None: no limit here or above."""
        found = self._tightest(dimension)
        return None if found is None else found[0]

    def _tightest(self, dimension: Dimension) -> tuple[float, Budget] | None:
        """What is left by the limit that leaves the least, and whose limit that is."""
        found: tuple[float, Budget] | None = None
        budget: Budget | None = self
        # What is this run's to use of the share that is held at the next limit: less what it has passed on.
        own, mine = self.unspent(dimension), self.unspent(dimension) - self.held[dimension]
        while budget is not None:
            limit = budget._limits[dimension]
            if limit is not None:
                left = limit - budget.used[dimension] - budget.held[dimension]
                if budget is not self:
                    left = max(left + mine - budget._kept(dimension), min(mine, left + mine))
                left = max(left, 0.0)
                if found is None or left < found[0]:
                    found = left, budget
                if budget is not self:
                    mine = budget.unspent(dimension) - (budget.held[dimension] - own)
                    own = budget.unspent(dimension)
            budget = budget.parent
        return found

    def _kept(self, dimension: Dimension) -> float:
        """What those below leave to the run itself, so that it can sum up: its share, and a model call."""
        limit = self._limits[dimension] or 0
        return max(limit / (self.sharers + 1) - self.own[dimension], self._one_call(dimension))

    def _one_call(self, dimension: Dimension) -> float:
        return 1 if dimension == "turns" else self.call[dimension]

    def unspent(self, dimension: Dimension) -> float:
        """What is still held back for this run, where there is a limit above it.

        What those below it use is theirs, unless it has a limit of its own, out of which they live.
        """
        if not self._open:
            return 0
        used = self.own if self._limits[dimension] is None else self.used
        left = self.share[dimension] - used[dimension]
        return left if left > 0 else 0.0

    def carve(self, wanted: Limits, *, name: str, turns: int = 1, recorded: bool = False) -> Budget:
        """A budget for a child, with its share of every limit above it.

        `turns` is how many model calls the child may make by itself. Raises `Refused`, which says what is
        left of which limit, when there is nothing to give. `recorded`: this is played back, and there was
        something then.
        """
        self._stretch(turns)
        child = Budget(wanted, parent=self, name=name)
        for dimension in () if recorded else child._bounded:
            found = child._tightest(dimension)
            if found is not None and found[0] < (1 if dimension == "turns" else NEARLY):
                limit = found[1].limit(dimension) or 0
                left = limit - found[1].used[dimension] - found[1].held[dimension]
                raise Refused(
                    f"not started: {say(dimension, max(0, left))} left of {found[1]._amount(dimension)}, "
                    "which is not enough for another child. Finish with what you have.",
                    not_run="limit",
                )
        child._take_share(kept=True)
        return child

    def adopt(self, limits: Limits, *, name: str, past: Budget | None = None, turns: int = 1) -> Budget:
        """The budget of a child that was started before a restart, with what it was given then.

        `past` is what it has used already and what is charged up here already.
        """
        self._stretch(turns)
        child = Budget(limits, parent=self, name=name)
        if past is not None:
            child.used, child.own = dict(past.used), dict(past.own)
        child._take_share(kept=False)
        return child

    def _take_share(self, *, kept: bool) -> None:
        """An equal part of the nearest limit above for every child there may be, as far as it is there; and
        no less than a model call of its parent, as long as nobody knows what one of its own takes.

        `kept`: and not what the parent keeps for itself. One that had its share before had it beside that.
        """
        for dimension in SHARED:
            holder = self._holder[dimension]
            if holder is None:
                continue
            part = (holder.limit(dimension) or 0) / (self.sharers + 1)
            if dimension != "cost":
                part = max(1, int(part))
            if self.parent is not None and kept:
                part = max(part, self.parent._one_call(dimension))
            own = self._limits[dimension]
            there = holder._free(dimension, kept=kept)
            self.share[dimension] = part if own is None else min(part, own)
            self.share[dimension] = min(self.share[dimension], there + self._counted(dimension))
            holder.held[dimension] += self.unspent(dimension)

    def _free(self, dimension: Dimension, *, kept: bool) -> float:
        """What may be promised of the limit that is here. `kept`: and not what the run keeps for itself."""
        there = (self.limit(dimension) or 0) - self.used[dimension] - self.held[dimension]
        there -= self._kept(dimension) if kept else 0
        if self._holder[dimension] is not None:  # no promise is larger than the one it rests on
            there = min(there, self.unspent(dimension) - self.held[dimension])
        return max(0.0, there)

    def _hold_calls(self, count: int) -> None:
        """Hold back as much as so many calls of this run may take, as far as it is there."""
        for dimension in PAID:
            holder = self._holder[dimension]
            more = count * self.call[dimension] - self.unspent(dimension)
            if holder is not None and more > 0:
                more = min(more, holder._free(dimension, kept=True))
                self.share[dimension] += more
                holder.held[dimension] += more

    def _counted(self, dimension: Dimension) -> float:
        return (self.own if self._limits[dimension] is None else self.used)[dimension]

    def _stretch(self, turns: int) -> None:
        """Ceilings that nobody set hold for runs of the usual length: one that may be longer has its room."""
        beyond = turns - RUN["turns"]
        if beyond <= 0:
            return
        top = self
        while top.parent is not None:
            top = top.parent
        for dimension in top._elastic:
            limit = top._limits[dimension]
            if limit is not None:
                top._limits[dimension] = limit + beyond * RUN[dimension] / RUN["turns"]

    def charge(self, dimension: Dimension, amount: float) -> None:
        """Count what was used, here and in every ancestor."""
        budget: Budget | None = self
        while budget is not None:
            holder = budget._holder.get(dimension)
            before = budget.unspent(dimension) if holder is not None else 0
            budget.used[dimension] += amount
            if budget is self:
                budget.own[dimension] += amount
            if holder is not None:  # what it has less to expect need not be held for it any more
                holder.held[dimension] -= before - budget.unspent(dimension)
            budget = budget.parent

    def charge_usage(self, usage: Usage) -> None:
        self.charge("input_tokens", usage.input_tokens)
        self.charge("output_tokens", usage.output_tokens)
        if usage.cost:
            self.charge("cost", usage.cost)

    def charge_call(self, usage: Usage) -> None:
        """Count a model call of this run, and expect as much of the next."""
        self.charge_usage(usage)
        self.expect_call(usage)

    def expect_call(self, usage: Usage) -> None:
        """Hold back for the call to sum up with what one like this takes."""
        for dimension in PAID:
            self.call[dimension] = max(self.call[dimension], getattr(usage, dimension) or 0)
        self._hold_calls(1)

    def release(self) -> None:
        """Give back what was held and not used. The second time does nothing."""
        for dimension, holder in self._holder.items():
            if holder is not None:
                holder.held[dimension] -= self.unspent(dimension)
        self._open = False

    def renew(self) -> None:
        """A person has spoken: what is counted per message begins anew."""
        for dimension in PER_MESSAGE:
            self.used[dimension] = self.own[dimension] = 0

    def check(self, run_id: str) -> None:
        """Before a model call: is there anything left, here and above? Of what others share, a whole call."""
        for dimension in self._bounded:
            found = self._tightest(dimension)
            if found is None:
                continue
            needed = 0 if found[1] is self else self._one_call(dimension)
            if found[0] == 0 or found[0] + NEARLY < needed:
                left = f"{say(dimension, found[0])} left of {found[1]._amount(dimension)}"
                raise BudgetExhausted(f"the budget is used up: {left}", run_id=run_id)

    def short(self) -> str | None:
        """Why the next call has to be the one that sums up: after another there is none to do so with."""
        for dimension in PAID:
            found = self._tightest(dimension)
            if found is not None and found[0] + NEARLY < 2 * self.call[dimension]:
                left = f"{say(dimension, found[0])} left of {found[1]._amount(dimension)}"
                took = say(dimension, self.call[dimension])
                return f"the budget is nearly used up: {left}, and a call took {took}"
        return None

    def refuse_unknown_cost(self, reply: Reply, run_id: str) -> None:
        """A limit on money cannot hold for a model whose price nobody knows: stop after its first answer."""
        found = self._tightest("cost")
        if reply.usage.cost is None and found is not None:
            limit = found[1]._amount("cost")
            if not reply.usage.total_tokens:
                raise BudgetExhausted(
                    f"there is a limit of {limit}, but {reply.model} did not "
                    "say what its answer used: drop the limit, or limit turns and tokens instead",
                    run_id=run_id,
                )
            raise BudgetExhausted(
                f"there is a limit of {limit}, but the price of {reply.model} "
                f'is not known: give it under [prices."{reply.model}"] in the settings, or drop the limit',
                run_id=run_id,
            )

    def refuse_unpriced(self, run_id: str) -> None:
        """Nor can it hold beside a call of which nobody knows what it took."""
        found = self._tightest("cost")
        if found is not None:
            raise BudgetExhausted(
                f"there is a limit of {found[1]._amount('cost')}, but a model call was cut off, and nobody "
                "knows what it cost: resume the run if it should go on, or drop the limit",
                run_id=run_id,
            )

    def begin_turn(self, run_id: str, *, unpriced: bool = False, recorded: bool = False) -> None:
        """`unpriced`: the run has used something that nobody knows the price of. `recorded`: this is played
        back, and the turn was made then."""
        if not recorded:
            self.check(run_id)
        if unpriced:
            self.refuse_unpriced(run_id)
        self._hold_calls(2)
        self.charge("turns", 1)

    def says(self, dimension: Dimension) -> str:
        """What set the limit that is here."""
        return self._says.get(dimension) or self._named(dimension)

    def _named(self, dimension: Dimension) -> str:
        return f"limits.{dimension} of {self.name}"

    def _amount(self, dimension: Dimension) -> str:
        return f"{say(dimension, self.limit(dimension) or 0)} ({self.says(dimension)})"

    def admit_child(self, *, as_tool: bool = False) -> None:
        """Count one more child in every ancestor, or refuse and say the count. Counted for good."""
        self.check_children(as_tool=as_tool)
        self.charge("children", 1)
        if as_tool:
            self.charge("agent_calls", 1)

    def check_children(self, count: int = 1, *, as_tool: bool = False) -> None:
        """Refuse, with the count and the limit, if there is no room for so many children, here or above."""
        budget: Budget | None = self
        while budget is not None:
            for places in budget.places:
                taken = places.taken(budget.used, budget.held["children"])
                if places.speaks_of(as_tool) and taken + count > places.most:
                    refusal = Refused(_no_place(count, taken, places), not_run="limit")
                    refusal.too_many = taken < places.most
                    raise refusal
            budget = budget.parent

    def places_left(self) -> int:
        """How many children may still be delegated to, here and above."""
        left: list[int] = []
        budget: Budget | None = self
        while budget is not None:
            for places in (each for each in budget.places if each.speaks_of(False)):
                left.append(places.most - places.taken(budget.used, budget.held["children"]))
            budget = budget.parent
        return max(0, min(left, default=0))

    def hold_places(self, count: int) -> HeldPlaces:
        """Keep places for so many children that are about to be started together, or refuse all of them."""
        self.check_children(count)
        return HeldPlaces(self, count)


class HeldPlaces:
    """Places that are kept for the children of one batch, so that nobody takes them in between."""

    def __init__(self, budget: Budget, count: int) -> None:
        self._budget = budget
        self._count = 0
        self._hold(count)

    def _hold(self, count: int) -> None:
        self._count += count
        budget: Budget | None = self._budget
        while budget is not None:
            budget.held["children"] += count
            budget = budget.parent

    def take(self) -> None:
        """One of them is about to be counted as started."""
        if self._count:
            self._hold(-1)

    def close(self) -> None:
        """Whoever has not started by now does not."""
        self._hold(-self._count)


def _no_place(count: int, taken: int, places: Places) -> str:
    what = "agents already called" if places.counts == "agents" else "children already started"
    if count == 1 or taken >= places.most:
        since = "" if places.counts == "all" else " for this message"
        return (
            f"not started: {taken} of {places.most} {what}{since} ({places.says}). "
            "Work with the reports you have."
        )
    return (
        f"not started, none of them: {count} tasks, and room for {places.most - taken} of {places.most} "
        f"children ({places.says}). Give at most {places.most - taken} tasks."
    )


class Slots:
    """How many children of a tree run at the same time.

    A child that waits for children of its own lends its slot to them, so that a deep tree cannot block
    itself with parents that hold every slot. An agent may have a limit of its own for what is below it:
    then a run there needs a slot of each, the nearest first.
    """

    def __init__(self, count: int) -> None:
        self.resize(count)
        self._holding: set[str] = set()
        self._waits: dict[str, int] = {}
        self._owed: set[str] = set()
        self._needed: dict[str, tuple[asyncio.Semaphore, ...]] = {}
        self._below: dict[str, tuple[asyncio.Semaphore, ...]] = {}

    def resize(self, count: int) -> None:
        """Before the first is taken."""
        self._free = asyncio.Semaphore(count)

    def place(self, run_id: str, parent_id: str | None, count: int | None) -> None:
        """Say where a run is in the tree, and how many may run at the same time below it."""
        needed = self._below.get(parent_id or "", (self._free,))
        if len(needed) > 1:
            self._needed[run_id] = needed
        if len(needed) > 1 or count is not None:
            self._below[run_id] = needed if count is None else (asyncio.Semaphore(count), *needed)

    async def take(self, run_id: str) -> None:
        taken: list[asyncio.Semaphore] = []
        try:
            for semaphore in self._needed.get(run_id, (self._free,)):
                await semaphore.acquire()
                taken.append(semaphore)
        except BaseException:
            for semaphore in taken:
                semaphore.release()
            raise
        self._holding.add(run_id)

    def give_back(self, run_id: str) -> None:
        if run_id in self._holding:
            self._holding.discard(run_id)
            for semaphore in self._needed.get(run_id, (self._free,)):
                semaphore.release()

    def drop(self, run_id: str) -> None:
        """A run has ended, whatever it was waiting for."""
        self.give_back(run_id)
        self._waits.pop(run_id, None)
        self._owed.discard(run_id)
        self._needed.pop(run_id, None)
        self._below.pop(run_id, None)

    @contextlib.asynccontextmanager
    async def lent(self, run_id: str) -> AsyncGenerator[None]:
        """While a run waits. One that is stopped meanwhile claims no slot: it needs none to end."""
        self.lend(run_id)
        try:
            yield
        except BaseException:
            self._waited(run_id)  # it may have been one call of it alone: its next claims the slot again
            raise
        await self.reclaim(run_id)

    def lend(self, run_id: str) -> None:
        """A run begins to wait, for a child or for a person."""
        self._waits[run_id] = self._waits.get(run_id, 0) + 1
        if run_id in self._holding:
            self._owed.add(run_id)
            self.give_back(run_id)

    async def reclaim(self, run_id: str) -> None:
        """A run stops waiting; it goes on once a slot is free again. One that has ended needs none."""
        if not self._waited(run_id) or run_id not in self._owed:
            return
        self._owed.discard(run_id)
        try:
            await self.take(run_id)
        except BaseException:
            self._owed.add(run_id)
            raise
        if run_id in self._waits:  # another call of it waits since: whom it waits for may need this very slot
            self._owed.add(run_id)
            self.give_back(run_id)

    def _waited(self, run_id: str) -> bool:
        """One thing less that a run waits for. Whether it was the last."""
        if run_id not in self._waits:
            return False
        self._waits[run_id] -= 1
        if self._waits[run_id]:
            return False
        del self._waits[run_id]
        return True
