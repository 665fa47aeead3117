"""An approval, a review and a call that had begun are for the tool and the arguments that they were about."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import AgentSpec, Retinue
from retinue.engine.answers import Answer
from retinue.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallReviewed,
    ModelReplied,
    ToolCalled,
    ToolReturned,
)
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call
from retinue.tools.base import tool
from test_reviewer import DONE, HARMLESS, Reviewer, note, stage
from trees import Stage

DID: list[str] = []
YES = Answer(decision="approve")


@tool(effect="read", repeatable=True)
async def seek(text: str) -> str:
    """Seek.

    Args:
        text: what
    """
    DID.append(f"seek {text}")
    return f"found {text}"


@tool(effect="write", repeatable=True)
async def change(text: str) -> str:
    """Change.

    Args:
        text: what
    """
    DID.append(f"change {text}")
    return f"changed {text}"


def otherwise(events: list[AnyEvent], after: type[AnyEvent], **other: str) -> list[AnyEvent]:
    """A log up to the first event of a kind, in which the model asked for something else."""
    cut = next(index for index, event in enumerate(events) if isinstance(event, after)) + 1
    return [_edited(event, other) if isinstance(event, ModelReplied) else event for event in events[:cut]]


def _edited(event: ModelReplied, other: dict[str, str]) -> ModelReplied:
    calls = tuple(msgspec.structs.replace(each, **other) for each in event.message.calls)
    return msgspec.structs.replace(event, message=msgspec.structs.replace(event.message, calls=calls))


def staged(name: str, answer: Answer | None = None, root_id: str | None = None) -> Stage:
    """A workflow that makes one call, with an answer to the question about it, if one is asked."""
    parts = {"root": [[(name, {"text": "a"})], "done"] if root_id is None else ["done"]}
    tools = [note, seek, change]
    made = Stage(parts, tools=tools, answering="ask", store=MemoryStore(), root_id=root_id)
    if answer is not None:
        made.workflow.inbox.tell(f"{made.root_id}:call0", answer)
    return made


async def taken_up(made: Stage, log: list[AnyEvent], answer: Answer | None = None) -> Stage:
    again = staged("", answer, made.root_id)
    await again.store.append(log)
    await (await again.resume())
    return again


def returned(log: list[AnyEvent]) -> ToolReturned:
    return next(event for event in log if isinstance(event, ToolReturned))


@pytest.mark.parametrize("other", [{"arguments": '{"text": "b"}'}, {"name": "change"}])
@pytest.mark.parametrize("cut", [ApprovalRequested, ApprovalAnswered])
async def test_an_answer_is_for_the_call_that_was_asked_about(cut: type[AnyEvent], other: Any) -> None:
    DONE.clear()
    DID.clear()
    made = staged("note", YES)
    await made.run()
    assert DONE == ["a"]
    again = await taken_up(made, otherwise(await made.log(), cut, **other), YES)
    assert (DONE, DID) == (["a"], [])
    result = returned(await again.log())
    assert (result.is_error, result.not_run) == (True, "forbidden")
    assert "another call" in result.text


@pytest.mark.parametrize("other", [{"arguments": '{"text": "b"}'}, {"name": "change"}])
async def test_a_review_is_for_the_call_that_was_looked_at(other: Any) -> None:
    DID.clear()
    made = stage(Reviewer(HARMLESS), tools=[note, change])
    await made.run()
    assert DONE == ["a"]
    log = otherwise(await made.log(), CallReviewed, **other)
    again = stage(Reviewer(), tools=[note, change], store=MemoryStore(), root_id=made.root_id)
    await again.store.append(log)
    await (await again.resume())
    assert (DONE, DID) == ([], []), "and there is nobody here to ask"


async def test_a_review_of_before_there_was_a_digest_clears_nothing_after_a_restart() -> None:
    made = stage(Reviewer(HARMLESS))
    await made.run()
    log = otherwise(await made.log(), CallReviewed)
    log[-1] = msgspec.structs.replace(log[-1], of_call="")
    again = stage(Reviewer(), store=MemoryStore(), root_id=made.root_id)
    await again.store.append(log)
    await (await again.resume())
    assert DONE == []


@pytest.mark.parametrize("other", [{"arguments": '{"text": "b"}'}, {"name": "change"}])
async def test_a_call_that_had_begun_is_not_done_again_as_another(other: Any) -> None:
    DID.clear()
    made = staged("seek")
    await made.run()
    assert DID == ["seek a"]
    again = await taken_up(made, otherwise(await made.log(), ToolCalled, **other))
    assert DID == ["seek a"]
    assert "another call" in returned(await again.log()).text


async def test_what_a_person_edited_is_what_is_done_after_a_restart() -> None:
    DID.clear()
    edited = Answer(decision="approve", arguments='{"text": "mine"}')
    made = staged("change", edited)
    await made.run()
    for cut in (ApprovalAnswered, ToolCalled):
        await taken_up(made, otherwise(await made.log(), cut))
    assert DID == ["change mine"] * 3


async def test_code_that_asks_for_something_else_after_a_restart_does_not_get_it(tmp_path: Path) -> None:
    """Where things lie in memory lets code tell the two runs of it apart."""
    DONE.clear()
    code = "await note(text=str(id(object())))"
    spec = AgentSpec(name="coder", description="d", prompt="You code.", mode="code", tools=(note,))
    url = f"sqlite:///{tmp_path / 'runs.db'}"

    def opened(*said: Any) -> Retinue:
        model = ScriptedModel(list(said))
        settings = {"code.engine": "cpython"}
        return Retinue(
            model=model, db=url, cwd=tmp_path, environ={}, answering="ask", agents=[spec], settings=settings
        )

    async with opened(call("run_code", code=code)) as retinue:
        root = await retinue.start("coder", "go")
        async with contextlib.aclosing(retinue.watch(root)) as events:
            asked = await anext(event async for event in events if isinstance(event, ApprovalRequested))
        await retinue.leave()
    async with opened("done") as retinue:
        assert await retinue.answer(asked.approval_id, "approve")
        await retinue.resume(root)
        await retinue.wait(root)
        log = await retinue.store.events(root)
    assert DONE == []
    assert any("another call" in event.text for event in log if isinstance(event, ToolReturned))
