"""A mixed tree has the same log and the same report in every execution, whatever the timing."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from typing import Any

import msgspec

from retinue.errors import ToolError
from retinue.events import ApprovalRequested, Event, LiveEvent
from retinue.store.base import Signal
from retinue.tools.base import tool
from trees import Stage, agent, results, told, turn

EXECUTIONS = int(os.environ.get("RETINUE_TREE_EXECUTIONS", "21"))
"""The first, and the rest by twenties. `RETINUE_TREE_EXECUTIONS=200` before a release."""
VOLATILE = {"digest", "at", "duration_ms", "pos", "pid", "host", "cwd", "concurrency", "used"}


def build(rng: random.Random) -> Stage:
    """Three children, each with three of its own, each with three of its own: 27 leaves, three of each fate."""

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look at something."""
        await asyncio.sleep(rng.random() * 0.002)
        if what.endswith("2"):
            raise ToolError(f"{what} is broken")
        return f"saw {what}"

    @tool(effect="write")
    async def change(what: str) -> str:
        """Change something."""
        await asyncio.sleep(rng.random() * 0.001)
        return f"changed {what}"

    async def play(request: Any) -> Any:
        await asyncio.sleep(rng.random() * 0.002)
        me = request.system.split("\n")[0].removeprefix("PLAY ")
        task = told(request)[0]
        below = {"root": "mid", "mid": "low", "low": "leaf"}.get(me)
        if below is None:
            return await leaf(task, request)
        if turn(request):
            return f"{me} {task}: " + " | ".join(m.text for m in results(request))
        prefix = "" if me == "root" else task
        tasks = [f"{prefix}{n}" for n in range(3)]
        return [("sleepy" if task[1:] == "02" else below, {"prompt": task}) for task in tasks]

    async def leaf(task: str, request: Any) -> Any:
        fate = int(task[1:], 3)  # 0 to 8
        if fate == 1:
            return ValueError("the model broke")
        if fate == 2:
            await asyncio.Event().wait()  # until its timeout
        if fate in (3, 4):  # rejected, approved
            return (
                [("change", {"what": task})]
                if turn(request) == 0
                else f"leaf {task}: {results(request)[0].text}"
            )
        if fate == 5 and turn(request):
            await asyncio.Event().wait()  # until it is cancelled from outside
        if turn(request) == 0:
            return [("look", {"what": f"{task}{n}"}) for n in range(3)]
        return f"leaf {task}: " + ", ".join(m.text for m in results(request))

    return Stage(
        dict.fromkeys(("root", "mid", "low", "leaf", "sleepy"), play),
        agents=[
            agent("mid", tools=("look", "change", "low", "leaf", "sleepy")),
            agent("low", tools=("look", "change", "leaf", "sleepy")),
            agent("leaf", tools=("look", "change")),
            agent("sleepy", tools=("look", "change"), timeout=2),
        ],
        tools=[look, change],
        answering="ask",
        root_id="r0",
        delegation__policy="nested",
        delegation__max_depth=4,
        delegation__nested_children=39,
        delegation__concurrency=rng.choice([2, 3, 8]),
        limits__report_bytes=100_000,
    )


async def execute(seed: int) -> tuple[str, dict[str, list[Any]]]:
    rng = random.Random(seed)
    stage = build(rng)
    background: set[asyncio.Task[Any]] = set()

    def publish(event: LiveEvent) -> None:
        if isinstance(event, ApprovalRequested):
            what = json.loads(event.arguments)["what"]
            said = {"decision": "approve"} if what.endswith("11") else {"decision": "reject", "reason": "no"}
            post("answer", event.run_id, event.approval_id, said)
        if event_is_step_two_of_fate_five(event):
            post("cancel", event.run_id, f"cancel-{event.run_id}", {"reason": "not needed"})

    def post(kind: Any, run_id: str, key: str, body: dict[str, str]) -> None:
        signal = Signal(root_id="r0", run_id=run_id, kind=kind, key=key, body=json.dumps(body), at=0)

        async def later() -> None:
            await asyncio.sleep(rng.random() * 0.002)
            await stage.store.send(signal)

        task = asyncio.ensure_future(later())
        background.add(task)
        task.add_done_callback(background.discard)

    def event_is_step_two_of_fate_five(event: LiveEvent) -> bool:
        live = stage.workflow.tree.live.get(event.run_id)
        return (
            type(event).__name__ == "StepStarted"
            and getattr(event, "step", 0) == 2
            and live is not None
            and live.run.spec.name == "leaf"
            and live.run.state.messages[0].text.endswith("12")
        )

    object.__setattr__(stage.config, "publish", publish)
    report = await stage.run(agent("root", tools=("look", "change", "mid", "low", "leaf", "sleepy")))
    logs: dict[str, list[Any]] = {}
    for event in await stage.log():
        logs.setdefault(event.run_id, []).append(stable(event))
    return untimed(report.text), logs


def untimed(text: str) -> str:
    """A text without how long the children took whose reports are in it."""
    return re.sub(r'(duration_ms=\\*")\d+', r"\1…", text)


def stable(event: Event) -> Any:
    """An event without clocks. Where two events of siblings fall in their parent's log is timing as well."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in VOLATILE}
        if isinstance(value, list | tuple):
            return [strip(v) for v in value]
        return untimed(value) if isinstance(value, str) else value

    found = strip(msgspec.to_builtins(event))
    found.pop("seq")
    return json.dumps(found, sort_keys=True)


async def test_every_execution_of_a_mixed_tree_has_the_same_logs_and_the_same_report() -> None:
    text, logs = await execute(0)
    assert len(logs) == 1 + 3 + 9 + 27
    for expected in (
        "timed out after 2 s",
        "ValueError: the model broke",
        "the person rejected this call of change: no",
        "leaf 011: changed 011",
        "not needed",
        "saw 2220, saw 2221, 2222 is broken",
    ):
        assert expected in json.dumps(text + json.dumps(logs)), expected
    assert any('"type": "cancel_requested"' in line for log in logs.values() for line in log)
    interleavings: set[str] = set()
    for batch in range(1, EXECUTIONS, 20):
        for again, their_logs in await asyncio.gather(*(execute(batch + n) for n in range(20))):
            assert again == text
            assert {run: sorted(log) for run, log in their_logs.items()} == {
                run: sorted(log) for run, log in logs.items()
            }
            interleavings.add(json.dumps(their_logs, sort_keys=True))
    assert len(interleavings) > 1, "the timing really was shuffled"
