"""Who plays a recorded workflow: its models, its tools, its people, each saying and doing what they did then.

Used by `replay` alone. `Player` follows what comes out and hands everyone their part; `RecordedVoice` is a
model that says what was said.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal

from retinue.authority.flows import Concern
from retinue.builtin_tools import DELEGATION_TOOLS, SKILL
from retinue.delegate import GLANCES
from retinue.engine.answers import Answer
from retinue.engine.compare import told_before, unordered
from retinue.engine.config import Played
from retinue.engine.record import OWN_CANCELS, STEADY, Order, Place, Record, place_of
from retinue.engine.recorded_voice import AsideVoice, RecordedVoice
from retinue.engine.run_guards import PlayedGuards, spoken_after
from retinue.engine.workflow import Workflow
from retinue.errors import BudgetExhausted, Refused, ToolError
from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    CallReviewed,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    ClaimsJudged,
    GuardSpoke,
    HistoryPruned,
    LimitPassed,
    LimitReached,
    LiveEvent,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.fold_results import courses
from retinue.run import Closing, Run, SystemPrompt
from retinue.run_ids import child_id
from retinue.run_state import RunState
from retinue.tools.base import Preview, ShownCall, Tool, ToolContext, ToolResult
from retinue.tools.skills import skill_tool
from retinue.types import AgentSpec, Usage
from retinue.workspace import Files

When = Literal["asked", "parked", "replied"]
"""Where a step is: its model is being asked, waits for a limit, or has replied."""
_WHEN: dict[type[AnyEvent], When] = {
    StepStarted: "asked",
    LimitReached: "parked",
    LimitPassed: "asked",
    ModelReplied: "replied",
}
_NO_ANSWER = Answer(decision="reject", reason="the record has no answer")


class Player:
    """Plays models, tools and people from a record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.workflow: Workflow | None = None
        self.order = Order(record.events)
        self._copied = told_before(record.events)
        self._cancels: dict[str, tuple[CancelRequested, set[Place]]] = {}
        """Cancels that somebody waits for, with what has to come out before them."""
        self._watch: asyncio.Task[None] | None = None
        self._answers: dict[str, int] = {}
        """How many answers a run has given after which it went on."""
        self._saying: asyncio.Future[None] | None = None
        self._said: set[tuple[str, int]] = set()
        """What people said and was told again, by run and place: not all of it has an id."""
        self._shown: set[str] = set()
        """Questions about merges that were shown again."""

    def hear(self, event: LiveEvent) -> None:
        """Follow what comes out: a person who never answered, and when it is time for a cancel."""
        if not isinstance(event, STEADY) or self.record.cut(event):
            return
        self.order.hear(place_of(event))
        if isinstance(event, RunFinished) and event.report.at_work:
            self._say_next(event)
        if isinstance(event, ApprovalRequested):
            self._leave_open(event)
        self._cancel_in_time()

    def _say_next(self, answer: RunFinished) -> None:
        """What a person said next to a run that had answered, if that opened its next turn then."""
        turns = 0
        for event in self.record.runs.get(answer.run_id, ()):
            turns += isinstance(event, RunFinished)
            if turns == self._answers.setdefault(answer.run_id, 0) + 1 and not isinstance(event, RunFinished):
                if isinstance(event, MessageReceived) and event.next_turn:
                    self._saying = asyncio.ensure_future(self._say_in_turn(answer.run_id, event))
                break
        self._answers[answer.run_id] += 1

    async def _say_in_turn(self, run_id: str, event: MessageReceived) -> None:
        await self.order.turn(event)
        live = self.workflow.tree.live.get(run_id) if self.workflow else None
        if live is not None and not live.over:
            self._tell(live.run, event)

    def _leave_open(self, asked: ApprovalRequested) -> None:
        if asked.approval_id in self.record.answered or self.stop(asked.run_id):
            return
        if self.workflow is not None:
            self.workflow.inbox.tell(asked.approval_id, _NO_ANSWER)

    def stop(self, run_id: str) -> bool:
        """Stop a run as it was stopped: by its own cancel or timeout, or that of a run above it."""
        for each in self.record.line(run_id):
            cancel = self.record.cancelled(each)
            if cancel is not None:
                if each not in self._cancels:
                    self._cancels[each] = (cancel, self.record.before(cancel))
                self._watch = self._watch or asyncio.create_task(self._lose_patience())
                self._cancel_in_time()
                return True
            live = self.workflow.tree.live.get(each) if self.workflow else None
            if live is not None and self.record.timed_out(each):
                report = self.record.finished(each)
                live.run.clock.expire(report.error or "" if report is not None else "")
                return True
        return False

    def _cancel_in_time(self) -> None:
        """Cancel once all that came before it has come again, or never will: this goes another way."""
        if self.workflow is None or not self._cancels:
            return
        over = {run_id for run_id in self.record.runs if self.workflow.tree.has_ended(run_id)}
        for run_id, (cancel, before) in self._cancels.items():
            due = all(place[0] in over for place in before - self.order.heard)
            if self.order.strayed or (due and cancel.by not in OWN_CANCELS):
                self.workflow.cancel(run_id, cancel.reason, by=cancel.by)

    async def _lose_patience(self) -> None:
        """A parent that does not stop its child today is not waited for without end."""
        await self.order.silence()
        self.order.stray()
        self._cancel_in_time()

    def leave(self) -> None:
        """The workflow is over."""
        self.workflow = None
        if self._watch is not None:
            self._watch.cancel()

    def cast(self, run_id: str, spec: AgentSpec) -> Played | None:
        """Who plays a run. An agent that was changed since is told what it is told today."""
        began, state = (
            self.record.started(run_id),
            self.workflow.tree.state(run_id) if self.workflow else None,
        )
        if began is None:
            return None
        before = 0 if state is None else state.duration_ms
        self.record.piece[run_id] = 0 if state is None else len(state.asked_again) + 1
        report = self.record.finished(run_id)
        return Played(
            model=RecordedVoice(self, run_id, began.model, step=_asked_so_far(state)),
            system=SystemPrompt(text=began.system, parts=began.parts)
            if unordered(began.spec) == unordered(spec)
            else None,
            duration_ms=report.duration_ms - before if report is not None else 0,
            cuts=self.record.cuts(run_id),
            short=self.record.short(run_id),
            small=AsideVoice(began.model),
            summaries=(e for e in self.record.runs[run_id] if isinstance(e, HistoryPruned)),
            guidance=partial(_told_then, self.record.runs[run_id]),
            skill=self.played(skill_tool(())) if self._had_skills(began) else None,
            called_at=partial(_called_at, self.record.runs[run_id]),
            courses=courses(self.record.runs[run_id]),
            brings=partial(_brought, self.record.runs[run_id]),
            guards=PlayedGuards.of(self.record.runs[run_id]),
            due=partial(self._step_due, run_id),
            call_due=partial(self._call_due, run_id),
            answer_due=partial(self._answer_due, run_id),
            closing=self._closing,
        )

    async def _closing(self, run: Run) -> Closing:
        """What a report said of the copy that its run worked in, which is merged since, or another one; and
        of what commands changed: none runs again."""
        ended = self.record.ending(run.id)
        if ended is None:
            return Closing()
        text = ended.report.text[-ended.of_copy :] if ended.of_copy else ""
        return Closing(text=text, files=ended.report.files)

    def _had_skills(self, began: RunStarted) -> bool:
        """Whether a run was offered skills: it was shown the tool, or called it from its code."""
        log = self.record.runs[began.run_id]
        return SKILL in began.tools or any(isinstance(e, ToolCalled) and e.name == SKILL for e in log)

    def staged(self, tool: Tool) -> Tool:
        """A way to delegate: it is really gone, but what it sees at a glance is what it saw.

        And so is what there was no time for.
        """
        tool = replace(tool, admit=partial(self._admit, tool))
        played = self.played(tool)

        async def call(arguments: dict[str, Any], ctx: ToolContext) -> str | ToolResult:
            if tool.name in DELEGATION_TOOLS and arguments.get("operation") in GLANCES:
                return await played.call(arguments, ctx)
            then = self.record.results.get((ctx.run_id, ctx.call_id))
            try:
                result = await tool.call(arguments, ctx)
            except ToolError:
                await self._in_turn(then)
                raise
            await self._in_turn(then)
            if then is None or not (then.usage != Usage() or (ctx.run_id, ctx.call_id) in self._copied):
                return result
            # What a fork was told says what was used in the old workflow, and what a model worded is its own.
            whole = ToolResult(text=result) if isinstance(result, str) else result
            return replace(whole, text=then.text, usage=then.usage, as_read=True)

        return replace(tool, call=call)

    def merging(self, tool: Tool) -> Tool:
        """A merge: whether it could be made, what a person was shown of it and asked, what came of it."""

        def admit(arguments: dict[str, Any], run_id: str) -> None:
            call_id = self._call_of(tool, arguments, run_id)
            then = self.record.results.get((run_id, call_id))
            made = _called_at(self.record.runs[run_id], call_id) is not None
            if then is not None and not made and then.not_run in ("", "forbidden"):
                raise ToolError(then.text, not_run=then.not_run)

        async def concern(arguments: dict[str, Any], run_id: str) -> Concern | None:
            asked = self._question(run_id, self._call_of(tool, arguments, run_id))
            if asked is None or not asked.concern:
                return None
            return Concern(why=asked.concern, about=asked.concerns, rule=asked.rule)

        return replace(self.played(tool), admit=admit, concern=concern, preview=self._shown_then(tool))

    def _shown_then(self, tool: Tool) -> Preview:
        def preview(arguments: dict[str, Any], files: Files) -> ShownCall:
            asked = (e for e in self.record.events if isinstance(e, ApprovalRequested))
            for one in asked:
                known = one.approval_id in self._shown or one.tool != tool.name
                if not known and tool.parse(one.arguments) == arguments:
                    self._shown.add(one.approval_id)
                    return ShownCall(text=one.preview, digest=one.shown)
            return ShownCall(text="", whole=False)

        return preview

    def _question(self, run_id: str, call_id: str) -> ApprovalRequested | None:
        log = self.record.runs.get(run_id, ())
        asked = (e for e in log if isinstance(e, ApprovalRequested) and e.call_id == call_id)
        return next(asked, None)

    def _call_of(self, tool: Tool, arguments: dict[str, Any], run_id: str) -> str:
        """Which of the open calls of a run this is."""
        live = self.workflow.tree.live.get(run_id) if self.workflow else None
        for call in live.run.state.open_calls if live is not None else ():
            if call.name == tool.name and _read(tool, call.arguments) == arguments:
                return call.id
        return ""

    async def cancelling(self, run_id: str) -> None:
        """In its turn: what a child had come to by then, it comes to again before its parent cancels it."""
        cancel = self.record.cancelled(run_id)
        if cancel is not None and cancel.by in OWN_CANCELS:
            await self.order.turn(cancel)

    async def answer_due(self, approval_id: str) -> None:
        """In its turn: what came out while a person had not answered yet comes out again before they do."""
        answered = self.record.answered.get(approval_id)
        if answered is not None:
            await self.order.turn(answered)

    def started_then(self, parent_id: str, call_id: str, key: str) -> bool:
        """Whether a child was started then. What others have used by now, in another order, is no guide."""
        result = self.record.results.get((parent_id, call_id))
        if child_id(parent_id, call_id, key) in self.record.runs:
            return True
        if result is not None and result.not_started > result.wrong:
            raise Refused(_why_not(result.text, key), not_run="limit")
        return False

    async def _in_turn(self, then: ToolReturned | None) -> None:
        """A child in the background may have ended, and its parent been told, before a call came back."""
        if then is not None:
            await self.order.turn(then)

    async def noticed(self, began: ChildStarted) -> ChildEnded | None:
        """In its turn: the end of a child as its parent was told it, if no words of today are the same."""
        ends = (e for e in self.record.runs.get(began.run_id, ()) if isinstance(e, ChildEnded) and e.notice)
        piece = (began.child_id, began.call_id)
        told = [e for e in ends if (e.child_id, e.call_id) == piece]
        if not told:
            return None
        await self.order.turn(told[-1])  # the parent may have gone on meanwhile, to its next step too
        own = (began.run_id, began.child_id) in self._copied
        return told[-1] if own or told[-1].telling != Usage() else None

    async def _step_due(self, run_id: str, step: int) -> bool:
        log = self.record.runs.get(run_id, ())
        then = next((e for e in log if isinstance(e, StepStarted) and e.step == step), None)
        report = self.record.finished(run_id)
        if then is not None:
            await self.order.turn(then)
        elif report is not None and report.ended_by == "budget" and report.incomplete:
            await self.end(run_id)
            raise BudgetExhausted(report.incomplete, run_id=run_id)
        if step == 1:
            self.deliver(run_id, 0, "replied")
        return then is not None

    async def _answer_due(self, run_id: str, step: int, ends: bool) -> None:
        """In its turn: children in the background may have reported between an answer and what became of
        it."""
        then = self.record.after_answer(run_id, step, ends=ends)
        if then is not None:
            await self.order.turn(then)

    async def _call_due(self, run_id: str, call_id: str) -> None:
        """Where nothing came of a call of a run that was stopped, it was stopped before that.

        A call of code comes in its turn: what had been read by then is what it was judged by, and what it
        brings counts for those that come after it.
        """
        if "/" in call_id and (first := _first_of(self.record.runs.get(run_id, ()), call_id)) is not None:
            await self.order.turn(first)
        line = self.record.line(run_id)
        if not any(self.record.cancelled(each) or self.record.timed_out(each) for each in line):
            return
        log = (e for e in self.record.runs.get(run_id, ()) if not isinstance(e, RunStarted))
        if not any(getattr(e, "call_id", None) == call_id for e in log):
            await self.unfinished(run_id)

    def _admit(self, tool: Tool, arguments: dict[str, Any], run_id: str) -> Awaitable[None] | None:
        live = self.workflow.tree.live.get(run_id) if self.workflow else None
        for call in live.run.state.open_calls if live is not None else ():
            result = self.record.results.get((run_id, call.id))
            if result is not None and result.not_run == "time" and _read(tool, call.arguments) == arguments:
                raise Refused(result.text, not_run="time")
        return None if tool.admit is None else tool.admit(arguments, run_id)

    def played(self, tool: Tool) -> Tool:
        async def call(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
            found = self.record.results.get((ctx.run_id, ctx.call_id))
            for denied in self.record.denied(ctx.run_id, ctx.call_id):
                ctx.denied(denied.what, denied.detail)
            if found is None:
                return await self.unfinished(ctx.run_id)
            await self.order.turn(found)
            return ToolResult(
                text=found.text,
                is_error=found.is_error,
                sources=found.sources,
                files=found.files,
                usage=found.usage,
                rolled_back=found.rolled_back,
                passing=found.passing,
                not_run=found.not_run,
                not_started=found.not_started,
                merge_of=found.merge_of,
                unmerged=found.unmerged,
                wrong=found.wrong,
                meant=found.meant,
                children=found.children,
                private=found.private,
                found=found.found,
                links=found.links,
                fields=found.fields,
                plan=found.plan,
                answer=found.answer,
                as_read=True,
            )

        return replace(tool, call=call, timeout=None, private=None)

    async def reviewed(self, run_id: str, call_id: str) -> CallReviewed | None:
        """What the small model said of a call. Where nothing came of the call, the run was stopped here."""
        log = (e for e in self.record.runs.get(run_id, ()) if not isinstance(e, RunStarted))
        of_call = [e for e in log if getattr(e, "call_id", None) == call_id]
        found = next((e for e in of_call if isinstance(e, CallReviewed)), None)
        if found is not None:
            await self.order.turn(found)
        elif not of_call:
            await self.unfinished(run_id)
        return found

    async def judged(self, run_id: str, asked: tuple[str, ...]) -> ClaimsJudged | None:
        """What a judge said of these claims of a run."""
        log = self.record.runs.get(run_id, ())
        found = next((e for e in log if isinstance(e, ClaimsJudged) and e.asked == asked), None)
        if found is not None:
            await self.order.turn(found)
        return found

    async def unfinished(self, run_id: str) -> Any:
        """Nothing was recorded here: the run was stopped at this point, one way or another."""
        report = self.record.finished(run_id)
        await self.end(run_id)
        # An error of a call beside it stops a call as well.
        if not self.stop(run_id) and (report is None or not (report.error or report.incomplete)):
            raise ToolError("the record ends here")
        await asyncio.Event().wait()

    async def end(self, run_id: str) -> None:
        """Return when it is time for a run to end that nobody cancels: its time is up, or it fails."""
        if not any(self.record.cancelled(each) for each in self.record.line(run_id)):
            ended = self.record.end(run_id)
            if ended is not None:
                await self.order.turn(ended)

    def deliver(self, run_id: str, step: int, when: When, *, asks: bool = False) -> bool:
        """What people said while this step was asked or waited for a limit, or between its reply and the next
        step; whether that is anything.

        `asks`: what they asked children of the run, which is said before the rest.
        """
        live = self.workflow.tree.live.get(run_id) if self.workflow else None
        told = False
        for event, here in _messages(self.record.runs.get(run_id, ())):
            if here != (step, when) or live is None:
                continue
            known = event.next_turn or event.message_id in live.run.state.seen_messages
            if not known and (run_id, event.seq) not in self._said and _by_person(event, asks=asks):
                self._said.add((run_id, event.seq))
                self._tell(live.run, event)
                told = True
        return told

    def cut(self, run_id: str, step: int) -> None:
        """Tell of the calls that gave no reply before that of this step."""
        live = self.workflow.tree.live.get(run_id) if self.workflow else None
        if live is not None:
            live.run.play_cuts(step)

    def _tell(self, run: Run, event: MessageReceived) -> None:
        """What a person said to a run, and asked a child of it."""
        names = (
            "text",
            "message_id",
            "asks",
            "awaited",
            "max_turns",
            "rendered",
            "images",
            "output",
            "guarded",
        )
        said = {name: getattr(event, name) for name in names}
        run.log.write(MessageReceived, sender="person", **said, next_turn=run.state.at_work > 0)
        for spoken in spoken_after(self.record.runs.get(run.id, ()), event):
            run.log.write(GuardSpoke, **asdict(spoken))
        if run.depth == 0:
            run.budget.renew()
        if self.workflow is not None:
            self.workflow.tree.spoken_to(run.id)
        if self.workflow is not None and event.asks:
            self.workflow.inbox.ask_children(run)


def _read(tool: Tool, arguments: str) -> dict[str, Any] | None:
    try:
        return tool.parse(arguments)
    except ToolError:
        return None


def _why_not(result: str, key: str) -> str:
    """Why a child was not started, by the result of its call; of a batch, by the row of that number."""
    try:
        return str(json.loads(result)["results"][int(key)]["error"])
    except (ValueError, KeyError, IndexError, TypeError):
        return result


def _messages(log: Sequence[AnyEvent]) -> Iterator[tuple[MessageReceived, tuple[int, When]]]:
    """Each message with the place in the steps where it was said. A step that is begun again, since whoever
    took the run up found no reply, begins there."""
    last = {e.step: at for at, e in enumerate(log) if isinstance(e, StepStarted)}
    here: tuple[int, When] = (0, "replied")
    for at, event in enumerate(log):
        if isinstance(event, StepStarted) and last[event.step] != at:
            here = (event.step - 1, "replied")
        elif isinstance(event, StepStarted | ModelReplied | LimitReached | LimitPassed):
            here = (event.step, _WHEN[type(event)])
        elif isinstance(event, MessageReceived):
            yield event, here


def _asked_so_far(state: RunState | None) -> int:
    """The last step of a run that is not asked again when it goes on."""
    return 0 if state is None else state.step - (state.step_open is not None)


def _by_person(event: MessageReceived, *, asks: bool) -> bool:
    """Whether a person said this to the run itself, or, if that `asks`, to a child of it."""
    return event.sender == "person" and not event.opens and (bool(event.asks) or not asks)


def _called_at(log: Sequence[AnyEvent], call_id: str) -> float | None:
    """When a call was first made: one that was interrupted and made again is in the log once."""
    return next((e.at for e in log if isinstance(e, ToolCalled) and e.call_id == call_id), None)


def _first_of(log: Sequence[AnyEvent], call_id: str) -> AnyEvent | None:
    """The first that came of a call of this run."""
    of_call = (e for e in log if not isinstance(e, RunStarted) and getattr(e, "call_id", None) == call_id)
    return next((e for e in of_call if isinstance(e, STEADY)), None)


def _brought(log: Sequence[AnyEvent], call_id: str) -> tuple[str, ...] | None:
    """The private data that a call was said to bring when it began."""
    return next((e.private for e in log if isinstance(e, ToolCalled) and e.call_id == call_id), None)


def _told_then(log: Sequence[AnyEvent], path: str) -> tuple[str, str] | None:
    """The nearest of the instructions that a run was told of to a file."""
    told = {e.message_id: e.text for e in log if isinstance(e, MessageReceived) and e.about == "instructions"}
    near = [file for file in told if path.startswith(file.rpartition("/")[0] + "/")]
    found = max(near, key=len, default=None)
    return None if found is None else (found, told[found])
