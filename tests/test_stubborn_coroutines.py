"""What a program hands in may never end, or refuse to: it is bounded, ended, and at last left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Answer, Retinue, Tool, threads, tool
from retinue.engine import preview
from retinue.events import ToolReturned
from retinue.store.memory import MemoryStore
from retinue.testing import ScriptedModel, call

AGENT = AgentSpec(name="a", description="", prompt="", tools=("x",))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GRACE", 0.05)


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "BRIEFLY", 0.05)
    monkeypatch.setattr(preview, "SECONDS", 0.05)


async def for_ever(*_: Any) -> Any:
    """Takes every cancellation for nothing."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def for_ever_and_ever(*_: Any) -> Any:
    """Takes the end of its generator for nothing as well."""
    done = asyncio.Event()
    ENDS.append(done)
    while not done.is_set():
        try:
            await done.wait()
        except BaseException:  # what it is about
            continue


async def for_ever_in_a_task(*_: Any) -> Any:
    """Waits for a task that takes every cancellation for nothing, and so cannot be woken."""
    done = asyncio.Event()
    ENDS.append(done)

    async def wait() -> None:
        while not done.is_set():
            try:
                await done.wait()
            except asyncio.CancelledError:
                continue

    await asyncio.create_task(wait())


ENDS: list[asyncio.Event] = []
STUBBORN = pytest.mark.parametrize("stubborn", [for_ever, for_ever_and_ever, for_ever_in_a_task])
# Python itself says of a coroutine that it does not end.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def made(**options: Any) -> Tool:
    async def x() -> str:
        """x"""
        return "it ran"

    return tool(name="x", **options)(x)


async def outcome(tmp_path: Path, given: Tool, **options: Any) -> tuple[ToolReturned, list[str]]:
    """The one result of a run, and what is left of tasks once the program has closed everything."""
    store = MemoryStore()
    async with Retinue(
        model=ScriptedModel([call("x"), "done"]),
        db=store,
        cwd=tmp_path,
        agents=[AGENT],
        tools=[given],
        **options,
    ) as retinue:
        report = await retinue.run("a", "go")
        assert report.status == "completed", report.error
    events = await store.events(report.run_id)
    for done in ENDS:
        done.set()
    ENDS.clear()
    await asyncio.sleep(0)
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return next(event for event in events if isinstance(event, ToolReturned)), left


@STUBBORN
async def test_a_tool_that_does_not_end_is_left(
    tmp_path: Path, stubborn: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def x() -> str:
        """x"""
        return await stubborn()

    result, _ = await outcome(tmp_path, tool(timeout=0.05)(x))
    assert result.is_error
    assert "did not finish within 0.05 s" in result.text
    assert ("was left behind" in caplog.text) == (stubborn is for_ever_in_a_task)


async def test_a_cancelled_run_ends_although_its_tool_does_not(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def x() -> str:
        """x"""
        begun.set()
        return await for_ever()

    model = ScriptedModel([call("x"), "done"])
    given = tool(timeout=None)(x)
    async with Retinue(model=model, db="memory:", cwd=tmp_path, agents=[AGENT], tools=[given]) as retinue:
        run_id = await retinue.start("a", "go")
        await begun.wait()
        await retinue.cancel(run_id, "no")
        assert (await retinue.wait(run_id)).status == "cancelled"


@pytest.mark.usefixtures("briefly")
@STUBBORN
async def test_admit_is_awaited_and_what_it_does_not_say_in_time_is_a_refusal(
    tmp_path: Path, stubborn: Any
) -> None:
    result, _ = await outcome(tmp_path, made(admit=stubborn))
    assert result.text == "x was not called: its admit function said nothing within 0.05 s"


async def test_an_async_admit_refuses(tmp_path: Path) -> None:
    async def admit(arguments: dict[str, Any], run_id: str) -> None:
        raise ValueError("not today")

    result, _ = await outcome(tmp_path, made(admit=admit))
    assert result.text == "ValueError: not today"


async def test_what_a_refusal_of_a_program_says_counts_as_read(tmp_path: Path) -> None:
    """It may say that it did not run and quote a file all the same."""
    from retinue.errors import Refused

    def admit(arguments: dict[str, Any], run_id: str) -> None:
        raise Refused("the key is 1234")

    async def x() -> str:
        """x"""
        raise Refused("the key is 1234")

    for given in (made(admit=admit), tool(x)):
        result, _ = await outcome(tmp_path, given)
        assert result.not_run == "forbidden"
        assert result.private == ("what x returned",)


@pytest.mark.usefixtures("briefly")
@STUBBORN
async def test_what_nobody_can_say_is_private(tmp_path: Path, stubborn: Any) -> None:
    result, _ = await outcome(tmp_path, made(private=stubborn))
    assert (result.text, result.private) == ("it ran", ("what x returned",))


async def test_an_async_function_may_name_private_data(tmp_path: Path) -> None:
    async def private(arguments: dict[str, Any], files: Any) -> tuple[str, ...]:
        return ("the diary",)

    result, _ = await outcome(tmp_path, made(private=private))
    assert result.private == ("the diary",)


@pytest.mark.usefixtures("briefly")
async def test_a_preview_that_does_not_end_holds_nothing_up(tmp_path: Path) -> None:
    async def approve(asked: Any) -> Answer:
        assert "took longer than" in asked.preview
        return Answer(decision="approve")

    result, left = await outcome(tmp_path, made(effect="write", preview=for_ever), approve=approve)
    assert result.text == "it ran"
    assert not left


@STUBBORN
async def test_an_approver_that_does_not_end_refuses(tmp_path: Path, stubborn: Any) -> None:
    settings = {"approvals.callback_seconds": 0.05}
    result, _ = await outcome(tmp_path, made(effect="write"), approve=stubborn, settings=settings)
    assert "it gave no answer within 0.05 s" in result.text


@pytest.mark.usefixtures("briefly")
async def test_nothing_is_left_of_what_only_ignores_a_cancellation(tmp_path: Path) -> None:
    """asyncio waits for all tasks before a program ends, however long they take."""
    for given in (made(admit=for_ever), made(private=for_ever)):
        _, left = await outcome(tmp_path, given)
        assert not left


@pytest.mark.parametrize("kind", [GeneratorExit, type("Own", (BaseException,), {})])
async def test_an_error_of_any_kind_is_the_tool_s_and_not_the_program_s(
    tmp_path: Path, kind: type[BaseException]
) -> None:
    def x() -> str:
        """x"""
        raise kind("q")

    async def y() -> str:
        """y"""
        raise kind("q")

    for given in (tool(x), tool(name="x")(y)):
        result, _ = await outcome(tmp_path, given)
        assert result.text == f"{kind.__name__}: q"


@pytest.mark.parametrize("harmless", [True, False])
async def test_what_an_async_function_says_of_a_call_is_waited_for(tmp_path: Path, harmless: bool) -> None:
    async def says(arguments: dict[str, Any]) -> bool:
        return harmless

    result, _ = await outcome(tmp_path, made(effect="write", harmless=says))
    assert (result.text == "it ran") == harmless
