"""A recorded workflow, as a replay asks for it: by run, by call, and in which order things came.

Read by `replay`. It plays nothing itself.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from retinue.engine.ended import FROM_ABOVE
from retinue.engine.resources import memory_of
from retinue.events import (
    AccessDenied,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallCut,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    ClaimsJudged,
    ErrorRaised,
    Event,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.types import EndedBy, Report, Usage

Place = tuple[str, type[Event], Any, Any, Any]
STEADY = (
    RunStarted,
    StepStarted,
    ModelReplied,
    ToolCalled,
    ToolReturned,
    ChildStarted,
    ChildEnded,
    ApprovalRequested,
    ApprovalAnswered,
    RunFinished,
)
"""Events that come out once each, wherever in the log they stand."""
OWN_CANCELS = FROM_ABOVE | {"parent"}
"""Cancels that follow from what a parent does: it does so again by itself."""
PATIENCE = 3.0
"""Seconds of silence after which what is still missing does not come any more: this goes another way."""


def place_of(event: Event) -> Place:
    named = (getattr(event, name, None) for name in ("step", "call_id", "child_id"))
    return (event.run_id, type(event), *named)  # pyright: ignore[reportReturnType] # three of them


class Record:
    """A recorded workflow, looked up by run."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.events = events
        self.runs: dict[str, list[AnyEvent]] = {}
        for event in events:
            self.runs.setdefault(event.run_id, []).append(event)
        self.root_id = events[0].root_id
        self.piece: dict[str, int] = {}
        """Which piece of work each run is being played at: a child may have been asked again."""
        self.results = {(e.run_id, e.call_id): e for e in events if isinstance(e, ToolReturned)}
        self._steps = {place_of(e) for e in events if isinstance(e, StepStarted)}
        self.answered = {e.approval_id: e for e in events if isinstance(e, ApprovalAnswered)}
        self._handed: set[tuple[str, int]] = set()
        """What parents told their children and was told again, by child and place."""

    def started(self, run_id: str) -> RunStarted | None:
        return next((e for e in self.runs.get(run_id, ()) if isinstance(e, RunStarted)), None)

    def handed(self, run_id: str, text: str | None) -> tuple[str, ...] | None:
        """The private data that a run was handed with its task (None), or with the next message of its parent
        that says this."""
        if text is None:
            began = self.started(run_id)
            return None if began is None else _without_memory(began)
        told = (e for e in self.runs.get(run_id, ()) if isinstance(e, MessageReceived))
        for event in told:
            said = event.sender == "parent" and event.text == text
            if said and (run_id, event.seq) not in self._handed:
                self._handed.add((run_id, event.seq))
                return event.private
        return None

    def replies(self, run_id: str) -> dict[int, ModelReplied]:
        """Of the piece that is being played: a step that failed in one is asked again in the next."""
        return {e.step: e for e in self.part(run_id) if isinstance(e, ModelReplied)}

    def denied(self, run_id: str, call_id: str) -> list[AccessDenied]:
        """What a call was kept from while it ran: paths, addresses. What kept it from running at all is
        decided anew."""
        log = [e for e in self.runs.get(run_id, ()) if isinstance(e, AccessDenied | ToolCalled)]
        of_call = [e for e in log if e.call_id == call_id]
        began = next((at for at, e in enumerate(of_call) if isinstance(e, ToolCalled)), len(of_call))
        return [e for e in of_call[began:] if isinstance(e, AccessDenied)]

    def line(self, run_id: str) -> list[str]:
        """A run, its parent, the parent of that, up to the root."""
        began = self.started(run_id)
        above = began.parent_id if began is not None else None
        return [run_id, *(self.line(above) if above is not None else ())]

    def part(self, run_id: str) -> list[AnyEvent]:
        """The log of a run for the piece of work that is being played."""
        parts: list[list[AnyEvent]] = [[]]
        for event in self.runs.get(run_id, ()):
            if isinstance(event, MessageReceived) and event.opens:
                parts.append([])
            parts[-1].append(event)
        return parts[min(self.piece.get(run_id, 0), len(parts) - 1)]

    def cancelled(self, run_id: str) -> CancelRequested | None:
        return next((e for e in self.part(run_id) if isinstance(e, CancelRequested)), None)

    def cut(self, event: Event) -> bool:
        """Whether this is a step that a run began just before its cancel, and then just did not."""
        if not isinstance(event, StepStarted) or place_of(event) in self._steps:
            return False
        return any(self.cancelled(each) for each in self.line(event.run_id))

    def cuts(self, run_id: str) -> list[CallCut]:
        """The model calls that gave no reply; those that ended with their process come last."""
        part = self.part(run_id)
        last = part[-1] if part else None
        gone = sum((e.cut for e in part if isinstance(e, RunFinished | RunResumed)), Usage())
        cuts = [e for e in part if isinstance(e, CallCut)]
        if last is None or gone == Usage():
            return cuts
        envelope = {name: getattr(last, name) for name in Event.__struct_fields__}
        return [*cuts, CallCut(**envelope, step=sys.maxsize, usage=gone)]

    def begun_reply(self, run_id: str, step: int) -> str:
        """What had come of the answer to a step that was cut off."""
        cuts = [e.text for e in self.part(run_id) if isinstance(e, CallCut) and e.step == step]
        return cuts[-1] if cuts else ""

    def finished(self, run_id: str) -> Report | None:
        ended = self.ending(run_id)
        return None if ended is None else ended.report

    def ending(self, run_id: str) -> RunFinished | None:
        return next((e for e in self.part(run_id) if isinstance(e, RunFinished)), None)

    def timed_out(self, run_id: str) -> bool:
        """Older logs do not say so: there it is an error that nothing raised."""
        report = self.finished(run_id)
        if report is None or report.ended_by:
            return report is not None and report.ended_by == "timeout"
        raised = any(isinstance(e, ErrorRaised) for e in self.part(run_id))
        return report.status == "error" and not raised

    def short(self, run_id: str) -> dict[int, tuple[EndedBy, str]]:
        """The step in which a run summed up since its time or budget was nearly used up, and what it was told
        of that."""
        steps = (e for e in self.runs.get(run_id, ()) if isinstance(e, StepStarted))
        return {e.step: (e.cause, e.reason) for e in steps if e.cause in ("time", "budget")}

    def before(self, event: AnyEvent) -> set[Place]:
        """What had come out by then."""
        return {place_of(e) for e in self.events[: self.events.index(event)] if isinstance(e, STEADY)}

    def end(self, run_id: str) -> AnyEvent | None:
        """With what a run began to end: its error, the first child it stopped for that, or its report."""
        part = self.part(run_id)
        for event in self.events:
            mine = isinstance(event, ErrorRaised | RunFinished) and event in part
            if mine or self._dismissed(event, run_id):
                return event
        return None

    def after_answer(self, run_id: str, step: int, *, ends: bool) -> AnyEvent | None:
        """What a run did first after its answer of this step, by itself; or, if it `ends`, whether it did:
        its report, or the next step."""
        log = iter(self.events)
        for event in log:
            if event.run_id == run_id and isinstance(event, ModelReplied) and event.step == step:
                break
        for event in log:
            mine = event.run_id == run_id
            if mine and isinstance(event, StepStarted | RunFinished):
                return event
            if not ends and (_own_doing(event) if mine else self._dismissed(event, run_id)):
                return event
        return None

    def _dismissed(self, event: AnyEvent, run_id: str) -> bool:
        """Whether a run stopped a child of its own because it ends."""
        stopped = isinstance(event, CancelRequested) and event.by in FROM_ABOVE
        return stopped and run_id in self.line(event.run_id)[1:2]


def _own_doing(event: AnyEvent) -> bool:
    """Whether a run wrote this by itself, and it did not come from elsewhere."""
    told = isinstance(event, MessageReceived) and event.sender == "system" and bool(event.about)
    return told or isinstance(event, ErrorRaised | ClaimsJudged)


def _without_memory(began: RunStarted) -> tuple[str, ...]:
    """What a run was handed. That it may have a memory too is said of it when it starts."""
    own = (memory_of(began.spec),) if began.spec.memory else ()
    return began.private[: -len(own)] if own and began.private[-1:] == own else began.private


class Order:
    """Who comes when: an event that is played waits until all that the record has before it came again.

    What came out then depends on it: a parent is told of a child that ended before its next step and not of
    one that ended after. Once something comes that the record does not have, or nothing comes any more, the
    order of the record is no guide, and nobody waits.
    """

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        places: dict[Place, None] = {}
        self._since: dict[int, int] = {}
        """By event of the record: how many places come before it."""
        for event in events:
            self._since[id(event)] = len(places)
            if isinstance(event, STEADY):
                places.setdefault(place_of(event))
        self._places = list(places)
        self._known = places.keys()
        self.heard: set[Place] = set()
        self.strayed = False
        self._reached = 0
        """All before this one have come."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._asked = 0

    def hear(self, place: Place) -> None:
        self.heard.add(place)
        self.strayed |= place not in self._known
        while self._reached < len(self._places) and self._places[self._reached] in self.heard:
            self._reached += 1
        self._let_go()

    async def turn(self, event: Event) -> None:
        """Return when it is time for this event of the record."""
        index = self._since.get(id(event), 0)
        while index > self._reached and not self.strayed:
            self._asked, heard = self._asked + 1, len(self.heard)
            waiting = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (index, self._asked, waiting))
            try:
                async with asyncio.timeout(PATIENCE):
                    await waiting
            except TimeoutError:
                if len(self.heard) == heard:
                    self.stray()

    async def silence(self) -> None:
        """Return when nothing came for a while."""
        heard = -1
        while len(self.heard) != heard:
            heard = len(self.heard)
            await asyncio.sleep(PATIENCE)

    def stray(self) -> None:
        """This goes another way than the record: nobody waits any more."""
        self.strayed = True
        self._let_go()

    def _let_go(self) -> None:
        while self._waiting and (self.strayed or self._waiting[0][0] <= self._reached):
            _, _, waiting = heapq.heappop(self._waiting)
            if not waiting.done():
                waiting.set_result(None)
