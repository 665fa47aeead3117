"""Replay: a recorded workflow run again with the recorded replies, results and answers, and compared.

No network, no key, no tool with an effect: the models say what they said, the tools return what they
returned. The loop, delegation, budgets, approvals and prompts are today's. If they are as they were, the
same events come out; what differs is shown as a diff. A finished tree is a test.

Time is played back as well: a run takes as long as it took, events come in the order they came in, and what
only reads how things stand at a moment returns what it returned. So no text that holds a duration or a state
has to be understood in order to be compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import msgspec

from retinue.builtin_tools import CODE, DELEGATION_TOOLS, NOTES, SEARCH, SKILL
from retinue.engine.compare import difference
from retinue.engine.config import WorkflowConfig
from retinue.engine.knowledge import keep_recorded
from retinue.engine.parking_clock import PlayedParkingClock
from retinue.engine.player import Player
from retinue.engine.record import Record
from retinue.engine.run_guards import spoken_after
from retinue.engine.workflow import Root, Workflow
from retinue.errors import ModelError, RunError, ToolError
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallCut,
    Event,
    ModelSampled,
    RunFinished,
    RunResumed,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.guards import Looked
from retinue.store.base import KeptFile, Signal
from retinue.store.memory import MemoryStore
from retinue.tools.base import Tool, ToolContext, ToolResult, tool_from_schema
from retinue.types import (
    AgentSpec,
    Report,
    Usage,
)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What came out. `diff` is empty if the same events did. `after` counts the events of the record that
    were not replayed: what follows the first end of its root is another conversation."""

    report: Report
    events: list[AnyEvent]
    diff: str
    after: int = 0

    @property
    def same(self) -> bool:
        return not self.diff


async def replay(
    events: Sequence[AnyEvent],
    config: WorkflowConfig,
    *,
    live_tools: frozenset[str] = frozenset(),
    kept: Iterable[KeptFile] = (),
) -> Replayed:
    """Run a recorded workflow again. Tools named in `live_tools` really run; the rest are played back.

    `kept` are the files that were kept with it: reports are held against the pages among them again.
    """
    ends = (i for i, e in enumerate(events) if isinstance(e, RunFinished) and e.depth == 0)
    end = next((i for i in ends if not _answer_of(events[i]).at_work), None)
    if end is None:
        root_id = events[0].root_id
        raise RunError(f"{root_id} has not ended: resume or cancel it first, then replay it", run_id=root_id)
    after = len(events) - end - 1
    said = events[: end + 1]  # what was said after is another conversation
    events = _without_inquiries(_with_samples(said))
    record = Record(events)
    player = Player(record)
    store = MemoryStore()
    pages = {(e.run_id, each.saved_as) for e in events if isinstance(e, ToolReturned) for each in e.sources}
    for file in kept:
        if (file.run_id, file.path) in pages:  # what else it wrote, it writes again
            await store.keep(file)
    began = record.started(record.root_id)
    if began is None:
        raise ModelError("the record has no beginning", kind="protocol")
    config = _in_manner(record, config)
    agents = _agents(record, config)
    absent = _absent(record, {*config.tools, *agents, *DELEGATION_TOOLS, *NOTES, CODE, SKILL, SEARCH})
    tools = {**config.tools, **absent}
    config = replace(
        config,
        store=store,
        folder_name=PurePath(began.cwd).name,
        tools={name: tool if name in live_tools else player.played(tool) for name, tool in tools.items()},
        attached=config.attached | (absent.keys() & {*began.tools}),
        recorded=player.cast,
        # As it was then: whether there is anyone to ask now is no part of the record.
        answering="ask" if any(isinstance(e, ApprovalRequested) for e in events) else "refuse",
        publish=player.hear,
        parking_clock=PlayedParkingClock(),
        agents=agents,
        staged=player.staged,
        merging=player.merging,
        started_then=player.started_then,
        cancelling=player.cancelling,
        answer_due=player.answer_due,
        noticed=player.noticed,
        handed=record.handed,
        reviewed=player.reviewed,
        judged=player.judged,
        approved_all=_approved_all(began, events),
    )
    if config.first is not None:
        await keep_recorded(store, config.first, config.settings, record.runs[record.root_id])
    player.workflow = workflow = Workflow(config, record.root_id)
    for event in events:
        if isinstance(event, ApprovalAnswered):
            await store.send(_answer(event))
    root = Root(
        spec=_as_given(_todays(began.spec, config), began),
        prompt=began.prompt,
        label=began.label,
        rendered=began.rendered,
        images=began.images,
        history=began.history,
        guarded=_looked(events, began),
    )
    task = await workflow.start_root(root)
    try:
        report = await task
    finally:
        player.leave()
        workflow.tree.clear()
    replayed = await store.events(record.root_id)
    return Replayed(report=report, events=replayed, diff=difference(events, replayed), after=after)


def _looked(events: Sequence[AnyEvent], began: RunStarted) -> Looked | None:
    log = [event for event in events if event.run_id == began.run_id]
    return Looked(text=began.prompt, said=tuple(spoken_after(log, began))) if began.guarded else None


def _answer_of(event: AnyEvent) -> Report:
    assert isinstance(event, RunFinished)
    return event.report


def _in_manner(record: Record, config: WorkflowConfig) -> WorkflowConfig:
    """Whether its root left children at work depended on who worked on it: now it does as it did then."""
    ends = config.settings.delegation.parent_ends
    left = any(isinstance(e, RunFinished) and e.report.at_work for e in record.runs[record.root_id])
    if (ends == "leave") == left:
        return config
    delegation = msgspec.structs.replace(config.settings.delegation, parent_ends="leave" if left else "wait")
    return replace(config, settings=msgspec.structs.replace(config.settings, delegation=delegation))


def _approved_all(began: RunStarted, events: Sequence[AnyEvent]) -> Callable[[str, str], bool | None]:
    """Whether all was approved that no rule denies when a call was first heard of."""
    approved, then = began.options.yes, dict[tuple[str, str], bool]()
    for event in events:
        if isinstance(event, RunResumed) and event.depth == 0:
            approved = event.yes
        elif isinstance(event, ToolCalled | ToolReturned | ApprovalRequested):
            then.setdefault((event.run_id, event.call_id), approved)
    return lambda run_id, call_id: then.get((run_id, call_id))


def _without_inquiries(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Without what calls asked people while they ran: they are played back, and ask nothing."""
    asked = {e.approval_id for e in events if isinstance(e, ApprovalRequested) and e.form is not None}
    questions = (ApprovalRequested, ApprovalAnswered)
    return [e for e in events if not (isinstance(e, questions) and e.approval_id in asked)]


def _with_samples(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """With what models wrote for servers as a part of what those calls took: they are played back. What was
    written for a call that gave nothing back is gone, like a reply that was cut off."""
    returned = {(e.run_id, e.call_id) for e in events if isinstance(e, ToolReturned)}
    spent: dict[tuple[str, str], Usage] = {}
    steps: dict[str, int] = {}
    found: list[AnyEvent] = []
    for event in events:
        if isinstance(event, StepStarted):
            steps[event.run_id] = event.step
        if isinstance(event, ToolReturned) and (usage := spent.pop((event.run_id, event.call_id), None)):
            found.append(msgspec.structs.replace(event, usage=event.usage + usage))
        elif not isinstance(event, ModelSampled):
            found.append(event)
        elif (call := (event.run_id, event.call_id)) in returned:
            spent[call] = spent.get(call, Usage()) + event.usage
        else:
            envelope = {name: getattr(event, name) for name in Event.__struct_fields__}
            found.append(CallCut(**envelope, step=steps.get(event.run_id, 0), usage=event.usage))
    return found


def _agents(record: Record, config: WorkflowConfig) -> dict[str, AgentSpec]:
    """Today's agents, and those of the record that are not known today."""
    found = (record.started(run_id) for run_id in record.runs if run_id != record.root_id)
    then = {e.spec.name: e.spec for e in found if e is not None and e.spec.lifecycle == "permanent"}
    known = {*config.agents, *config.tools, *DELEGATION_TOOLS, *then}
    unused = {name: AgentSpec(name=name, description="", prompt="") for name in _unused(record) - known}
    return {**config.agents, **unused, **{name: _todays(spec, config) for name, spec in then.items()}}


def _todays(spec: AgentSpec, config: WorkflowConfig) -> AgentSpec:
    """The agent of this name as it is now. One that a program made is not one of a file that has its name."""
    now = config.agents.get(spec.name)
    if now is None or spec.lifecycle != "permanent" or (spec.origin == "code" and now.origin != "code"):
        return spec
    return msgspec.structs.replace(now, prompt=spec.prompt) if "prompt" in spec.given else now


def _as_given(spec: AgentSpec, began: RunStarted) -> AgentSpec:
    """The root with what its run itself was given, and with a prompt that a function made for it then."""
    fields = (*began.options.changed, *(("prompt",) if "prompt" in began.spec.given else ()))
    return msgspec.structs.replace(spec, **{name: getattr(began.spec, name) for name in fields})


def _absent(record: Record, known: set[str]) -> dict[str, Tool]:
    """Stand-ins for the tools of the record that are not there today: of another program, of a server."""
    called = {e.name: e for e in record.events if isinstance(e, ToolCalled)}
    asked = {e.tool: e for e in record.events if isinstance(e, ApprovalRequested)}
    shown = {name for e in record.events if isinstance(e, RunStarted) for name in e.tools}

    async def call(arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        raise ToolError("the record has no result of this call")

    def stand_in(name: str) -> Tool:
        return tool_from_schema(
            name=name,
            description="",
            schema={"type": "object"},
            effect=called[name].effect if name in called else asked[name].effect if name in asked else "read",
            call=call,
            repeatable=called[name].repeatable if name in called else False,
            risk=asked[name].risk if name in asked else None,
        )

    return {name: stand_in(name) for name in sorted(({*called, *asked, *shown}) - known)}


def _unused(record: Record) -> set[str]:
    """Ways to delegate that runs were shown. No event says of an agent that did nothing that it was one, but
    a child that was made up is shown all of its parent's tools but these."""
    found: set[str] = set()
    for child in record.events:
        if isinstance(child, RunStarted) and child.spec.shown is not None and child.parent_id is not None:
            if child.spec.lifecycle != "temporary":  # a registered agent says itself what it is shown
                continue
            parent = record.started(child.parent_id)
            found.update(set(parent.tools if parent is not None else ()).difference(child.spec.shown))
    return found


def _answer(event: ApprovalAnswered) -> Signal:
    body = {"decision": event.decision, "reason": event.reason, "arguments": event.arguments, "by": event.by}
    return Signal(
        root_id=event.root_id,
        run_id=event.run_id,
        kind="answer",
        key=event.approval_id,
        body=json.dumps(body),
        at=event.at,
    )
