"""The events of one workflow, turned into spans: each is given back when the event is read that ends it.

    invoke_workflow boss                one for each turn of the conversation, and so one trace for each
      invoke_agent boss
        chat gpt-5-mini
        wait_for_person write           a person was waited for
        execute_tool clerk
          invoke_agent clerk            a child hangs below the call that started it
            chat gpt-5-mini

Called by `live` with what happens, and by `export` with a stored log. It touches no store and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallCut,
    CallReviewed,
    ChildEnded,
    ChildStarted,
    ClaimsJudged,
    ErrorRaised,
    Event,
    HistoryPruned,
    LimitPassed,
    LimitReached,
    MessageReceived,
    ModelReplied,
    ModelSampled,
    RunFinished,
    RunResumed,
    RunStarted,
    StepRetried,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.story import Story
from retinue.telemetry import names
from retinue.telemetry.content import SpanContent
from retinue.telemetry.opened import OpenSpan, RunTrace
from retinue.telemetry.span import Attributes, Span, SpanLink, SpanMark, span_id, trace_id
from retinue.types import Usage

_PURPOSES = {CallReviewed: "review", ModelSampled: "sampling", ClaimsJudged: "judge"}
_OPENS = (RunResumed, MessageReceived, StepStarted)
"""What begins another turn of a run that had ended."""
INTERRUPTED = "interrupted"


class SpanReader:
    """Feed it every event of one workflow, from the first on. `content` is None where none is wanted."""

    def __init__(self, content: SpanContent | None = None) -> None:
        self._content = content
        self._story = Story()
        self._runs: dict[str, RunTrace] = {}
        self._parents: dict[str, str] = {}
        """The span of the call that started a child, or last asked it again."""
        self._ended: list[Span] = []
        self._last_at = 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing is open: what comes next begins a turn."""
        return all(run.agent is None for run in self._runs.values())

    def read(self, event: AnyEvent) -> list[Span]:
        """The spans that this event ends, the inner ones first."""
        before, self._last_at = self._last_at, max(self._last_at, event.at)
        self._story.apply(event)
        if isinstance(event, RunStarted) and event.run_id not in self._runs:
            run = self._runs[event.run_id] = RunTrace(began=event, model=event.model)
            self._open_turn(run, event)
        run = self._runs.get(event.run_id)
        if run is None:
            return []
        if run.agent is None and isinstance(event, _OPENS):
            self._open_turn(run, event)
        elif isinstance(event, RunResumed):
            stopped_at = before if event.stopped_at is None else event.stopped_at
            self._close(run, stopped_at, INTERRUPTED, calls=False)
        handler = self.HANDLERS.get(type(event))
        if handler is not None and run.agent is not None:
            handler(self, run, event)
        return self._take()

    def cut(self) -> list[Span]:
        """End what is still open where the log ends: of a run that nobody works on, or that goes on."""
        for run in reversed(self._runs.values()):
            self._end_turn(run, self._last_at, error=INTERRUPTED)
        return self._take()

    def _take(self) -> list[Span]:
        ended, self._ended = self._ended, []
        return ended

    def _end(self, run: RunTrace, span: OpenSpan, at: float, *, error: str = "", message: str = "") -> None:
        self._ended.append(span.ended(run.trace_id, at, error=error, message=message))

    def _below(self, run: RunTrace, event: Event, operation: str, subject: str) -> OpenSpan:
        """A span of a run, begun by an event."""
        return OpenSpan(
            operation=operation,
            subject=subject,
            start=event.at,
            span_id=span_id(run.began.run_id, operation, event.seq),
            parent_id=run.agent.span_id if run.agent else "",
            attributes={
                names.CONVERSATION: run.began.root_id,
                names.RUN_ID: run.began.run_id,
                names.AGENT_NAME: run.name,
            },
        )

    # -- turns -----------------------------------------------------------------

    def _open_turn(self, run: RunTrace, event: Event) -> None:
        began = run.began
        root = self._runs.get(began.root_id, run)
        run.start_turn()
        run.waited_before = self._waited(run, event.at)
        run.trace_id = trace_id(began.root_id, run.turn) if root is run else root.trace_id
        parent = self._parents.get(began.run_id, root.agent.span_id if root.agent else "")
        above = began.options.traceparent.split("-") if root is run and run.turn == 1 else []
        if len(above) > 2:
            run.trace_id = above[1]
        if root is run:
            run.workflow = self._below(run, event, names.INVOKE_WORKFLOW, run.name)
            run.workflow.attributes |= {names.WORKFLOW_NAME: run.name, names.RUN_TURN: run.turn}
            run.workflow.links, parent = run.before, run.workflow.span_id
            run.workflow.parent_id = above[2] if len(above) > 2 else ""
        agent = self._below(run, event, names.INVOKE_AGENT, run.name)
        agent.parent_id = parent
        agent.attributes |= {names.RUN_DEPTH: began.depth, names.RUN_TURN: run.turn}
        if began.spec.lifecycle == "permanent" and began.spec.description:
            agent.attributes[names.AGENT_DESCRIPTION] = began.spec.description
        if self._content is not None:
            agent.attributes |= self._content.asked(began, event)
        run.agent = agent

    def _end_turn(self, run: RunTrace, at: float, *, error: str = "", message: str = "") -> None:
        agent, workflow = run.agent, run.workflow
        if agent is None:
            return
        self._close(run, at, error or INTERRUPTED)
        node = self._story.nodes.get(run.began.run_id)
        stands: Attributes = {names.WAITED: round(self._waited(run, at) - run.waited_before, 6)}
        if node is not None:
            stands[names.OUTCOME] = node.outcome
        agent.attributes |= {**stands, **_asked(run.model), **_used(run.own)}
        agent.attributes |= {names.CALLS_OF_MODEL: run.inference_calls, names.CALLS_OF_TOOLS: run.tool_calls}
        if run.own.cost is not None:
            agent.attributes[names.OWN_COST] = run.own.cost
        self._end(run, agent, at, error=error, message=message)
        run.agent = run.workflow = None
        if workflow is None:
            return
        workflow.attributes |= stands
        if node is not None:
            workflow.attributes[names.TREE_INPUT_TOKENS] = node.usage.input_tokens
            workflow.attributes[names.TREE_OUTPUT_TOKENS] = node.usage.output_tokens
            if node.usage.cost is not None:
                workflow.attributes[names.TREE_COST] = node.usage.cost
        self._end(run, workflow, at, error=error, message=message)
        run.before = (SpanLink(trace_id=run.trace_id, span_id=workflow.span_id),)

    def _close(self, run: RunTrace, at: float, error: str, *, calls: bool = True) -> None:
        """End what a run was doing when it stopped. Calls that are made again may go on under their name."""
        open_spans = [run.chat, run.parked, *(run.waits.values() if calls else ())]
        open_spans += run.calls.values() if calls else ()
        for span in open_spans:
            if span is not None:
                self._end(run, span, at, error=error)
        run.chat = run.parked = None
        if calls:
            run.calls, run.waits = {}, {}

    def _waited(self, run: RunTrace, at: float) -> float:
        node = self._story.nodes.get(run.began.run_id)
        return 0.0 if node is None else node.waited(at)

    # -- events ----------------------------------------------------------------

    def _resumed(self, run: RunTrace, event: RunResumed) -> None:
        run.model = event.model or run.model
        run.own = run.own + event.cut

    def _step_started(self, run: RunTrace, event: StepStarted) -> None:
        if run.chat is not None:
            self._end(run, run.chat, event.at, error=INTERRUPTED)
        asked, spec = _asked(event.model), run.began.spec
        run.model = event.model
        run.chat = self._below(run, event, names.CHAT, str(asked[names.REQUEST_MODEL]))
        run.chat.kind = "client"
        run.chat.attributes |= {**asked, names.STEP: event.step, names.PURPOSE: event.purpose}
        if spec.temperature is not None:
            run.chat.attributes[names.REQUEST_TEMPERATURE] = spec.temperature
        if spec.max_tokens is not None:
            run.chat.attributes[names.REQUEST_MAX_TOKENS] = spec.max_tokens
        run.inference_calls += 1
        if self._content is not None:
            run.chat.attributes |= self._content.shown(run.began)

    def _step_retried(self, run: RunTrace, event: StepRetried) -> None:
        if run.chat is None:
            return
        run.chat.attributes[names.RETRIES] = event.attempt
        mark: Attributes = {"attempt": event.attempt, "wait": event.wait}
        run.chat.marks.append(SpanMark(name=names.RETRIED, at=event.at, attributes=mark))

    def _cut(self, run: RunTrace, event: CallCut) -> None:
        run.own = run.own + event.usage

    def _replied(self, run: RunTrace, event: ModelReplied) -> None:
        run.own = run.own + event.usage
        chat, run.chat = run.chat, None
        if chat is None:
            return
        chat.attributes |= _used(event.usage)
        chat.attributes[names.RESPONSE_MODEL] = _asked(event.model)[names.REQUEST_MODEL]
        chat.attributes[names.FINISH_REASONS] = (names.FINISHED[event.stop],)
        if event.usage.cost is not None:
            chat.attributes[names.COST] = event.usage.cost
        if event.effort:
            chat.attributes[names.EFFORT] = event.effort
        if self._content is not None:
            chat.attributes |= self._content.replied(event)
        self._end(run, chat, event.at)

    def _limit_reached(self, run: RunTrace, event: LimitReached) -> None:
        run.parked = self._below(
            run, event, names.WAIT_FOR_LIMIT, str(_asked(event.model)[names.REQUEST_MODEL])
        )
        if run.chat is not None:
            run.parked.parent_id = run.chat.span_id

    def _limit_passed(self, run: RunTrace, event: LimitPassed) -> None:
        if run.parked is not None:
            self._end(run, run.parked, event.at)
        run.parked = None

    def _tool_called(self, run: RunTrace, event: ToolCalled) -> None:
        earlier = run.calls.pop(event.call_id, None)
        if earlier is not None:
            self._end(run, earlier, event.at, error=INTERRUPTED)
        call = run.calls[event.call_id] = self._tool(run, event)
        call.attributes[names.EFFECT] = event.effect
        run.tool_calls += 1
        if self._content is not None:
            call.attributes |= self._content.called(event)

    def _tool(self, run: RunTrace, event: ToolCalled | ToolReturned) -> OpenSpan:
        span = self._below(run, event, names.EXECUTE_TOOL, event.name)
        span.attributes |= {
            names.TOOL_NAME: event.name,
            names.TOOL_CALL_ID: event.call_id,
            names.TOOL_TYPE: "function",
        }
        return span

    def _tool_returned(self, run: RunTrace, event: ToolReturned) -> None:
        run.own = run.own + event.usage
        call = run.calls.pop(event.call_id, None) or self._tool(run, event)
        if event.not_run:
            call.attributes[names.NOT_RUN] = event.not_run
        if self._content is not None:
            call.attributes |= self._content.returned(event)
        error = event.not_run or ("tool_error" if event.is_error else "")
        self._end(run, call, event.at, error=error)

    def _approval_requested(self, run: RunTrace, event: ApprovalRequested) -> None:
        wait = run.waits[event.approval_id] = self._below(run, event, names.WAIT_FOR_PERSON, event.tool)
        wait.attributes |= {names.TOOL_NAME: event.tool, names.TOOL_CALL_ID: event.call_id}

    def _approval_answered(self, run: RunTrace, event: ApprovalAnswered) -> None:
        wait = run.waits.pop(event.approval_id, None)
        if wait is not None:
            wait.attributes |= {names.DECISION: event.decision, names.DECIDED_BY: event.by}
            self._end(run, wait, event.at)

    def _small_model(self, run: RunTrace, event: CallReviewed | ModelSampled | ClaimsJudged) -> None:
        run.own = run.own + event.usage
        asked = _asked(event.model)
        chat = self._below(run, event, names.CHAT, str(asked[names.REQUEST_MODEL]))
        chat.start, chat.kind = event.at - event.duration_ms / 1000, "client"
        purpose = _PURPOSES[type(event)]
        chat.attributes |= {**asked, **_used(event.usage), names.PURPOSE: purpose}
        if event.usage.cost is not None:
            chat.attributes[names.COST] = event.usage.cost
        run.inference_calls += 1
        self._end(run, chat, event.at)

    def _child_started(self, run: RunTrace, event: ChildStarted) -> None:
        call = run.calls.get(event.call_id)
        if call is not None:
            self._parents[event.child_id] = call.span_id
        elif run.agent is not None:
            self._parents[event.child_id] = run.agent.span_id

    def _child_ended(self, run: RunTrace, event: ChildEnded) -> None:
        run.own = run.own + event.telling

    def _pruned(self, run: RunTrace, event: HistoryPruned) -> None:
        run.own = run.own + event.usage
        if run.agent is not None:
            mark: Attributes = {"dropped": event.dropped}
            run.agent.marks.append(SpanMark(name=names.PRUNED, at=event.at, attributes=mark))

    def _message(self, run: RunTrace, event: MessageReceived) -> None:
        if self._content is not None:
            self._content.told(event)

    def _failed(self, run: RunTrace, event: ErrorRaised) -> None:
        run.failure, run.failure_text = event.kind, event.message

    def _finished(self, run: RunTrace, event: RunFinished) -> None:
        report = event.report
        run.own = run.own + event.cut
        error = "" if report.status == "completed" else run.failure or report.ended_by or report.status
        message = ""
        if run.agent is not None:
            run.agent.attributes[names.ENDED_BY] = report.ended_by or report.status
            run.agent.attributes[names.WORKED] = report.duration_ms / 1000
            if self._content is not None:
                run.agent.attributes |= self._content.reported(event)
                message = self._content.failure(run.failure_text) if error else ""
        self._end_turn(run, event.at, error=error, message=message)

    HANDLERS: ClassVar[dict[type, Callable[[SpanReader, RunTrace, Any], None]]] = {
        RunResumed: _resumed,
        StepStarted: _step_started,
        StepRetried: _step_retried,
        CallCut: _cut,
        ModelReplied: _replied,
        LimitReached: _limit_reached,
        LimitPassed: _limit_passed,
        ToolCalled: _tool_called,
        ToolReturned: _tool_returned,
        ApprovalRequested: _approval_requested,
        ApprovalAnswered: _approval_answered,
        CallReviewed: _small_model,
        ModelSampled: _small_model,
        ClaimsJudged: _small_model,
        ChildStarted: _child_started,
        ChildEnded: _child_ended,
        HistoryPruned: _pruned,
        MessageReceived: _message,
        ErrorRaised: _failed,
        RunFinished: _finished,
    }


def _asked(model: str) -> Attributes:
    provider, name = names.provider_and_model(model.partition(",")[0])  # of several, who is asked first
    return {names.PROVIDER: provider, names.REQUEST_MODEL: name}


def _used(usage: Usage) -> Attributes:
    found: Attributes = {names.INPUT_TOKENS: usage.input_tokens, names.OUTPUT_TOKENS: usage.output_tokens}
    if usage.cached_tokens:
        found[names.CACHE_READ_TOKENS] = usage.cached_tokens
    return found
