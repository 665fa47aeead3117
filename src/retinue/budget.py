"""Budgets of a tree, and the clocks of its runs.

A run's `Budget` says what it and everything below it may still use. A child's is carved out of its
parent's before the child starts: the parent holds that part back until the child ends, and gets the
unused rest again. What a child really uses is charged to every ancestor. Turns are charged before a model
call and tokens after it, so a tree overspends by its calls in flight at most.

Nothing here knows a database: after a restart the same calls are made again from the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from retinue.errors import BudgetExhausted, Refused
from retinue.types import Limits, Reply, Usage

Dimension = Literal["turns", "input_tokens", "output_tokens", "cost", "children"]
SHARED: tuple[Dimension, ...] = ("turns", "input_tokens", "output_tokens", "cost")

WORDS: dict[Dimension, str] = {
    "turns": "model calls",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "cost": "US dollars",
    "children": "children",
}


def say(dimension: Dimension, amount: float) -> str:
    return f"${amount:.4f}" if dimension == "cost" else f"{int(amount)} {WORDS[dimension]}"


class Budget:
    """What a run may still use. Reserve, charge, release; nothing else changes it."""

    def __init__(self, limits: Limits, *, parent: Budget | None = None, name: str = "the tree") -> None:
        self.limits = limits
        self.parent = parent
        self.name = name
        self.used: dict[Dimension, float] = dict.fromkeys((*SHARED, "children"), 0)
        self.held: dict[Dimension, float] = dict.fromkeys((*SHARED, "children"), 0)
        self._open = True
        self._limits: dict[Dimension, float | None] = {
            dimension: getattr(limits, dimension) for dimension in (*SHARED, "children")
        }
        self._bounded: tuple[Dimension, ...] = tuple(
            dimension
            for dimension in SHARED
            if self._limits[dimension] is not None or (parent is not None and dimension in parent._bounded)
        )
        """What has a limit, here or above."""

    def limit(self, dimension: Dimension) -> float | None:
        return self._limits[dimension]

    def left(self, dimension: Dimension) -> float | None:
        """What is neither used nor held for a running child. None: no limit here or above."""
        found: float | None = None
        budget: Budget | None = self
        below: Budget | None = None
        while budget is not None:
            limit = budget._limits[dimension]
            if limit is not None:
                held = budget.held[dimension]
                if below is not None and held:  # this run's own part is held back too, and is its to use
                    held -= below.unspent(dimension)
                left = limit - budget.used[dimension] - held
                if found is None or left < found:
                    found = left
            below, budget = budget, budget.parent
        return found if found is None or found > 0 else 0.0

    def unspent(self, dimension: Dimension) -> float:
        """The part of this budget that its parent still holds back for it."""
        limit = self._limits[dimension]
        if limit is None or not self._open:
            return 0
        left = limit - self.used[dimension]
        return left if left > 0 else 0.0

    def carve(self, wanted: Limits, *, sharers: int, name: str, turns: int = 1) -> Budget:
        """A budget for a child. Where it wants nothing in particular it gets a fair share of the whole.

        `sharers` is how many children are expected to want a part, `turns` how many model calls the
        child may make by itself. Raises `Refused`, which says what is left, when there is nothing to give.
        """
        granted: dict[str, float | int | None] = {}
        for dimension in SHARED:
            left, asked, whole = self.left(dimension), getattr(wanted, dimension), self.limit(dimension)
            if left is None or whole is None:
                granted[dimension] = asked
                continue
            # A part of the whole and not of what is left, so that it does not matter which child comes first,
            # which ended before, and what the parent has used of its own part. Only where half of another
            # such part would not remain, half of what is left: so there is always some for the next.
            fair = max(whole / (sharers + 1), turns if dimension == "turns" else 0)
            share = fair if left >= 1.5 * fair else left / 2
            # The parent keeps one model call to sum up with.
            most = left - 1 if dimension == "turns" else left
            amount = min(max(share, 1) if asked is None and dimension != "cost" else asked or share, most)
            granted[dimension] = amount if dimension == "cost" else int(amount)
            if amount <= 0:
                raise Refused(
                    f"not started: {self.name} has {say(dimension, left)} left of its limit of "
                    f"{say(dimension, self._tightest(dimension))}, which is not enough for another child. "
                    "Finish with what you have.",
                    not_run="limit",
                )
        child = Budget(
            msgspec.structs.replace(wanted, **granted),
            parent=self,
            name=name,
        )
        for dimension in SHARED:
            self.held[dimension] += child.unspent(dimension) if self.limit(dimension) is not None else 0
        return child

    def adopt(self, limits: Limits, *, name: str, used: Mapping[Dimension, float] | None = None) -> Budget:
        """The budget of a child that was started before a restart, with what it was given then.

        `used` is what it has used already and what is charged up here already.
        """
        child = Budget(limits, parent=self, name=name)
        child.used |= used or {}
        for dimension in SHARED:
            self.held[dimension] += child.unspent(dimension) if self.limit(dimension) is not None else 0
        return child

    def charge(self, dimension: Dimension, amount: float) -> None:
        """Count what was used, here and in every ancestor."""
        budget: Budget | None = self
        freed = 0.0  # what the budget below has less to expect, and so need not be held for it any more
        while budget is not None:
            if freed and budget._limits[dimension] is not None:
                budget.held[dimension] -= freed
            before = budget.unspent(dimension)
            budget.used[dimension] += amount
            freed = before - budget.unspent(dimension)
            budget = budget.parent

    def charge_usage(self, usage: Usage) -> None:
        self.charge("input_tokens", usage.input_tokens)
        self.charge("output_tokens", usage.output_tokens)
        if usage.cost:
            self.charge("cost", usage.cost)

    def release(self) -> None:
        """Give back to the parent what was not used. The second time does nothing."""
        if self._open and self.parent is not None:
            for dimension in SHARED:
                if self.parent.limit(dimension) is not None:
                    self.parent.held[dimension] -= self.unspent(dimension)
        self._open = False

    def check(self, run_id: str) -> None:
        """Before a model call: is there anything left, here and above?"""
        for dimension in self._bounded:
            if self.left(dimension) == 0:
                raise BudgetExhausted(
                    f"the budget is used up: {say(dimension, 0)} left of "
                    f"{say(dimension, self._tightest(dimension))}",
                    run_id=run_id,
                )

    def refuse_unknown_cost(self, reply: Reply, run_id: str) -> None:
        """A limit on money cannot hold for a model whose price nobody knows: stop after its first answer."""
        if reply.usage.cost is None and self.left("cost") is not None:
            if not reply.usage.total_tokens:
                raise BudgetExhausted(
                    f"there is a limit of {say('cost', self._tightest('cost'))}, but {reply.model} did not "
                    "say what its answer used: drop the limit, or limit turns and tokens instead",
                    run_id=run_id,
                )
            raise BudgetExhausted(
                f"there is a limit of {say('cost', self._tightest('cost'))}, but the price of {reply.model} "
                f'is not known: give it under [prices."{reply.model}"] in the settings, or drop the limit',
                run_id=run_id,
            )

    def begin_turn(self, run_id: str) -> None:
        self.check(run_id)
        self.charge("turns", 1)

    def _tightest(self, dimension: Dimension) -> float:
        """The limit that runs out first, for messages."""
        best: tuple[float, float] | None = None
        budget: Budget | None = self
        while budget is not None:
            limit = budget.limit(dimension)
            if limit is not None:
                left = limit - budget.used[dimension]
                if best is None or left < best[0]:
                    best = (left, limit)
            budget = budget.parent
        return best[1] if best else 0

    def admit_child(self, limit_name: str) -> None:
        """Count one more child in every ancestor, or refuse and say the count. Counted for good."""
        self.check_children(limit_name)
        self.charge("children", 1)

    def check_children(self, limit_name: str) -> None:
        """Refuse and say the count if there is no room for another child, here or above."""
        budget: Budget | None = self
        while budget is not None:
            limit = budget.limits.children
            if limit is not None and budget.used["children"] >= limit:
                raise Refused(
                    f"not started: {int(budget.used['children'])} of {limit} children already started in "
                    f"this workflow ({limit_name}). Work with the reports you have.",
                    not_run="limit",
                )
            budget = budget.parent


class Clock:
    """A run's time limit, which stands still while a person is asked.

    `pause` and `resume` nest, and reach every ancestor: a parent's clock does not run while a child of
    its waits for a person.
    """

    def __init__(
        self,
        seconds: float | None,
        *,
        parent: Clock | None = None,
        used: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self.parent = parent
        self._now = now
        self._used = used
        self._since: float | None = None
        self._paused = 0
        self._timeout: asyncio.Timeout | None = None

    @property
    def elapsed(self) -> float:
        """Seconds that counted."""
        running = 0.0 if self._since is None or self._paused else self._now() - self._since
        return self._used + running

    @property
    def left(self) -> float | None:
        own = None if self.seconds is None else max(0.0, self.seconds - self.elapsed)
        above = self.parent.left if self.parent else None
        return own if above is None else above if own is None else min(own, above)

    def start(self) -> asyncio.Timeout:
        """The timeout to run under: `async with clock.start(): …`."""
        self._since = self._now()
        self._timeout = asyncio.timeout(None if self.seconds is None or self._paused else self._rest())
        return self._timeout

    def stop(self) -> None:
        self._used, self._since, self._timeout = self.elapsed, None, None

    @property
    def expired(self) -> bool:
        return self._timeout is not None and self._timeout.expired()

    def expire(self) -> None:
        """Time out now."""
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def pause(self) -> None:
        if self._paused == 0:
            self._used = self.elapsed
            if self._timeout is not None and not self._timeout.expired():
                self._timeout.reschedule(None)
        self._paused += 1
        if self.parent is not None:
            self.parent.pause()

    def resume(self) -> None:
        self._paused -= 1
        if self._paused == 0:
            if self._since is not None:
                self._since = self._now()
            if self._timeout is not None and self.seconds is not None and not self._timeout.expired():
                self._timeout.reschedule(asyncio.get_running_loop().time() + self._rest())
        if self.parent is not None:
            self.parent.resume()

    def _rest(self) -> float:
        return max(0.0, (self.seconds or 0.0) - self._used)


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

    def lend(self, run_id: str) -> None:
        """A run begins to wait, for a child or for a person."""
        self._waits[run_id] = self._waits.get(run_id, 0) + 1
        if run_id in self._holding:
            self._owed.add(run_id)
            self.give_back(run_id)

    async def reclaim(self, run_id: str) -> None:
        """A run stops waiting; it goes on once a slot is free again. One that has ended needs none."""
        if run_id not in self._waits:
            return
        self._waits[run_id] -= 1
        if self._waits[run_id] == 0:
            del self._waits[run_id]
            if run_id in self._owed:
                self._owed.discard(run_id)
                await self.take(run_id)
