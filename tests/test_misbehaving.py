"""Code that a program hands in (tools, models, listeners) may do anything; the run ends with a clear report."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Report, Retinue, ToolResult, Usage, tool
from retinue.events import RunFinished, ToolReturned
from retinue.testing import ScriptedModel, call
from retinue.tools.base import Tool
from retinue.types import AssistantMessage, ModelRequest, Reply, ToolCall, ToolMessage


def heard(request: ModelRequest) -> str:
    return next(m.text for m in reversed(request.messages) if isinstance(m, ToolMessage))


async def run_tool(tmp_path: Path, own: Tool) -> Report:
    """A run that calls the tool once and answers with what it was told. It is read again from its log."""
    model = ScriptedModel([call(own.name), heard])
    async with (
        asyncio.timeout(60),
        Retinue(
            model=model, db=f"sqlite:///{tmp_path}/log.db", cwd=tmp_path, environ={}, tools=[own]
        ) as retinue,
    ):
        report = await retinue.run("general", "go")
        stored = [e for e in await retinue.store.events(report.run_id) if isinstance(e, RunFinished)]
        assert [e.report.text for e in stored] == [report.text]
        return report


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this can be said")


ERRORS = [
    Wordless(),
    SystemExit(3),
    KeyboardInterrupt("not a person"),
    GeneratorExit("closed"),
    asyncio.CancelledError(),
    StopIteration(1),
    StopAsyncIteration(),
    RecursionError(),
    TimeoutError("the remote end is asleep"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("sync", [True, False], ids=["plain", "async"])
async def test_whatever_a_tool_raises_is_a_result_that_the_model_reads(
    tmp_path: Path, error: BaseException, sync: bool
) -> None:
    def plain() -> str:
        """Fail."""
        raise error

    async def waiting() -> str:
        """Fail."""
        raise error

    for timeout in ("default", None):
        report = await run_tool(tmp_path, tool(name="fail", timeout=timeout)(plain if sync else waiting))
        assert report.ok
        assert type(error).__name__ in report.text


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt("of its own"), SystemExit("of its own"), StopIteration("of its own")],
    ids=lambda error: type(error).__name__,
)
async def test_what_would_end_a_program_keeps_its_kind_and_its_words(
    tmp_path: Path, error: BaseException
) -> None:
    def plain() -> str:
        """Fail."""
        raise error

    report = await run_tool(tmp_path, tool(name="fail")(plain))
    assert report.text == f"{type(error).__name__}: of its own"


async def test_what_would_end_a_program_is_an_error_that_code_can_catch(tmp_path: Path) -> None:
    def fail() -> str:
        """Fail."""
        raise KeyboardInterrupt("of its own")

    code = "try:\n    await fail()\nexcept Exception as error:\n    print('caught', error)"
    async with Retinue(
        model=ScriptedModel([call("run_code", code=code), lambda request: request.messages[-1].text]),
        db="memory:",
        cwd=tmp_path,
        environ={},
        agents=[
            AgentSpec(name="coder", description="c", prompt="You write code.", tools=("run_code", tool(fail)))
        ],
    ) as retinue:
        report = await retinue.run("coder", "go")
    assert "caught KeyboardInterrupt: of its own" in report.text


def test_a_person_who_presses_ctrl_c_twice_ends_the_program_whatever_tool_is_at_work(tmp_path: Path) -> None:
    """In a process of its own: the first asks the loop to end, which the tool does not let do anything."""
    program = f"""
import asyncio, signal
from retinue import Retinue, tool
from retinue.testing import ScriptedModel, call

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it

@tool
async def hold() -> str:
    "Never give the loop back."
    print("held", flush=True)
    while True:
        pass

async def main():
    model = ScriptedModel([call("hold"), "done"])
    async with Retinue(model=model, db="memory:", cwd={str(tmp_path)!r}, environ={{}}, tools=[hold]) as retinue:
        await retinue.run("general", "go")
    print("went on", flush=True)

asyncio.run(main())
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    while child.poll() is None:
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.1)
    out, errors = child.communicate(timeout=60)
    assert "went on" not in out
    assert "KeyboardInterrupt" in errors


@pytest.mark.parametrize("what", ["admit", "private", "reads", "harmless"])
@pytest.mark.parametrize("error", [Wordless(), KeyError("x")], ids=["wordless", "key"])
async def test_whatever_is_raised_beside_a_tool_s_function_is_a_result_too(
    tmp_path: Path, what: str, error: Exception
) -> None:
    def plain() -> str:
        """Do it."""
        return "done"

    def fail(*given: object) -> Any:
        raise error

    more: dict[str, Any] = {what: fail}
    report = await run_tool(tmp_path, tool(name="fail", **more)(plain))
    assert report.ok
    assert report.text.startswith(f"{type(error).__name__}")


async def test_what_was_cancelled_elsewhere_is_an_error_of_the_tool_that_awaits_it(tmp_path: Path) -> None:
    @tool
    async def fail() -> str:
        """Fail."""
        elsewhere: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        elsewhere.cancel()
        return await elsewhere

    report = await run_tool(tmp_path, fail)
    assert report.ok
    assert report.text.startswith("CancelledError")


async def test_a_tool_that_takes_too_long_is_told_its_limit(tmp_path: Path) -> None:
    @tool(timeout=0.01)
    async def slow() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return ""

    report = await run_tool(tmp_path, slow)
    assert report.text.startswith("slow did not finish within 0.01 s")


@pytest.mark.parametrize(
    "result",
    [
        ToolResult(text=7),  # pyright: ignore[reportArgumentType]
        ToolResult(text=None),  # pyright: ignore[reportArgumentType]
        ToolResult(text="x", sources=("a page",)),  # pyright: ignore[reportArgumentType]
        ToolResult(text="x", files=(7,)),  # pyright: ignore[reportArgumentType]
        ToolResult(text="x", files="a.txt"),  # pyright: ignore[reportArgumentType]
        ToolResult(text="x", usage=None),  # pyright: ignore[reportArgumentType]
        ToolResult(text="x", usage={"cost": 1}),  # pyright: ignore[reportArgumentType]
        ToolResult(text="x", is_error="no"),  # pyright: ignore[reportArgumentType]
    ],
    ids=lambda result: repr(result)[11:60],
)
async def test_a_result_of_a_wrong_shape_is_an_error_and_the_log_can_still_be_read(
    tmp_path: Path, result: ToolResult
) -> None:
    @tool(name="odd")
    async def odd() -> ToolResult:
        """Odd."""
        return result

    report = await run_tool(tmp_path, odd)
    assert report.ok
    assert report.text.startswith("odd ran, but what it returned")


def test_plain_tools_that_never_return_stop_neither_the_others_nor_the_program(tmp_path: Path) -> None:
    program = f"""
import threading
from retinue import Retinue, tool
from retinue.testing import ScriptedModel, call

@tool(timeout=0.2)
def stuck(number: int) -> str:
    "Never ends."
    threading.Event().wait()

model = ScriptedModel([[call("stuck", number=n) for n in range(40)], call("ls", path="."), "over"])
retinue = Retinue(model=model, db="memory:", cwd={str(tmp_path)!r}, environ={{}}, tools=[stuck],
                  settings={{"limits.tool_concurrency": 40}})
print(retinue.run_sync("general", "go").text)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "over"


class Odd:
    """A model that does what it is told."""

    name = "odd"

    def __init__(self, does: Any) -> None:
        self.does = does

    def stream(self, request: ModelRequest) -> Any:
        return self.does(request)


async def cancels(request: ModelRequest) -> AsyncGenerator[Any, None]:
    raise asyncio.CancelledError
    yield


async def says_nothing(request: ModelRequest) -> AsyncGenerator[Any, None]:
    return
    yield


async def is_no_generator(request: ModelRequest) -> None:
    return None


def is_not_async(request: ModelRequest) -> Iterator[Any]:
    yield odd_reply(message=AssistantMessage(text="x"))


def is_none(request: ModelRequest) -> None:
    return None


def odd_reply(**fields: Any) -> Reply:
    whole: dict[str, Any] = {"usage": Usage(), "stop": "end", "model": "odd"}
    return Reply(**{**whole, **fields})


def yields(*values: Any) -> Any:
    async def stream(request: ModelRequest) -> AsyncGenerator[Any, None]:
        for value in values:
            yield value

    return stream


WRONG = [
    cancels,
    says_nothing,
    is_no_generator,
    is_not_async,
    is_none,
    yields(None, 7, "text"),
    yields(odd_reply(message=None)),
    yields(odd_reply(message=AssistantMessage(text=None))),  # pyright: ignore[reportArgumentType]
    yields(odd_reply(message=AssistantMessage(text="x", calls=None))),  # pyright: ignore[reportArgumentType]
    yields(odd_reply(message=AssistantMessage(calls=("read",)))),  # pyright: ignore[reportArgumentType]
    yields(odd_reply(message=AssistantMessage(calls=(ToolCall(id=7, name="read", arguments={}),)))),  # pyright: ignore[reportArgumentType]
    yields(odd_reply(message=AssistantMessage(text="x"), usage=None)),
    yields(odd_reply(message=AssistantMessage(text="x"), stop="whenever")),
    yields(odd_reply(message=AssistantMessage(text="x", extra={"a": object()}))),
]


@pytest.mark.parametrize("does", WRONG)
async def test_a_model_that_does_not_keep_to_its_form_ends_the_run_with_an_error(
    tmp_path: Path, does: Any
) -> None:
    db = f"sqlite:///{tmp_path}/log.db"
    async with asyncio.timeout(60), Retinue(model=Odd(does), db=db, cwd=tmp_path, environ={}) as retinue:
        report = await retinue.run("general", "go")
    assert report.status == "error"
    assert report.error
    # The log can be read, and the run goes on from it with a model that works.
    async with (
        asyncio.timeout(60),
        Retinue(model=ScriptedModel(["done"], name="odd"), db=db, cwd=tmp_path, environ={}) as retinue,
    ):
        await retinue.resume(report.run_id)
        assert (await retinue.wait(report.run_id)).text == "done"


async def test_a_listener_that_fails_hides_nothing_from_the_others(tmp_path: Path) -> None:
    seen: list[str] = []

    def broken(event: object) -> None:
        raise ValueError("no")

    async with Retinue(
        model=ScriptedModel([call("ls", path="."), "done"]), db="memory:", cwd=tmp_path, environ={}
    ) as retinue:
        retinue.hear(broken)
        retinue.hear(lambda event: seen.append(type(event).__name__))
        streamed = [event async for event in retinue.stream("general", "go")]
    assert any(isinstance(event, ToolReturned) for event in streamed)
    assert isinstance(streamed[-1], RunFinished)
    assert "RunFinished" in seen


async def test_a_listener_may_stop_listening_while_it_is_told(tmp_path: Path) -> None:
    heard_by: list[int] = []
    async with Retinue(model=ScriptedModel(["done"]), db="memory:", cwd=tmp_path, environ={}) as retinue:

        def once(event: object) -> None:
            heard_by.append(1)
            stop()
            stop()

        stop = retinue.hear(once)
        retinue.hear(lambda event: heard_by.append(2))
        await retinue.run("general", "go")
    assert heard_by[:2] == [1, 2]
    assert heard_by.count(1) == 1


@pytest.mark.parametrize("shown", [7, ["a"], None, "x" * 100_000])
async def test_a_preview_of_a_wrong_shape_keeps_no_question_from_being_asked(
    tmp_path: Path, shown: Any
) -> None:
    from retinue import Answer

    asked: list[Any] = []

    @tool(effect="write", preview=lambda arguments, files: shown)
    async def change() -> str:
        """Change."""
        return "changed"

    def approve(question: Any) -> Answer:
        asked.append(question.preview)
        return Answer(decision="approve")

    model = ScriptedModel([call("change"), heard])
    async with (
        asyncio.timeout(60),
        Retinue(
            model=model,
            db=f"sqlite:///{tmp_path}/log.db",
            cwd=tmp_path,
            environ={},
            tools=[change],
            approve=approve,
        ) as retinue,
    ):
        assert (await retinue.run("general", "go")).text == "changed"
    assert len(asked) == 1
    assert isinstance(asked[0], str)


async def test_a_preview_that_never_returns_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retinue import Answer
    from retinue.engine import preview

    monkeypatch.setattr(preview, "SECONDS", 0.2)
    asked, over, let_go = list[str](), threading.Event(), list[bool]()

    def show(arguments: Any, files: Any) -> str:
        let_go.append(over.wait(20))
        return "too late"

    @tool(effect="write", preview=show)
    async def change() -> str:
        """Change."""
        return "changed"

    def approve(question: Any) -> Answer:
        asked.append(question.preview)
        return Answer(decision="approve")

    model = ScriptedModel([call("change"), heard])
    try:
        async with Retinue(
            model=model, db="memory:", cwd=tmp_path, environ={}, tools=[change], approve=approve
        ) as retinue:
            assert (await retinue.run("general", "go")).text == "changed"
        assert asked == ["(no preview: the preview of change took longer than 0.2 s)"]
        assert not let_go, "the question was asked while the preview was still at it"
    finally:
        over.set()


@pytest.mark.parametrize("which", ["admit", "private"])
async def test_a_small_function_of_a_tool_that_never_returns_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    from retinue import threads
    from retinue.events import ToolReturned

    monkeypatch.setattr(threads, "BRIEFLY", 0.2)
    over, let_go = threading.Event(), list[bool]()

    def never(arguments: Any, other: Any) -> Any:
        let_go.append(over.wait(20))
        return ()

    @tool(
        effect="network",
        admit=never if which == "admit" else None,
        private=never if which == "private" else None,
    )
    async def look() -> str:
        """Look."""
        return "looked"

    model = ScriptedModel([call("look"), heard])
    try:
        async with Retinue(model=model, db="memory:", cwd=tmp_path, environ={}, tools=[look]) as retinue:
            run_id = await retinue.start("general", "go")
            report = await retinue.wait(run_id)
            (returned,) = [e for e in await retinue.store.events(run_id) if isinstance(e, ToolReturned)]
        assert not let_go, "the run went on while the function was still at it"
        if which == "admit":
            assert "its admit function said nothing within 0.2 s" in report.text
            assert returned.is_error
        else:
            assert report.text == "looked"
            assert returned.private == ("what look returned",), "what nobody knows of is taken for private"
    finally:
        over.set()


@pytest.mark.parametrize("which", ["reads", "harmless"])
async def test_what_never_says_that_a_call_only_looks_keeps_nobody_waiting_and_the_call_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    from retinue import Answer, threads
    from retinue.events import ToolCalled

    monkeypatch.setattr(threads, "BRIEFLY", 0.2)
    over, let_go, asked = threading.Event(), list[bool](), list[str]()

    def never(arguments: Any) -> bool:
        let_go.append(over.wait(20))
        return True

    def approve(question: Any) -> Answer:
        asked.append(question.effect)
        return Answer(decision="approve")

    more: dict[str, Any] = {which: never}

    @tool(effect="write", **more)
    async def change() -> str:
        """Change it."""
        return "changed"

    model = ScriptedModel([call("change"), heard])
    try:
        async with Retinue(
            model=model, db="memory:", cwd=tmp_path, environ={}, tools=[change], approve=approve
        ) as retinue:
            run_id = await retinue.start("general", "go")
            assert (await retinue.wait(run_id)).text == "changed"
            (called,) = [e for e in await retinue.store.events(run_id) if isinstance(e, ToolCalled)]
        assert not let_go, "the run went on while the function was still at it"
        assert (asked, called.effect) == (["write"], "write")
    finally:
        over.set()


async def test_what_says_that_a_call_only_looks_is_asked_of_the_arguments_that_a_person_wrote(
    tmp_path: Path,
) -> None:
    from retinue import Answer
    from retinue.events import ToolCalled

    def approve(question: Any) -> Answer:
        return Answer(decision="approve", arguments='{"path": "other"}')

    @tool(effect="write", reads=lambda arguments: arguments["path"] == "other")
    async def change(path: str) -> str:
        """Change it."""
        return f"changed {path}"

    model = ScriptedModel([call("change", path="one"), heard])
    async with Retinue(
        model=model, db="memory:", cwd=tmp_path, environ={}, tools=[change], approve=approve
    ) as retinue:
        run_id = await retinue.start("general", "go")
        assert "changed other" in (await retinue.wait(run_id)).text
        (called,) = [e for e in await retinue.store.events(run_id) if isinstance(e, ToolCalled)]
    assert called.effect == "read"


async def test_a_preview_may_be_async(tmp_path: Path) -> None:
    from retinue import Answer

    asked: list[str] = []

    async def show(arguments: Any, files: Any) -> str:
        await asyncio.sleep(0)
        return "what it would do"

    @tool(effect="write", preview=show)
    async def change() -> str:
        """Change."""
        return "changed"

    def approve(question: Any) -> Answer:
        asked.append(question.preview)
        return Answer(decision="approve")

    model = ScriptedModel([call("change"), heard])
    async with Retinue(
        model=model, db="memory:", cwd=tmp_path, environ={}, tools=[change], approve=approve
    ) as retinue:
        assert (await retinue.run("general", "go")).text == "changed"
    assert asked == ["what it would do"]


def test_threads_of_plain_tools_do_not_stay(tmp_path: Path) -> None:
    before = threading.active_count()
    model = ScriptedModel([[call("ls", path=".") for _ in range(3)], "done"])
    Retinue(model=model, db="memory:", cwd=tmp_path, environ={}).run_sync("general", "go")
    assert threading.active_count() <= before
