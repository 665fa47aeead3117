"""Replay: a recorded workflow run again with the recorded replies, results and answers, and compared.

No network, no key, no tool with an effect: the models say what they said, the tools return what they
returned. The loop, delegation, budgets, approvals and prompts are today's. If they are as they were, the
same events come out; what differs is shown as a diff. A finished tree is a test.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast, get_args

import msgspec

from retinue.engine.approve import Answer
from retinue.engine.kit import Kit
from retinue.engine.knowledge import keep_recorded
from retinue.engine.local import Workflow
from retinue.errors import ModelError, ModelErrorKind, RetinueError, RunError, ToolError
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    ErrorRaised,
    Event,
    LiveEvent,
    MessageReceived,
    ModelReplied,
    RunFinished,
    RunResumed,
    RunStarted,
    StepRetried,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.models.base import Model
from retinue.run import SystemPrompt
from retinue.store.base import Letter
from retinue.store.memory import MemoryStore
from retinue.tools.base import Tool, ToolContext, ToolResult
from retinue.types import AgentSpec, AssistantMessage, ModelEvent, ModelRequest, Reply, Report, TextDelta

# Clocks and machines. Everything else has to come out the same.
_VOLATILE = frozenset(
    {"at", "pos", "seq", "v", "duration_ms", "pid", "host", "owner", "cwd", "options", "forked_from"}
)
_SECRET = re.compile(
    r"""(?x)
    \b(?: sk-[\w-]{16,} | sk_live_\w{16,} | gh[pousr]_\w{20,} | github_pat_\w{20,} | xox[abprs]-[\w-]{10,}
        | AKIA[0-9A-Z]{16} | AIza[\w-]{30,} | ya29\.[\w-]{20,} | hf_\w{20,}
        | eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,} )
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[^-]*-----END[ ][A-Z ]*PRIVATE[ ]KEY-----
    | (?i:\bbearer\s+)[\w.~+/-]{16,}=*
    """
)


SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


def secrets_of(environ: Iterable[tuple[str, str]]) -> list[str]:
    """Values of variables whose names say that they are secret."""
    return [
        value
        for name, value in environ
        if len(value) >= 6 and any(part in name.upper() for part in SECRET_NAMES)
    ]


def scrub(events: Iterable[AnyEvent], secrets: Iterable[str] = ()) -> list[AnyEvent]:
    """The same events with everything that looks like a secret, or is one of `secrets`, blanked out."""
    own = [re.escape(json.dumps(secret)[1:-1]) for secret in secrets if len(secret) >= 6]
    known = re.compile("|".join(own)) if own else None

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            text = _SECRET.sub("[secret]", value)
            return known.sub("[secret]", text) if known else text
        if isinstance(value, dict):
            return {k: clean(v) for k, v in cast("dict[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [clean(v) for v in cast("list[Any]", value)]
        return value

    return [msgspec.convert(clean(msgspec.to_builtins(event)), type(event)) for event in events]


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What came out. `diff` is empty if the same events did."""

    report: Report
    events: list[AnyEvent]
    diff: str

    @property
    def same(self) -> bool:
        return not self.diff


_NO_ANSWER = Answer(decision="reject", reason="the record has no answer")


class Record:
    """A recorded workflow, looked up by run."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.events = events
        self.runs: dict[str, list[AnyEvent]] = {}
        for event in events:
            self.runs.setdefault(event.run_id, []).append(event)
        self.root_id = events[0].root_id
        self.results = {(e.run_id, e.call_id): e for e in events if isinstance(e, ToolReturned)}
        self.answered = {e.approval_id for e in events if isinstance(e, ApprovalAnswered)}
        self.places = {_place(e) for e in events if isinstance(e, _STEADY)}

    def started(self, run_id: str) -> RunStarted | None:
        return next((e for e in self.runs.get(run_id, ()) if isinstance(e, RunStarted)), None)

    def replies(self, run_id: str) -> dict[int, ModelReplied]:
        return {e.step: e for e in self.runs.get(run_id, ()) if isinstance(e, ModelReplied)}

    def line(self, run_id: str) -> list[str]:
        """A run, its parent, the parent of that, up to the root."""
        began = self.started(run_id)
        above = began.parent_id if began is not None else None
        return [run_id, *(self.line(above) if above is not None else ())]

    def cancelled(self, run_id: str) -> CancelRequested | None:
        return next((e for e in self.runs.get(run_id, ()) if isinstance(e, CancelRequested)), None)

    def finished(self, run_id: str) -> Report | None:
        return next((e.report for e in self.runs.get(run_id, ()) if isinstance(e, RunFinished)), None)

    def timed_out(self, run_id: str) -> bool:
        """Older logs do not say so: there it is an error that nothing raised."""
        report = self.finished(run_id)
        if report is None or report.ended_by:
            return report is not None and report.ended_by == "timeout"
        raised = any(isinstance(e, ErrorRaised) for e in self.runs[run_id])
        return report.status == "error" and not raised

    def before(self, cancel: CancelRequested) -> set[Place]:
        """What the run that was cancelled, and all those below it, had done by then."""
        earlier = self.events[: self.events.index(cancel)]
        return {_place(e) for e in earlier if isinstance(e, _STEADY) and cancel.run_id in self.line(e.run_id)}


async def replay(
    events: Sequence[AnyEvent], kit: Kit, *, live_tools: frozenset[str] = frozenset()
) -> Replayed:
    """Run a recorded workflow again. Tools named in `live_tools` really run; the rest are played back."""
    end = next((i for i, e in enumerate(events) if isinstance(e, RunFinished) and e.depth == 0), None)
    if end is None:
        root_id = events[0].root_id
        raise RunError(f"{root_id} has not ended: resume or cancel it first, then replay it", run_id=root_id)
    events = events[: end + 1]  # what was said after the first report is another conversation
    record = Record(events)
    player = _Player(record)
    store = MemoryStore()
    began = record.started(record.root_id)
    if began is None:
        raise ModelError("the record has no beginning", kind="protocol")
    kit = replace(
        kit,
        store=store,
        tools={name: tool if name in live_tools else player.played(tool) for name, tool in kit.tools.items()},
        recorded=player.cast,
        # As it was then: whether there is anyone to ask now is no part of the record.
        answering="ask" if any(isinstance(e, ApprovalRequested) for e in events) else "refuse",
        publish=player.hear,
        agents={**kit.agents, **_recorded_agents(record)},
    )
    if kit.first is not None:
        await keep_recorded(store, kit.first, kit.settings, record.runs[record.root_id])
    player.workflow = workflow = Workflow(kit, record.root_id)
    for event in events:
        if isinstance(event, ApprovalAnswered):
            await store.post(_answer(event))
    task = await workflow.start_root(
        began.spec, began.prompt, label=began.label, rendered=began.rendered, images=began.images
    )
    try:
        report = await task
    finally:
        player.workflow = None
        workflow.forget()
    replayed = await store.events(record.root_id)
    return Replayed(report=report, events=replayed, diff=difference(events, replayed))


def _recorded_agents(record: Record) -> dict[str, AgentSpec]:
    found = (record.started(run_id) for run_id in record.runs)
    return {e.spec.name: e.spec for e in found if e is not None and e.spec.lifecycle == "permanent"}


def _answer(event: ApprovalAnswered) -> Letter:
    body = {"decision": event.decision, "reason": event.reason, "arguments": event.arguments, "by": event.by}
    return Letter(
        root_id=event.root_id,
        run_id=event.run_id,
        kind="answer",
        key=event.approval_id,
        body=json.dumps(body),
        at=event.at,
    )


Place = tuple[str, type[Event], Any, Any, Any]
_STEADY = (
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


def _place(event: Event) -> Place:
    named = (getattr(event, name, None) for name in ("step", "call_id", "child_id"))
    return (event.run_id, type(event), *named)  # pyright: ignore[reportReturnType] # three of them


class _Player:
    """Plays models, tools and people from a record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.workflow: Workflow | None = None
        self._heard: set[Place] = set()
        self._strayed = False
        self._cancels: dict[str, tuple[CancelRequested, set[Place]]] = {}
        """Cancels that somebody waits for, with what has to come out before them."""

    def hear(self, event: LiveEvent) -> None:
        """Follow what comes out: a person who never answered, and when it is time for a cancel."""
        if not isinstance(event, _STEADY):
            return
        place = _place(event)
        self._heard.add(place)
        self._strayed |= place not in self.record.places
        if isinstance(event, ApprovalRequested):
            self._leave_open(event)
        self._cancel_in_time()

    def _leave_open(self, asked: ApprovalRequested) -> None:
        if asked.approval_id in self.record.answered or self.stop(asked.run_id):
            return
        if self.workflow is not None:
            self.workflow.desk.tell(asked.approval_id, _NO_ANSWER)

    def stop(self, run_id: str) -> bool:
        """Stop a run as it was stopped: by its own cancel or timeout, or that of a run above it."""
        for each in self.record.line(run_id):
            cancel = self.record.cancelled(each)
            if cancel is not None:
                if each not in self._cancels:
                    self._cancels[each] = (cancel, self.record.before(cancel))
                self._cancel_in_time()
                return True
            live = self.workflow.live.get(each) if self.workflow else None
            if live is not None and self.record.timed_out(each):
                live.run.clock.expire()
                return True
        return False

    def _cancel_in_time(self) -> None:
        """Cancel once all that came before it has come again, or never will: this goes another way."""
        if self.workflow is None or not self._cancels:
            return
        over = {run_id for run_id, live in self.workflow.live.items() if live.over}
        for run_id, (cancel, before) in self._cancels.items():
            if self._strayed or all(place[0] in over for place in before - self._heard):
                self.workflow.cancel(run_id, cancel.reason, by=cancel.by)

    def cast(self, run_id: str) -> tuple[Model, SystemPrompt] | None:
        began = self.record.started(run_id)
        if began is None:
            return None
        return _Voice(self, run_id, began.model), SystemPrompt(text=began.system, parts=began.parts)

    def played(self, tool: Tool) -> Tool:
        async def call(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
            found = self.record.results.get((ctx.run_id, ctx.call_id))
            if found is None:
                return await self.unfinished(ctx.run_id)
            return ToolResult(
                text=found.text,
                is_error=found.is_error,
                sources=found.sources,
                files=found.files,
                usage=found.usage,
                not_run=found.not_run,
                not_started=found.not_started,
                private=found.private,
                found=found.found,
                links=found.links,
            )

        return replace(tool, call=call, timeout=None, private=None)

    async def unfinished(self, run_id: str) -> Any:
        """Nothing was recorded here: the run was stopped at this point, one way or another."""
        report = self.record.finished(run_id)
        # An error of a call beside it stops a call as well.
        if not self.stop(run_id) and (report is None or not (report.error or report.incomplete)):
            raise ToolError("the record ends here")
        await asyncio.Event().wait()

    def deliver(self, run_id: str, step: int, *, asking: bool) -> None:
        """What people said while this step was asked, or between its reply and the next step."""
        live = self.workflow.live.get(run_id) if self.workflow else None
        here = (0, False)
        for event in self.record.runs.get(run_id, ()):
            if isinstance(event, StepStarted | ModelReplied):
                here = (event.step, isinstance(event, StepStarted))
            elif here != (step, asking) or live is None:
                continue
            elif isinstance(event, MessageReceived) and event.sender == "person":
                live.run.log.write(
                    MessageReceived, text=event.text, sender="person", message_id=event.message_id
                )


class _Voice:
    """The model of one run, as recorded."""

    def __init__(self, player: _Player, run_id: str, name: str) -> None:
        self.player, self.run_id, self._name = player, run_id, name
        self.step = 0

    @property
    def name(self) -> str:
        """A server that was not to be had at the start has said only then which model it has."""
        report = self.player.record.finished(self.run_id) if self.step else None
        return report.model if report is not None and report.model else self._name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.step += 1
        found = self.player.record.replies(self.run_id).get(self.step)
        if found is None:
            events = self.player.record.runs.get(self.run_id, [])
            error = next((e for e in events if isinstance(e, ErrorRaised)), None)
            if error is not None:
                raise _as_it_was(error)
            if not self.player.stop(self.run_id):
                raise ModelError("the record ends here", kind="protocol")
            await asyncio.Event().wait()
            return
        if found.message.text:
            yield TextDelta(found.message.text)
        self.player.deliver(self.run_id, self.step, asking=True)
        said = partial(self.player.deliver, self.run_id, self.step, asking=False)
        asyncio.get_running_loop().call_soon(said)
        yield Reply(
            message=AssistantMessage(
                text=found.message.text, calls=found.message.calls, extra=found.message.extra
            ),
            usage=found.usage,
            stop=found.stop,
            model=found.model,
            thinking=found.thinking,
        )


def _as_it_was(error: ErrorRaised) -> Exception:
    """The recorded error, so that the log says the same of it again."""
    if error.kind in get_args(ModelErrorKind):
        return ModelError(error.message, kind=error.kind)  # pyright: ignore[reportArgumentType] # just checked
    return type(error.kind, (RetinueError,), {})(error.message)


def difference(before: Sequence[Event], after: Sequence[Event]) -> str:
    """How two logs differ, as a unified diff; empty if only in clocks and in the order among siblings."""
    old, new = _lines(before), _lines(after)
    return "\n".join(difflib.unified_diff(old, new, "recorded", "replayed", lineterm="", n=2))


def _lines(events: Sequence[Event]) -> list[str]:
    runs: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, RunResumed | StepRetried):
            continue  # how it got there is not what came out
        body = _plain(msgspec.to_builtins(event))
        runs.setdefault(event.run_id, []).append(json.dumps(body, sort_keys=True, ensure_ascii=False))
    return [line for run_id in sorted(runs) for line in sorted(dict.fromkeys(runs[run_id]))]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {k: _plain(v) for k, v in items if k not in _VOLATILE}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in cast("list[Any]", value)]
    return value
