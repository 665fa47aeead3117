"""Half a surrogate pair or a NUL, wherever it comes from: the run goes on, and its log can be written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from retinue.engine.workflow import Root
from retinue.errors import ModelError
from retinue.events import ApprovalAnswered, ChildStarted, ErrorRaised, RunFinished
from retinue.fold import fold
from retinue.store.base import Signal, Store
from retinue.store.connect import connect
from retinue.tools.base import tool
from retinue.types import AgentSpec, Report
from trees import Stage, agent, reply, results, told

HALF = "hi \ud83d"
ESCAPED = '{"prompt": "hi \\ud83d and \\u0000"}'
"""Plain ASCII on the wire, half a pair once it is read."""


@pytest.fixture
async def store(durable_url: str) -> AsyncIterator[Store]:
    opened = connect(durable_url)
    await opened.open()
    yield opened
    await opened.close()


async def ended(stage: Stage, report: Report) -> None:
    """The workflow has its end in the log, which says the same as whoever ran it was told."""
    row = await stage.store.run(stage.root_id)
    assert row is not None
    assert row.status == report.status
    logs: dict[str, list[Any]] = {}
    for event in await stage.log():
        logs.setdefault(event.run_id, []).append(event)
    for log in logs.values():
        assert isinstance(log[-1], RunFinished)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert fold(log).report is not None
    assert fold(logs[stage.root_id]).report == report


async def test_a_prompt_for_a_child_may_hold_what_no_database_takes(store: Store) -> None:
    stage = Stage(
        {"root": [[("child", ESCAPED)], "done"], "child": ["fine"]}, agents=[agent("child")], store=store
    )
    report = await asyncio.wait_for(stage.run(), 60)
    assert (report.status, report.text) == ("completed", "done")
    assert told(stage.model.of("child")[0]) == ["hi ? and \ufffd"]
    started = next(e for e in await stage.log() if isinstance(e, ChildStarted))
    assert started.prompt == "hi ? and \ufffd"
    await ended(stage, report)


async def test_a_spec_a_label_and_the_name_of_a_tool_may_hold_it_too(store: Store) -> None:
    stage = Stage({"root": [[(f"no {HALF}", {})], f"done {HALF}"]}, store=store)
    spec = AgentSpec(name="root", description=f"{HALF} \0", prompt="PLAY root")
    task = await stage.workflow.start_root(Root(spec=spec, prompt="go", label=f"{HALF} \0"))
    report = await asyncio.wait_for(task, 60)
    assert (report.status, report.text, report.label) == ("completed", "done hi ?", "hi ? \ufffd")
    assert "there is no tool 'no hi ?' here" in results(stage.model.of("root")[1])[0].text
    await ended(stage, report)


async def test_the_words_of_an_error_may_hold_it(store: Store) -> None:
    stage = Stage({"root": [ModelError(f"the provider said {HALF} \0", kind="invalid")]}, store=store)
    report = await asyncio.wait_for(stage.run(), 60)
    assert report.error == "the provider said hi ? \ufffd"
    assert any(isinstance(e, ErrorRaised) for e in await stage.log())
    await ended(stage, report)


async def test_what_had_arrived_when_a_run_was_cancelled_may_hold_it(store: Store) -> None:
    arrived = asyncio.Event()

    class Halfway:
        name = "halfway"

        async def stream(self, request: object) -> AsyncIterator[Any]:
            from retinue.types import TextDelta

            yield TextDelta(HALF)
            arrived.set()
            await asyncio.Event().wait()

    stage = Stage(Halfway(), store=store)  # pyright: ignore[reportArgumentType]
    task = await stage.start()
    await arrived.wait()
    stage.workflow.cancel(stage.root_id, f"enough {HALF}")
    report = await asyncio.wait_for(task, 60)
    assert (report.status, report.text, report.error) == ("cancelled", "hi ?", "enough hi ?")
    await ended(stage, report)


async def test_a_reason_for_a_rejection_may_hold_it(store: Store) -> None:
    @tool(effect="write")
    async def change() -> str:
        """Change something."""
        return "changed"

    stage = Stage({"root": [[("change", {})], "done"]}, tools=[change], answering="ask", store=store)
    task = await stage.start()
    async with asyncio.timeout(60):
        while not (asked := await store.waiting(stage.root_id)):
            await asyncio.sleep(0.005)
    signal = Signal(
        root_id=stage.root_id,
        run_id=stage.root_id,
        kind="answer",
        key=asked[0].approval_id,
        body=json.dumps({"decision": "reject", "reason": HALF}),
        at=0.0,
    )
    assert await store.send(signal)
    report = await asyncio.wait_for(task, 60)
    assert report.text == "done"
    answered = next(e for e in await stage.log() if isinstance(e, ApprovalAnswered))
    assert answered.reason == "hi ?"
    await ended(stage, report)


async def test_the_arguments_of_a_call_may_hold_it(store: Store) -> None:
    @tool(effect="read")
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    said = reply("", [("echo", json.dumps({"text": HALF}, ensure_ascii=False))])
    stage = Stage({"root": [said, "done"]}, tools=[echo], store=store)
    report = await asyncio.wait_for(stage.run(), 60)
    assert results(stage.model.of("root")[1])[0].text == "hi ?"
    await ended(stage, report)
