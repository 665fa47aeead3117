"""Budgets of a tree: never overspent, never leaked; clocks that stand still; slots that cannot block."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from retinue.budget import SHARED, Budget, Places, Slots
from retinue.clock import Clock
from retinue.engine.rebuild import charge
from retinue.errors import BudgetExhausted, Refused
from retinue.events import ChildEnded, ChildStarted
from retinue.fold import apply
from retinue.run_state import Before, RunState
from retinue.types import Limits, Report, Usage


class TreeOfBudgets(RuleBasedStateMachine):
    """Random trees, spending, failures and cancels."""

    @initialize(turns=st.integers(1, 60), tokens=st.one_of(st.none(), st.integers(1, 5000)))
    def begin(self, turns: int, tokens: int | None) -> None:
        self.root = Budget(Limits(turns=turns, output_tokens=tokens, children=20), sharers=20)
        self.open: list[Budget] = [self.root]
        self.calls: dict[str, int] = {}
        self.in_flight_excess = 0

    @rule(pick=st.integers(0, 50), turns=st.one_of(st.none(), st.integers(1, 20)))
    def carve(self, pick: int, turns: int | None) -> None:
        parent = self.open[pick % len(self.open)]
        before = parent.left("turns")
        try:
            child = parent.carve(Limits(turns=turns), name="c")
        except Refused:
            return
        try:
            parent.admit_child()
        except Refused:
            child.release()
            return
        assert before is not None
        assert 0 <= child.share["turns"] <= before
        left = child.left("turns")
        assert left is not None
        assert left >= 1
        assert left >= child.share["turns"], "what it was promised is there"
        self.open.append(child)

    @rule(pick=st.integers(0, 50), tokens=st.integers(0, 300))
    def spend(self, pick: int, tokens: int) -> None:
        budget = self.open[pick % len(self.open)]
        try:
            budget.begin_turn("r")
        except BudgetExhausted:
            return
        budget.charge_usage(Usage(output_tokens=tokens))

    @rule(pick=st.integers(0, 50))
    def end(self, pick: int) -> None:
        """A child ends, with everything below it, however it ended."""
        budget = self.open[pick % len(self.open)]
        if budget is self.root:
            return
        ending = [b for b in self.open if self._below(b, budget)]
        for each in sorted(ending, key=self._depth, reverse=True):
            each.release()
            each.release()
            self.open.remove(each)

    @rule(pick=st.integers(0, 50))
    def take_up(self, pick: int) -> None:
        """A child that was stopped goes on after a restart: with what it had, less what it had used."""
        budget = self.open[pick % len(self.open)]
        if budget is self.root or any(b.parent is budget for b in self.open):
            return
        assert budget.parent is not None
        left, children = budget.left("turns"), budget.used["children"]
        budget.release()
        self.open.remove(budget)
        again = budget.parent.adopt(budget.limits, name="c", past=budget)
        if self._nearest_limit(again, "turns") is self.root:
            assert again.left("turns") == left
        assert again.used["children"] == children
        self.open.append(again)

    def _below(self, budget: Budget | None, top: Budget) -> bool:
        while budget is not None:
            if budget is top:
                return True
            budget = budget.parent
        return False

    def _depth(self, budget: Budget) -> int:
        return 0 if budget.parent is None else 1 + self._depth(budget.parent)

    @invariant()
    def turns_are_never_overspent(self) -> None:
        if not hasattr(self, "root"):
            return
        for budget in self.open:
            limit = budget.limits.turns
            assert limit is None or budget.used["turns"] <= limit

    @invariant()
    def what_is_held_is_what_open_children_may_still_use(self) -> None:
        if not hasattr(self, "root"):
            return
        for budget in self.open:
            for dimension in SHARED:
                if budget.limit(dimension) is not None:
                    below = [b for b in self.open if self._nearest_limit(b, dimension) is budget]
                    held = sum(each.unspent(dimension) for each in below)
                    assert budget.held[dimension] == pytest.approx(held)

    @invariant()
    def nobody_is_left_without_what_it_was_promised(self) -> None:
        """Below a limit of an agent's own, the promise is one to all that are there together."""
        for budget in getattr(self, "open", ()):
            if budget is not self.root and self._nearest_limit(budget, "turns") is not self.root:
                continue
            left = budget.left("turns")
            assert left is not None
            assert left >= budget.unspent("turns") - budget.held["turns"]

    def _nearest_limit(self, budget: Budget, dimension: Any) -> Budget | None:
        above = budget.parent
        while above is not None and above.limit(dimension) is None:
            above = above.parent
        return above

    @invariant()
    def nothing_leaks_once_every_child_has_ended(self) -> None:
        if hasattr(self, "root") and self.open == [self.root]:
            assert all(abs(held) < 1e-9 for held in self.root.held.values())


TreeOfBudgets.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestTreeOfBudgets = TreeOfBudgets.TestCase


def test_what_a_child_uses_is_charged_to_every_ancestor() -> None:
    root = Budget(Limits(output_tokens=1000))
    child = root.carve(Limits(output_tokens=400), name="c")
    grandchild = child.carve(Limits(output_tokens=100), name="g")
    grandchild.charge_usage(Usage(output_tokens=60))
    assert (root.used["output_tokens"], child.used["output_tokens"]) == (60, 60)
    assert root.left("output_tokens") == 600, "the child's 400 are held back, used or not"
    grandchild.release()
    child.release()
    assert root.left("output_tokens") == 940


def test_each_expected_child_gets_the_same_whoever_ended_before_it_began() -> None:
    """The parent's own first call is paid from the same budget: it is no child's loss."""

    def shares(ended: int) -> list[dict[Any, float]]:
        root = Budget(Limits(turns=40, input_tokens=4000, output_tokens=400, cost=4.0), sharers=3)
        root.begin_turn("r")
        root.charge_usage(Usage(input_tokens=100, output_tokens=50, cost=0.1))
        children: list[Budget] = []
        for number in range(3):
            if number == 2:  # some of the first two have ended by now, after some work
                for child in children[:ended]:
                    child.begin_turn("c")
                    child.charge_usage(Usage(input_tokens=20, output_tokens=10, cost=0.01))
                    child.release()
            children.append(root.carve(Limits(), name="c"))
        return [{name: child.share[name] for name in SHARED} for child in children]

    fair = pytest.approx({"turns": 10, "input_tokens": 1000, "output_tokens": 100, "cost": 1.0})
    assert [shares(ended) for ended in range(3)] == [[fair] * 3] * 3


def test_a_refused_start_says_what_is_left() -> None:
    root = Budget(Limits(turns=1))
    root.begin_turn("r")
    with pytest.raises(Refused) as refused:
        root.carve(Limits(), name="c")
    assert str(refused.value) == (
        "not started: 0 model calls left of 1 model calls (limits.turns of the tree), which is not enough for "
        "another child. Finish with what you have."
    )


def test_a_refused_child_names_the_limit_and_the_count() -> None:
    says = "policy flat, delegation.max_children = 2"
    root = Budget(Limits(), places=[Places(most=2, says=says, counts="delegated")])
    root.admit_child()
    root.admit_child()
    with pytest.raises(Refused) as refused:
        root.admit_child()
    assert str(refused.value) == (
        "not started: 2 of 2 children already started for this message "
        "(policy flat, delegation.max_children = 2). Work with the reports you have."
    )


async def test_a_clock_stands_still_while_a_person_is_asked_and_so_do_its_ancestors() -> None:
    time = [0.0]
    parent = Clock(100, now=lambda: time[0])
    child = Clock(10, parent=parent, now=lambda: time[0])
    async with parent.start(), child.start():
        time[0] = 4
        child.pause()
        time[0] = 1000
        child.resume()
        time[0] = 1003
        assert (child.elapsed, parent.elapsed) == (7, 7)
        assert (child.left, parent.left) == (3, 93)


async def test_a_run_whose_clock_is_paused_does_not_time_out() -> None:
    clock = Clock(0.02)
    async with clock.start():
        clock.pause()
        await asyncio.sleep(0.05)
        clock.resume()
    with pytest.raises(TimeoutError):
        async with Clock(0.01).start():
            await asyncio.Event().wait()


async def test_parents_that_wait_lend_their_slots_so_a_deep_tree_cannot_block_itself() -> None:
    slots = Slots(2)
    done: list[str] = []

    async def node(name: str, depth: int) -> None:
        await slots.take(name)
        try:
            if depth < 3:
                slots.lend(name)
                await asyncio.gather(*(node(f"{name}{n}", depth + 1) for n in range(3)))
                await slots.reclaim(name)
            done.append(name)
        finally:
            slots.give_back(name)

    async with asyncio.timeout(60):
        await asyncio.gather(node("a", 1), node("b", 1))
    assert len(done) == 2 * (1 + 3 + 9)


async def test_a_run_that_ended_while_it_waited_claims_no_slot() -> None:
    slots = Slots(1)
    await slots.take("parent")
    slots.lend("parent")
    slots.drop("parent")
    await slots.reclaim("parent")
    async with asyncio.timeout(60):
        await slots.take("another")


async def test_a_run_that_waits_again_while_it_takes_its_slot_back_lends_that_too() -> None:
    slots = Slots(1)
    await slots.take("parent")
    slots.lend("parent")  # for its first child
    await slots.take("another")  # is faster than the parent when that child has ended
    back = asyncio.create_task(slots.reclaim("parent"))
    await asyncio.sleep(0)
    slots.lend("parent")  # for its second child
    slots.give_back("another")
    async with asyncio.timeout(60):
        await slots.take("second child")
    slots.give_back("second child")
    await back
    await slots.reclaim("parent")
    later = asyncio.create_task(slots.take("another"))
    await asyncio.sleep(0)
    assert not later.done(), "the parent has its slot again"
    slots.drop("parent")
    await later


@pytest.mark.parametrize("moment", ["while it waits", "while it takes its slot back"])
async def test_a_call_that_is_stopped_by_itself_does_not_leave_its_run_without_a_slot(moment: str) -> None:
    slots, go = Slots(1), asyncio.Event()
    await slots.take("parent")

    async def call() -> None:
        async with slots.lent("parent"):
            await go.wait()

    stopped = asyncio.create_task(call())
    await asyncio.sleep(0)
    await slots.take("another")
    if moment == "while it takes its slot back":
        go.set()
        await asyncio.sleep(0)
    stopped.cancel()
    await asyncio.wait([stopped])
    assert stopped.cancelled()
    slots.give_back("another")
    go.set()
    await call()
    later = asyncio.create_task(slots.take("another"))
    await asyncio.sleep(0)
    assert not later.done(), "its next call has brought the slot back"
    slots.drop("parent")
    await later


def test_what_shortened_a_report_is_charged_again_after_a_restart() -> None:
    """It stands in the parent's log alone: with the child's end, on top of what the child used."""
    envelope: dict[str, Any] = {"run_id": "r", "root_id": "r", "parent_id": None, "depth": 0, "at": 1.0}
    used, told = (Usage(input_tokens=n, output_tokens=n // 10, cost=n / 1000) for n in (100, 130))
    parent, child = RunState(), RunState()
    child.use(used)
    child.report = Report(run_id="c", status="completed", text="t", agent="a", usage=used)
    apply(parent, ChildStarted(**envelope, seq=1, child_id="c", agent="a", prompt="p", background=True))
    words = Usage(input_tokens=30, output_tokens=3, cost=0.03)
    end: dict[str, Any] = {"child_id": "c", "agent": "a", "status": "completed"}
    apply(parent, ChildEnded(**envelope, **end, seq=2, usage=told, telling=words))
    budget = Budget(Limits(input_tokens=1000, output_tokens=1000, cost=1.0))
    tree: Any = SimpleNamespace(past={"c": child})
    charge(tree, budget, parent, Before())
    assert (budget.left("input_tokens"), budget.left("output_tokens")) == (870, 987)
    assert budget.left("cost") == pytest.approx(0.87)


@pytest.mark.parametrize(("paid", "cost"), [(True, 0.83), (False, 0.06)])
def test_of_what_was_before_the_price_alone_counts_and_that_where_it_is_paid_from_here(
    paid: bool, cost: float
) -> None:
    envelope: dict[str, Any] = {"run_id": "r", "root_id": "r", "parent_id": None, "depth": 0, "at": 1.0}
    parent, over, again = RunState(), RunState(), RunState()
    parent.use(Usage(input_tokens=100, output_tokens=10, cost=0.3))
    parent.turns = 5
    before = Before(
        turns=3,
        usage=Usage(input_tokens=80, output_tokens=8, cost=0.27),
        spent=0.27,
        children={"over": 1, "again": 1},
    )
    for seq, child in enumerate(("over", "again"), 1):
        apply(parent, ChildStarted(**envelope, seq=seq, child_id=child, agent="a", prompt="p"))
        used = Usage(input_tokens=40, output_tokens=4, cost=0.25)
        end = ChildEnded(**envelope, seq=seq + 2, child_id=child, agent="a", status="completed", usage=used)
        apply(parent, end)
    apply(parent, ChildStarted(**envelope, seq=5, child_id="again", agent="a", prompt="p", continues=True))
    again.use(Usage(input_tokens=60, output_tokens=6, cost=0.28))
    again.turns = 4
    again.asked_again = [
        Before(turns=1, usage=Usage(input_tokens=40, output_tokens=4, cost=0.25), spent=0.25)
    ]
    budget = Budget(Limits(turns=100, input_tokens=1000, output_tokens=1000, cost=1.0, children=10))
    tree: Any = SimpleNamespace(past={"over": over, "again": again})
    charge(tree, budget, parent, before, paid=paid)
    assert budget.used["turns"] == (5 - 3) + (4 - 1)
    assert budget.used["input_tokens"] == (100 - 80) + (60 - 40)
    assert budget.used["output_tokens"] == (10 - 8) + (6 - 4)
    assert budget.used["children"] == 1, "what is asked again is one more"
    assert budget.used["cost"] == pytest.approx(cost)


def test_an_amount_is_written_in_one_way_however_it_was_summed_up() -> None:
    total = sum((Usage(cost=0.002) for _ in range(26)), Usage())
    assert (total.cost, Usage(cost=0.05200000000000003).cost) == (0.052, 0.052)
    assert Usage(cost=0.00000123).cost == 0.00000123
    assert Usage(cost=None).cost is None
