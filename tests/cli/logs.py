"""Logs of workflows, made by hand: what the views are tested with, and what is put into stores."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, TypeVar

from retinue.events import (
    AnyEvent,
    ApprovalRequested,
    ChildEnded,
    ChildStarted,
    Event,
    ModelReplied,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolCalled,
    ToolReturned,
)
from retinue.store.connect import connect
from retinue.types import AgentSpec, AssistantMessage, Report, Source, ToolCall, Usage

E = TypeVar("E", bound=Event)
ROOT = "r1m7h0000abcdefgh"


class Log:
    """The events of one run, numbered as they are added."""

    def __init__(self, run_id: str = ROOT, *, parent: Log | None = None, at: float = 1_790_000_000.0) -> None:
        self.run_id, self.parent, self.at, self.seq, self.steps = run_id, parent, at, 0, 0
        self.root_id = parent.root_id if parent else run_id
        self.depth = parent.depth + 1 if parent else 0

    def add(self, kind: type[E], after: float = 1.0, /, **fields: Any) -> E:
        self.seq += 1
        self.at += after
        return kind(
            run_id=self.run_id,
            root_id=self.root_id,
            parent_id=self.parent.run_id if self.parent else None,
            depth=self.depth,
            seq=self.seq,
            at=self.at,
            **fields,
        )

    def started(self, agent: str = "general", prompt: str = "find the bug", **more: Any) -> RunStarted:
        spec = AgentSpec(name=agent, description="does things", prompt="You do things.", icon="🔧")
        return self.add(RunStarted, spec=spec, prompt=prompt, model="openai:gpt-x", **more)

    def step(
        self, text: str = "", *calls: tuple[str, dict[str, Any]], cost: float | None = 0.01
    ) -> list[Any]:
        """A model call and its reply; each tool it asks for is called."""
        self.steps += 1
        number = self.steps
        made = tuple(
            ToolCall(id=f"call{number}{index}", name=name, arguments=json.dumps(arguments))
            for index, (name, arguments) in enumerate(calls)
        )
        usage = Usage(input_tokens=1000, output_tokens=100, cost=cost)
        return [
            self.add(StepStarted, step=number, model="openai:gpt-x"),
            self.add(
                ModelReplied,
                step=number,
                message=AssistantMessage(text=text, calls=made),
                usage=usage,
                stop="tool_calls" if calls else "end",
                model="openai:gpt-x",
                duration_ms=1500,
            ),
        ]

    def called(self, call: ToolCall) -> ToolCalled:
        return self.add(
            ToolCalled,
            call_id=call.id,
            name=call.name,
            arguments=call.arguments,
            effect="read",
            repeatable=True,
        )

    def returned(self, call: ToolCall, text: str, **more: Any) -> ToolReturned:
        return self.add(ToolReturned, call_id=call.id, name=call.name, text=text, duration_ms=120, **more)

    def asked(self, command: str, call_id: str = "callx") -> ApprovalRequested:
        return self.add(
            ApprovalRequested,
            approval_id=f"{self.run_id}:{call_id}",
            call_id=call_id,
            tool="bash",
            arguments=json.dumps({"command": command}),
            effect="execute",
            risk="high",
            reason="execute needs a person's approval",
            path=("general", "helper"),
        )

    def finished(self, text: str = "done", **more: Any) -> RunFinished:
        report = Report(
            run_id=self.run_id,
            agent=more.pop("agent", "general"),
            text=text,
            turns=2,
            tool_calls=1,
            duration_ms=4200,
            usage=Usage(input_tokens=2000, output_tokens=200, cost=0.02),
            **{"status": "completed", **more},
        )
        return self.add(RunFinished, report=report)


def family() -> list[AnyEvent]:
    """A root that looked by itself and had one child do the rest."""
    root = Log()
    child = Log("c1111111111111111", parent=root)
    first = root.step(
        "I look around.", ("grep", {"pattern": "bug", "path": "src"}), ("helper", {"task": "fix"})
    )
    grep, helper = first[1].message.calls
    hostile = "<script>alert(1)</script> \x1b[31m"
    return [
        root.started(),
        *first,
        root.called(grep),
        root.returned(grep, "\n".join(f"src/a.py:{n}: bug {hostile}" for n in range(40))),
        root.called(helper),
        root.add(ChildStarted, child_id=child.run_id, agent="helper", prompt="fix it", call_id=helper.id),
        child.started("helper", "fix it"),
        *child.step("Fixed."),
        child.finished("Fixed.", agent="helper"),
        root.add(
            ChildEnded,
            child_id=child.run_id,
            agent="helper",
            status="completed",
            usage=Usage(input_tokens=1000, output_tokens=100, cost=0.01),
            call_id=helper.id,
            duration_ms=3000,
        ),
        root.returned(helper, "Fixed."),
        *root.step("# The end\n\nAll **fixed**, see [this](javascript:alert(1))."),
        root.finished(
            "# The end\n\nAll **fixed**, see [this](javascript:alert(1)).",
            sources=(Source(path="src/a.py", lines=(1, 9)), Source(url="https://x.org", verified=False)),
            files=("src/a.py",),
        ),
    ]


def waiting() -> list[AnyEvent]:
    """A run that waits for an answer."""
    root = Log("r1m7h1111abcdefgh", at=1_790_000_500.0)
    return [
        root.started(prompt="clean up"),
        *root.step("", ("bash", {"command": "rm -rf build"})),
        root.asked("rm -rf build"),
    ]


def store(path: Path, *logs: list[AnyEvent]) -> str:
    """Put logs into a new database, and return its address."""

    async def write() -> None:
        opened = connect(str(path))
        await opened.open()
        for log in logs:
            for event in log:
                await opened.append([event])
        await opened.close()

    asyncio.run(write())
    return f"sqlite://{path}"
