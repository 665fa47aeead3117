"""Whatever the program's own `approve` function does, the call it was asked about ends.

Each test would wait for ever if it were not so; a minute is far more than any of them needs.
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Answer, ConfigError, Report, Retinue, StoreError, tool
from retinue.events import ApprovalAnswered, ApprovalRequested, LiveEvent
from retinue.store.base import Signal
from retinue.store.memory import MemoryStore
from retinue.store.sqlite import SqliteStore
from retinue.testing import ScriptedModel, call
from retinue.tools.base import Tool
from retinue.types import AgentSpec, ModelRequest, ToolMessage

YES = Answer(decision="approve")


def change_tool() -> tuple[Tool, list[str]]:
    ran: list[str] = []

    @tool(name="change", effect="write")
    async def change(path: str) -> str:
        """Change a file."""
        ran.append(path)
        return f"changed {path}"

    return change, ran


def heard(request: ModelRequest) -> str:
    """What the model is told of its call, as its answer."""
    return next(m.text for m in reversed(request.messages) if isinstance(m, ToolMessage))


async def ask(tmp_path: Path, approve: Any, **options: Any) -> tuple[Report, list[str]]:
    """One run with one question. Its answer is what the model was told about the call."""
    change, ran = change_tool()
    model = ScriptedModel([call("change", path="a"), heard])
    async with (
        asyncio.timeout(60),
        Retinue(
            model=model, db="memory:", cwd=tmp_path, environ={}, tools=[change], approve=approve, **options
        ) as retinue,
    ):
        return await retinue.run("general", "go"), ran


def returning(value: Any) -> Callable[[ApprovalRequested], Any]:
    async def approve(asked: ApprovalRequested) -> Any:
        return value

    return approve


def raising(error: BaseException) -> Callable[[ApprovalRequested], Any]:
    async def approve(asked: ApprovalRequested) -> Any:
        raise error

    return approve


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (True, "it returned True"),
        (False, "it returned False"),
        (None, "it returned None"),
        ("approve", "it returned 'approve'"),
        ({"decision": "approve"}, "it returned a dict"),
        (object, "it returned a type"),
        (Unprintable(), "it returned a Unprintable"),
        (Answer(decision="yes"), "'yes'"),  # pyright: ignore[reportArgumentType]
        (Answer(decision=True), "decision"),  # pyright: ignore[reportArgumentType]
        (Answer(decision="reject", reason=7), "reason"),  # pyright: ignore[reportArgumentType]
        (Answer(decision="approve", by=None), "by"),  # pyright: ignore[reportArgumentType]
        (Answer(decision="approve", arguments="{not json"), "not valid JSON"),
        (Answer(decision="approve", arguments=""), "not valid JSON"),
        (Answer(decision="approve", arguments='["a"]'), "one JSON object"),
        (Answer(decision="approve", arguments={"path": "b"}), "arguments"),  # pyright: ignore[reportArgumentType]
        (
            Answer(decision="approve", arguments='{"path": 5}'),
            "the edited arguments do not fit: invalid arguments",
        ),
        (
            Answer(decision="approve", arguments='{"file": "b"}'),
            "the edited arguments do not fit: invalid arguments",
        ),
        (Answer(decision="approve", arguments="[" * 100_000), "nested too deep"),
    ],
)
async def test_a_wrong_answer_is_a_refusal_that_says_what_is_wrong(
    tmp_path: Path, given: Any, said: str
) -> None:
    report, ran = await ask(tmp_path, returning(given))
    assert ran == []
    assert report.ok
    assert said in report.text


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this can be said")


@pytest.mark.parametrize(
    "error",
    [ValueError("the wire broke"), Wordless(), asyncio.CancelledError(), SystemExit(3), GeneratorExit()],
)
async def test_an_approver_that_raises_refuses_and_ends_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    report, ran = await ask(tmp_path, raising(error))
    assert ran == []
    assert report.ok
    assert type(error).__name__ in report.text


@pytest.mark.parametrize("approve", [raising(ValueError("it broke")), returning(None)])
async def test_a_function_that_failed_is_not_said_to_be_a_person_who_rejected(
    tmp_path: Path, approve: Any
) -> None:
    report, ran = await ask(tmp_path, approve)
    assert report.text.startswith("this call of change was not approved: the approve function failed: ")
    assert (ran, report.outcome) == ([], "rejected")
    person, _ = await ask(tmp_path, returning(Answer(decision="reject", reason="not now")))
    assert person.text == "the person rejected this call of change: not now"


async def test_a_plain_function_may_approve_too(tmp_path: Path) -> None:
    report, ran = await ask(tmp_path, lambda asked: YES)
    assert (report.text, ran) == ("changed a", ["a"])


async def test_a_plain_function_that_blocks_does_not_stop_the_others(tmp_path: Path) -> None:
    gate = threading.Event()
    loop = asyncio.get_running_loop()

    def approve(asked: ApprovalRequested) -> Answer:
        loop.call_soon_threadsafe(gate.set)  # the loop is free while this waits, or nobody opens the gate
        assert gate.wait(60)
        return YES

    _, ran = await ask(tmp_path, approve)
    assert ran == ["a"]


@pytest.mark.parametrize("kind", ["partial", "method", "object", "lambda"])
async def test_every_kind_of_callable_may_approve(tmp_path: Path, kind: str) -> None:
    class Person:
        async def method(self, asked: ApprovalRequested) -> Answer:
            await asyncio.sleep(0)
            return YES

        async def __call__(self, asked: ApprovalRequested) -> Answer:
            return await self.method(asked)

    async def with_answer(answer: Answer, asked: ApprovalRequested) -> Answer:
        return answer

    person = Person()
    ways = {
        "partial": functools.partial(with_answer, YES),
        "method": person.method,
        "object": person,
        "lambda": lambda asked: person.method(asked),  # noqa: PLW0108 # a function that gives a coroutine back
    }
    _, ran = await ask(tmp_path, ways[kind])
    assert ran == ["a"]


async def test_an_approver_that_never_answers_is_waited_for_as_long_as_the_setting_says(
    tmp_path: Path,
) -> None:
    async def approve(asked: ApprovalRequested) -> Answer:
        await asyncio.Event().wait()
        return YES

    report, ran = await ask(tmp_path, approve, settings={"approvals.callback_seconds": 0.05})
    assert ran == []
    assert "no answer within 0.05 s" in report.text
    assert "approvals.callback_seconds" in report.text


async def test_an_approver_that_blocks_the_loop_past_its_time_is_not_obeyed(tmp_path: Path) -> None:
    async def approve(asked: ApprovalRequested) -> Answer:
        threading.Event().wait(0.2)  # as a library does that is not made for asyncio
        return YES

    report, ran = await ask(tmp_path, approve, settings={"approvals.callback_seconds": 0.05})
    assert ran == []
    assert "no answer within 0.05 s" in report.text


async def test_an_approver_that_will_not_be_stopped_holds_nothing_up(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def approve(asked: ApprovalRequested) -> Answer:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return YES

    report, _ = await ask(tmp_path, approve, settings={"approvals.callback_seconds": 0.05})
    assert "no answer within" in report.text
    gate.set()


def test_a_plain_function_that_never_returns_does_not_keep_the_program_alive(tmp_path: Path) -> None:
    program = f"""
import threading
from retinue import Retinue
from retinue.testing import ScriptedModel, call
model = ScriptedModel([call("write", path="a", content="b"), "over"])
forever = threading.Event()
retinue = Retinue(model=model, db="memory:", cwd={str(tmp_path)!r}, environ={{}},
                  approve=lambda asked: forever.wait(), settings={{"approvals.callback_seconds": 0.05}})
print(retinue.run_sync("general", "go").text)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "over"


async def test_when_somebody_else_answers_first_the_approver_is_let_go(tmp_path: Path) -> None:
    change, ran = change_tool()
    asked_for: asyncio.Queue[ApprovalRequested] = asyncio.Queue()
    let_go = asyncio.Event()

    async def approve(asked: ApprovalRequested) -> Answer:
        asked_for.put_nowait(asked)
        try:
            await asyncio.Event().wait()
        finally:
            let_go.set()
        return YES

    model = ScriptedModel([call("change", path="a"), "done"])
    async with (
        asyncio.timeout(60),
        Retinue(
            model=model, db="memory:", cwd=tmp_path, environ={}, tools=[change], approve=approve
        ) as retinue,
    ):
        run_id = await retinue.start("general", "go")
        assert await retinue.answer((await asked_for.get()).approval_id, "approve", by="the page")
        await retinue.wait(run_id)
        await let_go.wait()
    assert ran == ["a"]


async def test_the_log_says_that_the_program_s_function_refused(tmp_path: Path) -> None:
    events: list[LiveEvent] = []
    change, _ = change_tool()
    model = ScriptedModel([call("change", path="a"), "done"])
    async with Retinue(
        model=model, db="memory:", cwd=tmp_path, environ={}, tools=[change], approve=returning(None)
    ) as retinue:
        events = [event async for event in retinue.stream("general", "go")]
    (answered,) = [e for e in events if isinstance(e, ApprovalAnswered)]
    assert (answered.decision, answered.by) == ("reject", "the approve function")


def test_an_approver_that_cannot_be_called_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="approve"):
        Retinue(model="offline", db="memory:", cwd=tmp_path, environ={}, approve=True)  # pyright: ignore[reportArgumentType]


# -- a question from before ---------------------------------------------------------------------------------


async def left_open(db: str, tmp_path: Path, change: Tool) -> str:
    """A workflow that stopped while its question waited."""
    model = ScriptedModel([call("change", path="a")])
    async with Retinue(
        model=model, db=db, cwd=tmp_path, environ={}, tools=[change], answering="ask"
    ) as retinue:
        async with asyncio.timeout(60):
            run_id = await retinue.start("general", "go")
            async for event in retinue.watch(run_id):
                if isinstance(event, ApprovalRequested):
                    break
        await retinue.leave()
    return run_id


@pytest.mark.parametrize("way", ["resume", "fork"])
async def test_a_question_that_was_open_before_is_put_to_whoever_takes_the_run_up(
    tmp_path: Path, way: str
) -> None:
    change, ran = change_tool()
    db = f"sqlite:///{tmp_path}/log.db"
    run_id = await left_open(db, tmp_path, change)
    asked_for: list[ApprovalRequested] = []

    async def approve(asked: ApprovalRequested) -> Answer:
        asked_for.append(asked)
        return YES

    model = ScriptedModel(["done"])
    async with (
        asyncio.timeout(60),
        Retinue(model=model, db=db, cwd=tmp_path, environ={}, tools=[change], approve=approve) as retinue,
    ):
        again = await (retinue.resume(run_id) if way == "resume" else retinue.fork(run_id))
        report = await retinue.wait(again)
    assert report.text == "done"
    assert ran == ["a"]
    assert [asked.run_id for asked in asked_for] == [again]
    assert asked_for[0].approval_id.startswith(again)


# -- the store --------------------------------------------------------------------------------------------


class Failing(SqliteStore):
    """A store that now and then cannot be had: it fails as often as it is told, and then works."""

    failing: dict[str, int]

    def _fail(self, what: str) -> None:
        if self.failing.get(what, 0):
            self.failing[what] -= 1
            raise StoreError(f"{what}: the database is away")

    async def send(self, signal: Any) -> bool:
        self._fail("send")
        return await super().send(signal)

    async def signals(self, *args: Any, **kwargs: Any) -> Any:
        self._fail("signals")
        return await super().signals(*args, **kwargs)


@pytest.mark.parametrize("what", ["send", "signals"])
async def test_an_answer_given_while_the_store_fails_is_not_lost(tmp_path: Path, what: str) -> None:
    change, ran = change_tool()
    store = Failing(tmp_path / "log.db")
    store.failing = {}

    async def approve(asked: ApprovalRequested) -> Answer:
        store.failing[what] = 2
        return YES

    model = ScriptedModel([call("change", path="a"), "done"])
    async with (
        asyncio.timeout(60),
        Retinue(model=model, db=store, cwd=tmp_path, environ={}, tools=[change], approve=approve) as retinue,
    ):
        await retinue.run("general", "go")
    assert ran == ["a"]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "null",
        '{"decision": "maybe"}',
        '{"decision": "approve", "arguments": 5}',
        '{"decision": "approve", "arguments": "["}',
    ],
)
async def test_an_answer_that_cannot_be_read_is_a_refusal(tmp_path: Path, body: str) -> None:
    """The first signal wins: if nobody could read it, nobody could ever answer."""
    change, ran = change_tool()
    store = MemoryStore()
    model = ScriptedModel([call("change", path="a"), heard])
    async with (
        asyncio.timeout(60),
        Retinue(model=model, db=store, cwd=tmp_path, environ={}, tools=[change], answering="ask") as retinue,
    ):
        run_id = await retinue.start("general", "go")
        async for event in retinue.watch(run_id):
            if isinstance(event, ApprovalRequested):
                await store.send(
                    Signal(
                        root_id=run_id, run_id=run_id, kind="answer", key=event.approval_id, body=body, at=0.0
                    )
                )
        report = await retinue.wait(run_id)
    assert ran == []
    assert "cannot be read" in report.text


@pytest.mark.parametrize("arguments", ["{not json", "[]", "7"])
async def test_answer_refuses_arguments_that_are_no_object_and_the_question_stays_open(
    tmp_path: Path, arguments: str
) -> None:
    change, ran = change_tool()
    model = ScriptedModel([call("change", path="a"), "done"])
    async with (
        asyncio.timeout(60),
        Retinue(
            model=model, db="memory:", cwd=tmp_path, environ={}, tools=[change], answering="ask"
        ) as retinue,
    ):
        run_id = await retinue.start("general", "go")
        async for event in retinue.watch(run_id):
            if isinstance(event, ApprovalRequested):
                with pytest.raises(ConfigError, match="arguments"):
                    await retinue.answer(event.approval_id, "approve", arguments=arguments)
                with pytest.raises(ConfigError, match="decision"):
                    await retinue.answer(event.approval_id, "perhaps")  # pyright: ignore[reportArgumentType]
                assert await retinue.answer(event.approval_id, "approve")
        await retinue.wait(run_id)
    assert ran == ["a"]


@pytest.mark.parametrize(
    ("length", "rest"), [(200_000, ""), (200_010, "\n[10 more characters of this preview are not shown]")]
)
async def test_a_preview_that_is_too_long_says_how_much_of_it_is_not_shown(
    tmp_path: Path, length: int, rest: str
) -> None:
    @tool(effect="execute", preview=lambda arguments, files: "x" * length)
    async def change_much(command: str) -> str:
        """Change much."""
        return "did"

    seen: list[str] = []

    def approve(asked: ApprovalRequested) -> Answer:
        seen.append(asked.preview)
        return Answer(decision="approve")

    doer = AgentSpec(name="doer", description="does", prompt="You do.", tools=("change_much",))
    model = ScriptedModel([call("change_much", command="go"), "done"])
    options: Any = {"db": "memory:", "cwd": tmp_path, "environ": {}, "approve": approve}
    async with Retinue(model=model, agents=[doer], tools=[change_much], **options) as retinue:
        await retinue.run(doer, "go")
    assert seen == ["x" * 200_000 + rest]


@pytest.mark.parametrize("arguments", ['{"pth": 1}', '{"path": 3}', "{}"])
async def test_approved_with_arguments_that_do_not_fit_a_call_is_rejected_and_counted(
    tmp_path: Path, arguments: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard_live: list[LiveEvent] = []
    change, ran = change_tool()
    model = ScriptedModel([call("change", path="a"), heard])
    async with Retinue(
        model=model,
        db="memory:",
        cwd=tmp_path,
        environ={},
        tools=[change],
        approve=lambda asked: Answer(decision="approve", arguments=arguments),
    ) as retinue:
        retinue.hear(heard_live.append)
        report = await retinue.run("general", "go")
    assert (ran, report.outcome, report.shortfall.rejected) == ([], "rejected", 1)
    assert "do not fit" in report.text
    (answered,) = [e for e in heard_live if isinstance(e, ApprovalAnswered)]
    assert (answered.decision, answered.by) == ("reject", "")
    assert "do not fit" in answered.reason
    assert any("do not fit" in record.getMessage() for record in caplog.records)
