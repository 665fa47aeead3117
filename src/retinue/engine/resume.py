"""Takes a whole tree up again: fences it off, folds its log, charges what was used, goes on where it ends.

Called by the app for a workflow that was interrupted, by the workflow for a child it had before.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from retinue.budget import Budget
from retinue.delegate import AskedAgain
from retinue.engine.concern import handed_on
from retinue.engine.ended import cut_with_process, is_told, stopped_from_above
from retinue.engine.hand_over import ToWorkers, marks
from retinue.engine.rebuild import as_of_today, charge, done_before, rebuilt
from retinue.engine.resources import RunResources
from retinue.engine.tree import RunTree
from retinue.engine.workbooks import kept_with_message
from retinue.errors import Fenced, RunError, StoreError, ToolError, in_words
from retinue.events import (
    AnyEvent,
    ChildStarted,
    Event,
    GuardSpoke,
    MessageReceived,
    RunQueued,
    RunResumed,
    RunStarted,
    next_event,
)
from retinue.fold import apply, fold
from retinue.guards import Looked
from retinue.run import Run
from retinue.run_log import storable
from retinue.run_state import RunState
from retinue.store.base import Store
from retinue.threads import undisturbed
from retinue.tools.sheets import Workbook
from retinue.types import ENDED, Image, Report, Shortfall

if TYPE_CHECKING:
    from retinue.engine.workflow import Workflow

log = logging.getLogger("retinue")
ATTEMPTS = 100
"""How often a tree that somebody still writes to is tried to be taken over."""

Check = Callable[[Sequence[AnyEvent]], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenUpWith:
    """What a run is given when it is taken up, over what it was given before."""

    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SaidByPerson:
    """What a person says to a workflow that had ended; with `asks`, to a child of its root, which may be
    given more turns than its agent says (`max_turns`)."""

    text: str
    asks: str = ""
    max_turns: int | None = None
    rendered: str = ""
    images: tuple[Image, ...] = ()
    output: dict[str, Any] | None = None
    guarded: Looked | None = None
    workbooks: tuple[Workbook, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """A workflow as it was found: its whole log, how it began, and the last signal that was there before."""

    began: RunStarted
    events: Sequence[AnyEvent]
    signal: int

    @property
    def settings(self) -> dict[str, Any]:
        """What this run was given so far, when it was started and whenever it was taken up."""
        settings = dict(self.began.options.settings)
        for event in self.events:
            if isinstance(event, RunResumed):
                settings |= event.settings
        return settings


async def read(store: Store, root_id: str) -> Past:
    signals = await store.signals(root_id)  # before the log: what comes after it is obeyed
    events = await store.events(root_id)
    if not events or not isinstance(events[0], RunStarted):
        raise RunError(f"the log of {root_id} has no beginning", run_id=root_id)
    return Past(began=events[0], events=events, signal=signals[-1].id if signals else 0)


async def resume(
    workflow: Workflow,
    found: Past,
    *,
    said: SaidByPerson | None = None,
    yes: bool = False,
    check: Check | None = None,
    given: TakenUpWith | None = None,
) -> asyncio.Task[Report]:
    """Take up the root, and whatever ran in the background.

    `check` looks at the root's log before anything is written and raises if the workflow is not to be taken.
    """
    tree, given = workflow.tree, given or TakenUpWith()
    tree.read(found.events)
    ended = frozenset(run_id for run_id, past in tree.past.items() if past.status in ENDED)
    _check_models(tree, said.asks if said is not None else "", given)
    if check is not None:
        await check(tree.logs[tree.root_id])
    # What is begun for a caller ends with its caller. What was interrupted is left as it was found.
    opened = said is not None or tree.root_id in ended

    async def taken_up() -> tuple[Run, RunResources]:
        workbooks = said.workbooks if said is not None else ()
        async with kept_with_message(tree.config.store, tree.root_id, workbooks):
            await _take_over(tree, said, yes=yes, old=found.signal, check=check, given=given)
        return await _root_again(workflow, found, ended)

    taking_up = asyncio.ensure_future(taken_up())
    try:
        run, resources = await undisturbed(taking_up)
    except asyncio.CancelledError:
        if not taking_up.cancelled() and taking_up.exception() is None:
            built = taking_up.result()
            tasks = [workflow.launch(*built, background=False)] if opened else []
            await _given_up(workflow, *tasks, opened=opened)  # before its first step
        raise
    return await _go_on(workflow, run, resources, background=False, opened=opened)


async def hand_over(
    tree: RunTree,
    found: Past,
    to: ToWorkers,
    *,
    said: SaidByPerson | None = None,
    check: Check | None = None,
    given: TakenUpWith | None = None,
) -> int:
    """Take a workflow up for workers: what it is told and given is in its log, and it is in the queue.
    Returns how far its log is."""
    given = given or TakenUpWith()
    tree.read(found.events)
    _check_models(tree, said.asks if said is not None else "", given)
    if check is not None:
        await check(tree.logs[tree.root_id])
    workbooks = said.workbooks if said is not None else ()
    async with kept_with_message(tree.config.store, tree.root_id, workbooks):
        taking = _take_over(tree, said, yes=to.yes, old=found.signal, check=check, given=given, to=to)
        return await undisturbed(taking)


async def _root_again(workflow: Workflow, found: Past, ended: frozenset[str]) -> tuple[Run, RunResources]:
    """The root of a tree that was taken over, ready to be launched. `ended` are the runs that had an end."""
    tree, began = workflow.tree, found.began
    state = tree.past[tree.root_id]
    workflow.kept.taken_up()
    for past in tree.past.values():
        workflow.questions.granted |= past.granted
    # By the settings of today: a limit that was raised since is the limit.
    budget = tree.config.root_budget(began.spec)
    tree.slots.resize(budget.limits.concurrency or tree.config.settings.delegation.concurrency)
    charge(tree, budget, state, state.before)
    authority = as_of_today(tree, tree.config.root_authority(began.spec), began.spec)
    await workflow.isolation.prepare(tree.root_id, began.spec, None)
    built = rebuilt(workflow, state, None, authority, budget)
    await workflow.inbox.open(old=found.signal, ended=ended)
    return built


async def _given_up(workflow: Workflow, *tasks: asyncio.Future[Any], opened: bool) -> None:
    """Whoever takes a workflow up is cancelled, and nobody gets to know it. What was `opened` by that has an
    end: it would be taken up and paid for by itself. Else it is left to whoever takes it up next."""
    if opened:
        await workflow.call_off(*tasks, reason="cancelled while it was being taken up")
    else:
        await undisturbed(workflow.leave())
        workflow.tree.clear()


def _check_models(tree: RunTree, asks: str, given: TakenUpWith) -> None:
    """Before anything is written: what has no model any more is not taken up, and stays as it is."""
    root, asked = tree.past[tree.root_id], tree.past.get(asks)
    if root.started is None:
        return
    model = tree.config.model_of(root.started.spec, None, given.model or root.model)
    if asked is not None and asked.started is not None:
        tree.config.model_of(asked.started.spec, model, asked.model)


async def _take_over(
    tree: RunTree,
    message: SaidByPerson | None,
    *,
    yes: bool,
    old: int,
    check: Check | None,
    given: TakenUpWith,
    to: ToWorkers | None = None,
) -> int:
    """Write to every run that has not ended, in one transaction: no other process writes there any more.
    Returns how far the log of the workflow is.

    A tree that is busy may be written to at the same moment, and then it is read again. Its root alone is
    taken first: the other process sees that at once, and leaves.
    """
    store, root_id = tree.config.store, tree.root_id
    root_is_mine = False
    for attempt in range(ATTEMPTS):
        if attempt:
            tree.read(await store.events(root_id))
            if check is not None:
                await check(tree.logs[root_id])
        unended = [state for run_id, state in tree.past.items() if run_id == root_id or _goes_on(state)]
        if attempt and not root_is_mine:
            unended = [tree.past[root_id]]
        stopped_at = _last_worked(tree)
        events: list[Event] = [
            _resumed(
                state,
                tree.config.owner,
                yes=yes,
                signals=old if _is(state, root_id) else None,
                given=given if _is(state, root_id) else TakenUpWith(),
                stopped_at=stopped_at,
            )
            for state in unended
            if not (root_is_mine and _is(state, root_id))
        ]
        whole = attempt == 0 or root_is_mine
        if whole and message is not None:
            seq = tree.past[root_id].seq + (1 if root_is_mine else 2)
            events += _said(tree.past[root_id], message, seq)
        if whole and to is not None:
            events += _queued(unended, events, to, signals=old)
        try:
            if events:
                await store.append(events)
        except Fenced:
            await asyncio.sleep(0.01 * min(attempt, 10))
            continue
        for event in events:
            apply(tree.past[event.run_id], event)
            tree.logs[event.run_id].append(event)  # pyright: ignore[reportArgumentType] # every event class is in the union
            tree.config.publish(event)  # pyright: ignore[reportArgumentType] # every event class is in the union
        if whole:
            return max((event.pos for event in events), default=0)
        root_is_mine = True
    raise RunError(
        f"{root_id} cannot be taken over: another process keeps writing to it; cancel it there first",
        run_id=root_id,
    )


def _queued(
    unended: Sequence[RunState], events: Sequence[Event], to: ToWorkers, *, signals: int
) -> list[RunQueued]:
    """The marks of a tree that workers go on with, after these events."""
    lasts = {event.run_id: event.seq for event in events}
    return marks(unended, to, "resumed", seqs=lasts, signals=signals)


def _is(state: RunState, run_id: str) -> bool:
    return state.started is not None and state.started.run_id == run_id


def _goes_on(state: RunState) -> bool:
    return state.started is not None and state.status not in ENDED


def _last_worked(tree: RunTree) -> float:
    """When anybody last worked on the tree. That somebody took it up before is no work."""
    logs = tree.logs.values()
    return max((e.at for log in logs for e in log if not isinstance(e, RunResumed)), default=0.0)


def _resumed(
    state: RunState, owner: str, *, yes: bool, signals: int | None, given: TakenUpWith, stopped_at: float
) -> RunResumed:
    began = state.started
    if began is None:
        raise RunError("the log has no beginning")
    return next_event(
        began,
        RunResumed,
        seq=state.seq + 1,
        **_here(owner),
        yes=yes,
        signals=signals,
        settings=dict(given.settings),
        model=given.model,
        stopped_at=stopped_at,
        cut=cut_with_process(state),
    )


def _here(owner: str) -> dict[str, Any]:
    """Who works on a run from here on."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "owner": owner}


def _said(root: RunState, said: SaidByPerson, seq: int) -> list[Event]:
    began = root.started
    if began is None:
        raise RunError("the log has no beginning")
    message = next_event(
        began,
        MessageReceived,
        seq=seq,
        text=said.text,
        message_id=f"asked-{seq}" if said.asks else "",
        asks=said.asks,
        awaited=bool(said.asks),
        max_turns=said.max_turns,
        rendered=said.rendered,
        images=said.images,
        output=said.output,
        next_turn=root.at_work > 0,
        guarded=said.guarded is not None,
    )
    spoken = said.guarded.said if said.guarded is not None else ()
    return [
        message,
        *(next_event(message, GuardSpoke, seq=seq + 1 + n, **asdict(one)) for n, one in enumerate(spoken)),
    ]


async def take_up_child(workflow: Workflow, parent: Run, run_id: str) -> None:
    """A child that was started before a restart: its report if it has one, else it goes on."""
    tree = workflow.tree
    if run_id in tree.live:
        return
    state = tree.past.get(run_id)
    began = parent.state.children[run_id]
    if state is not None and state.is_remains:
        state = tree.past[run_id] = fold(await tree.config.store.events(tree.root_id, run_id=run_id))
    if state is None or state.started is None:
        raise RunError(f"the log of {run_id} is missing", run_id=run_id)
    if state.report is not None and not stopped_from_above(state):
        if not is_told(parent.state, run_id, state):  # it ended, and then the process or its parent did
            await workflow.children.tell(parent, state.report, began)
        return
    await workflow.isolation.prepare(run_id, state.started.spec, parent)
    if run_id in tree.live or tree.past.get(run_id) is not state:  # somebody else was faster meanwhile
        await take_up_child(workflow, parent, run_id)
        return
    if parent.is_ending:
        return
    # What it used is charged already; what it may still use is held back again.
    needed = tree.config.turns_needed(state.started.spec, state.started.depth, state.max_turns)
    alone = Budget(began.reserved)
    charge(tree, alone, state, done_before(state, len(state.asked_again)), paid=False)
    budget = parent.budget.adopt(began.reserved, name=began.agent, past=alone, turns=needed)
    authority = as_of_today(tree, parent.authority.narrow(state.started.spec), state.started.spec)
    run, resources = rebuilt(workflow, state, parent, authority, budget)
    written: asyncio.Future[None] | None = None
    if state.status in ENDED:  # the others were taken with their root
        written = run.log.write(RunResumed, **_here(tree.config.owner))
    await _go_on(workflow, run, resources, background=began.background, written=written)


async def ask_again(workflow: Workflow, parent: Run, run_id: str, asked: AskedAgain) -> None:
    """Let a child that has ended go on with another piece of work, from its log and under its own name.

    It is admitted, counted and given a share like a child that is started.
    """
    tree, config = workflow.tree, workflow.tree.config
    events = await config.store.events(tree.root_id, run_id=run_id)
    if not events or not isinstance(events[0], RunStarted):
        raise RunError(f"the log of {run_id} is missing", run_id=run_id)
    spec, depth = events[0].spec, events[0].depth
    await config.identify(spec, parent)
    await workflow.isolation.prepare(run_id, spec, parent)
    # Again: a merge that was at work until now has written to it.
    events = await config.store.events(tree.root_id, run_id=run_id)
    state = fold(events)
    check_goes_on(parent)
    needed = config.turns_needed(spec, depth, asked.max_turns or state.max_turns)
    budget = parent.budget.carve(spec.limits, name=spec.name, turns=needed)
    try:
        tree.logs[run_id] = events
        authority = as_of_today(tree, parent.authority.narrow(spec), spec)
        run, resources = rebuilt(workflow, state, parent, authority, budget)
        parent.budget.admit_child()
        lacked = Shortfall() if asked.by_person else parent.state.lacked_by(run_id)
        taken_up = run.log.stamp(RunResumed, **_here(config.owner))
        said = run.log.stamp(
            MessageReceived,
            text=storable(asked.prompt),
            sender="person" if asked.by_person else "parent",
            message_id=asked.call_id,
            rendered=storable(asked.rendered),
            images=asked.images,
            private=() if asked.by_person else handed_on(tree, parent, run_id, asked.call_id, asked.prompt),
            opens=True,
            max_turns=asked.max_turns,
            lacked=lacked,
        )
    except BaseException:
        budget.release()
        raise
    again = parent.log.stamp(
        ChildStarted,
        child_id=run_id,
        agent=spec.name,
        prompt=asked.prompt,
        label=asked.label,
        call_id=asked.call_id,
        reserved=budget.limits,
        background=asked.background,
        continues=True,
        lacked=lacked,
    )
    # In one transaction: the piece of work is in its parent's log if and only if the child has it.
    written = parent.log.commit(again, taken_up, said)
    await _go_on(workflow, run, resources, background=asked.background, written=written)


def check_goes_on(parent: Run) -> None:
    """Refuse what is begun below a run that ends: nobody would stop it. Asked after the last `await`."""
    if parent.is_ending:
        raise ToolError(f"{parent.id} ends, and nothing is started below it any more")


async def _go_on(
    workflow: Workflow,
    run: Run,
    resources: RunResources,
    *,
    background: bool,
    written: asyncio.Future[None] | None = None,
    opened: bool = False,
) -> asyncio.Task[Report]:
    """Launch a run that is taken up. Before its first step its background children are there again.

    `opened` is a root that had ended, or was told something.
    """

    async def ready() -> None:
        if written is not None:
            await written
        await _background(workflow, run)
        await workflow.children.ask_for_people(run)

    stored = asyncio.ensure_future(ready())
    # Known as running before anything is awaited: its parent's call may ask for it at the same time.
    task = workflow.launch(run, resources, background=background, stored=stored)
    try:
        await asyncio.shield(stored)
    except BaseException as error:
        if run.depth == 0:
            await _given_up(
                workflow, task, stored, opened=opened and isinstance(error, asyncio.CancelledError)
            )
        raise
    return task


async def _background(workflow: Workflow, run: Run) -> None:
    """Nobody will ask for these again: they go on by themselves, or their end is told at last."""
    for child, began in list(run.state.children.items()):
        past = workflow.tree.past.get(child)
        if not began.background or past is None:
            continue
        dismissed = stopped_from_above(past) and past.cancelled is not None
        if dismissed and child in run.state.ended:
            continue  # its parent had an answer without it
        goes_on = past.status not in ENDED or stopped_from_above(past)
        if not goes_on and is_told(run.state, child, past):
            continue
        try:
            await take_up_child(workflow, run, child)
        except (Fenced, StoreError):
            raise
        except Exception as error:  # its model is not to be had any more: the others go on without it
            if past.status in ENDED:
                log.warning("%s could not be taken up again: %s", child, in_words(error))
                continue
            why = f"it could not be taken up again: {in_words(error)}"
            await workflow.children.tell(run, workflow.tree.end_lost(run, child, why), began)
