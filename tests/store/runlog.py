"""Events for the tests of stores: a `Log` writes those of one run, numbered as they come."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar, cast

from hypothesis import HealthCheck

from retinue.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Decision,
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
from retinue.types import AgentSpec, AssistantMessage, Report, Status, Usage

E = TypeVar("E", bound=Event)
_clock = itertools.count()

# Hypothesis' metaclass hides what iterating over its checks yields.
EVERY_CHECK = cast("list[HealthCheck]", list(HealthCheck))


class Log:
    def __init__(
        self,
        run_id: str,
        *,
        root_id: str | None = None,
        parent_id: str | None = None,
        at: float | None = None,
        depth: int | None = None,
    ) -> None:
        self.run_id, self.root_id, self.parent_id = run_id, root_id or run_id, parent_id
        self.seq = 0
        self.at = at
        self.depth = depth if depth is not None else 0 if parent_id is None else 1

    def make(self, kind: type[E], **fields: Any) -> E:
        self.seq += 1
        at = 1_790_000_000.0 + next(_clock) / 8 if self.at is None else self.at
        envelope = {"run_id": self.run_id, "root_id": self.root_id, "parent_id": self.parent_id}
        return kind(**{**envelope, "depth": self.depth, "seq": self.seq, "at": at, **fields})

    def start(self, prompt: str = "why?", agent: str = "general", **fields: Any) -> RunStarted:
        spec = AgentSpec(name=agent, description="d", prompt="p")
        return self.make(RunStarted, spec=spec, prompt=prompt, **{"model": "openai:m", **fields})

    def step(self) -> StepStarted:
        return self.make(StepStarted, step=self.seq, model="openai:m")

    def reply(
        self, text: str = "because", *, cost: float | None = 0.25, tokens: tuple[int, int] = (100, 10)
    ) -> ModelReplied:
        usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1], cost=cost)
        message = AssistantMessage(text=text)
        return self.make(ModelReplied, step=1, message=message, usage=usage, stop="end", model="openai:m")

    def call(self, call_id: str = "c1") -> ToolCalled:
        return self.make(
            ToolCalled, call_id=call_id, name="read", arguments="{}", effect="read", repeatable=True
        )

    def result(self, text: str = "found", call_id: str = "c1", **fields: Any) -> ToolReturned:
        return self.make(ToolReturned, call_id=call_id, name="read", text=text, **fields)

    def ask(self, approval_id: str = "a1") -> ApprovalRequested:
        return self.make(
            ApprovalRequested,
            approval_id=approval_id,
            call_id=approval_id,
            tool="bash",
            arguments="{}",
            effect="execute",
            risk="high",
        )

    def answer(self, approval_id: str = "a1", decision: Decision = "approve") -> ApprovalAnswered:
        return self.make(ApprovalAnswered, approval_id=approval_id, call_id=approval_id, decision=decision)

    def resume(self, **fields: Any) -> RunResumed:
        return self.make(RunResumed, **fields)

    def message(self, text: str = "and?") -> MessageReceived:
        return self.make(MessageReceived, text=text)

    def finish(
        self, text: str = "so it is", status: Status = "completed", error: str | None = None
    ) -> RunFinished:
        report = Report(
            run_id=self.run_id, status=status, text=text, agent="general", duration_ms=1500, error=error
        )
        return self.make(RunFinished, report=report)
