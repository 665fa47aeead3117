"""A large finished workflow, written straight into a store: a thousand runs, fifty events each."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

from retinue.events import (
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
from retinue.types import AgentSpec, AssistantMessage, Report, ToolCall, Usage

ROOT = "rgrown"
TOOLS = (("grep", "pattern"), ("read", "path"), ("ls", "path"), ("glob", "pattern"))
USED = Usage(input_tokens=1200, output_tokens=80, cost=0.0004)


class _Log:
    """The events of one run, stamped in order."""

    def __init__(self, all_events: list[Event], run_id: str, parent_id: str | None, depth: int) -> None:
        self.all, self.run_id, self.parent_id, self.depth, self.seq = all_events, run_id, parent_id, depth, 0

    def write(self, kind: type[Event], **fields: Any) -> None:
        self.seq += 1
        at = START + len(self.all) * 0.01
        stamp: dict[str, Any] = {
            "run_id": self.run_id,
            "root_id": ROOT,
            "parent_id": self.parent_id,
            "depth": self.depth,
            "seq": self.seq,
            "at": at,
        }
        self.all.append(kind(**stamp, **fields))


START = time.time() - 3600


def grown(runs: int = 1000, steps: int = 12) -> list[Event]:
    """A root, its children and theirs, three levels deep. Each run takes `steps` steps of one tool each."""
    events: list[Event] = []
    wide = max(1, round(runs**0.5))
    left = [runs - 1]

    def run(run_id: str, parent: _Log | None, agent: str, below: int) -> None:
        log = _Log(events, run_id, parent.run_id if parent else None, parent.depth + 1 if parent else 0)
        spec = AgentSpec(name=agent, description="grown", prompt="You are grown.", icon="🌱")
        log.write(RunStarted, spec=spec, prompt=f"Task of {run_id}: look at part {len(events)}.", cwd="")
        for step in range(1, steps + 1):
            _step(log, step)
        if below and left[0] > 0:
            for number in range(min(wide if below == 2 else wide - 1, left[0])):
                if left[0] <= 0:
                    break
                left[0] -= 1
                child = f"{run_id}-{number}"
                log.write(ChildStarted, child_id=child, agent="part", prompt=f"Part {number}")
                run(child, log, "part", below - 1)
                log.write(ChildEnded, child_id=child, agent="part", status="completed", usage=USED)
        report = Report(
            run_id=run_id, status="completed", text=f"Report of {run_id}.", agent=agent, usage=USED
        )
        log.write(RunFinished, report=report)

    run(ROOT, None, "general", 2)
    return events


def _step(log: _Log, step: int) -> None:
    name, key = TOOLS[step % len(TOOLS)]
    call_id = f"call{step}"
    arguments = json.dumps({key: f"src/part_{step}/file_{len(log.all)}.py"})
    call = ToolCall(id=call_id, name=name, arguments=arguments)
    log.write(StepStarted, step=step, model="grown")
    log.write(
        ModelReplied,
        step=step,
        message=AssistantMessage(calls=(call,)),
        usage=USED,
        stop="tool_calls",
        model="grown",
        duration_ms=10,
    )
    log.write(ToolCalled, call_id=call_id, name=name, arguments=arguments, effect="read", repeatable=True)
    text = f"{len(log.all)}: " + "a line of what was found there\n" * 6
    log.write(ToolReturned, call_id=call_id, name=name, text=text, duration_ms=5)


def plant(url: str, events: list[Event]) -> None:
    """Write the events into a store, before a server opens it."""

    async def work() -> None:
        store = connect(url)
        await store.open()
        for start in range(0, len(events), 2000):
            await store.append(events[start : start + 2000])
        await store.close()

    # The browser's driver has the loop of this thread.
    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    thread.join()
