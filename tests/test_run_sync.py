"""`run_sync`: for programs without an event loop, from as many threads as they have."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from retinue import AgentSpec, Answer, ConfigError, Retinue, RunError, RunFilter, tool
from retinue.testing import ScriptedModel, call
from retinue.types import ModelRequest, ToolMessage, UserMessage

PLAIN = AgentSpec(name="plain", description="answers", prompt="You answer.", tools=("double",))


@tool
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


def doubling(request: ModelRequest) -> Any:
    """Asks for the double of what it was asked, and answers with that."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return last.text
    assert isinstance(last, UserMessage)
    return call("double", number=int(last.text))


def shared(tmp_path: Path, **options: Any) -> Retinue:
    given: dict[str, Any] = {"model": ScriptedModel(doubling), "db": "memory:", "tools": [double]}
    return Retinue(cwd=tmp_path, environ={}, **{**given, **options})


def threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What every thread returned or raised. They begin at the same moment."""
    barrier = threading.Barrier(count)

    def one(index: int) -> Any:
        barrier.wait()
        try:
            return work(index)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def own_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("retinue")]


def test_many_threads_share_one_instance_and_each_gets_its_own_report(tmp_path: Path) -> None:
    def echo(request: ModelRequest) -> str:
        last = request.messages[-1]
        assert isinstance(last, UserMessage)
        return f"you said {last.text}"

    retinue = shared(tmp_path, db=f"sqlite:///{tmp_path}/log.db", model=ScriptedModel(echo))

    def work(index: int) -> list[str]:
        return [retinue.run_sync(PLAIN, str(100 * index + each)).text for each in range(50)]

    found = threads(8, work)
    assert found == [[f"you said {100 * index + each}" for each in range(50)] for index in range(8)]

    async def stored() -> int:
        async with retinue:
            return len(await retinue.runs(RunFilter(limit=1000)))

    assert asyncio.run(stored()) == 400


def test_nothing_is_left_open_after_the_last_run(tmp_path: Path) -> None:
    retinue = shared(tmp_path, db=f"sqlite:///{tmp_path}/log.db")
    before = own_threads()
    threads(4, lambda index: retinue.run_sync(PLAIN, str(index)))
    assert own_threads() == before
    files = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    ]
    assert not [each for each in files if each.startswith(str(tmp_path))]


def test_runs_one_after_the_other_open_and_close_each_time(tmp_path: Path) -> None:
    retinue = shared(tmp_path)
    assert [retinue.run_sync(PLAIN, str(each)).text for each in range(3)] == ["0", "2", "4"]


async def test_threads_may_use_an_instance_that_is_open_in_a_loop(tmp_path: Path) -> None:
    async with shared(tmp_path) as retinue:
        texts = await asyncio.gather(
            *(asyncio.to_thread(lambda n=n: retinue.run_sync(PLAIN, str(n)).text) for n in range(4)),
        )
        assert texts == ["0", "2", "4", "6"]
        assert (await retinue.run(PLAIN, "7")).text == "14"  # still open


async def test_an_instance_is_open_once(tmp_path: Path) -> None:
    async with shared(tmp_path) as retinue:
        with pytest.raises(RunError, match="open already"):
            async with retinue:
                pass
        assert (await retinue.run(PLAIN, "7")).text == "14"
    async with retinue:  # closed, it can be opened again
        assert (await retinue.run(PLAIN, "8")).text == "16"


def test_one_thread_s_mistake_is_its_own(tmp_path: Path) -> None:
    retinue = shared(tmp_path)
    found = threads(6, lambda index: retinue.run_sync("nobody" if index % 2 else PLAIN, str(index)))
    for index, each in enumerate(found):
        if index % 2:
            assert isinstance(each, ConfigError)
        else:
            assert each.text == str(2 * index)


def test_what_cannot_be_opened_is_an_error_in_every_thread_each_time(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_bytes(b"this is no database" * 1000)
    retinue = shared(tmp_path, db=f"sqlite:///{tmp_path}/log.db")
    for _ in range(2):
        for each in threads(4, lambda index: retinue.run_sync(PLAIN, str(index))):
            assert isinstance(each, Exception)
            assert "log.db" in str(each)


def test_tools_see_the_context_of_the_thread_that_called(tmp_path: Path) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    @tool
    def whose() -> str:
        """Whose data this is."""
        return tenant.get()

    def model(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return last.text if isinstance(last, ToolMessage) else call("whose")

    spec = AgentSpec(name="plain", description="answers", prompt="You answer.", tools=("whose",))
    retinue = shared(tmp_path, model=ScriptedModel(model), tools=[whose])

    def work(index: int) -> str:
        tenant.set(f"tenant {index}")
        return retinue.run_sync(spec, "whose?").text

    assert threads(4, work) == [f"tenant {index}" for index in range(4)]


def test_a_plain_tool_may_run_an_agent_of_the_same_instance(tmp_path: Path) -> None:
    @tool
    def ask_other(number: int) -> str:
        """Ask another agent."""
        return retinue.run_sync(PLAIN, str(number)).text

    def model(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.text == "outer":
            return call("ask_other", number=21)
        return doubling(request)

    outer = AgentSpec(name="outer", description="answers", prompt="You ask.", tools=("ask_other",))
    retinue = shared(tmp_path, model=ScriptedModel(model), tools=[double, ask_other])
    assert retinue.run_sync(outer, "outer").text == "42"


def test_approve_is_asked_from_run_sync_too(tmp_path: Path) -> None:
    asked: list[str] = []

    def approve(question: Any) -> Answer:
        asked.append(threading.current_thread().name)
        return Answer(decision="approve")

    model = ScriptedModel([call("write", path="a.txt", content="b"), "done"])
    retinue = shared(tmp_path, model=model, approve=approve)
    assert retinue.run_sync("general", "go").ok
    assert (tmp_path / "a.txt").read_text() == "b"
    assert len(asked) == 1


@pytest.mark.parametrize("error", [SystemExit(7), RuntimeError("broken"), KeyboardInterrupt()])
def test_a_listener_that_raises_leaves_no_thread_waiting(tmp_path: Path, error: BaseException) -> None:
    retinue = shared(tmp_path)

    def hear(event: object) -> None:
        raise error

    stop = retinue.hear(hear)
    found = threads(3, lambda index: _caught(lambda: retinue.run_sync(PLAIN, str(index)).text))
    assert len(found) == 3
    stop()
    assert retinue.run_sync(PLAIN, "4").text == "8"  # and the instance still works


def _caught(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except BaseException as error:
        return error


def test_an_interrupted_caller_cancels_its_run_and_the_program_ends(tmp_path: Path) -> None:
    program = f"""
import asyncio, os, signal, threading
from retinue import Retinue
from retinue.testing import ScriptedModel

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it

async def never(request):
    print("asked", flush=True)
    await asyncio.Event().wait()

retinue = Retinue(model=ScriptedModel(never), db="sqlite:///{tmp_path}/log.db", cwd={str(tmp_path)!r}, environ={{}})
try:
    retinue.run_sync("general", "go")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "asked\n"
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (0, "interrupted\n")

    async def statuses() -> list[str]:
        async with Retinue(
            model="offline", db=f"sqlite:///{tmp_path}/log.db", cwd=tmp_path, environ={}
        ) as retinue:
            return [row.status for row in await retinue.runs()]

    assert asyncio.run(statuses()) == ["cancelled"]


def test_an_interruption_at_any_moment_leaves_the_loop_working() -> None:
    """In a process of its own, since it is the main thread that is interrupted: 300 times, at odd moments."""
    program = """
import asyncio, random, signal, threading
from retinue.loop_thread import call_in

async def never():
    await asyncio.Event().wait()

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
signal.signal(signal.SIGALRM, signal.default_int_handler)
moments = random.Random(1)
for number in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.00003 + moments.random() * 0.0006)
        call_in(loop, never)
    except KeyboardInterrupt:
        pass
    alive = threading.Event()
    loop.call_soon_threadsafe(alive.set)
    assert alive.wait(30), f"the loop is blocked after {number + 1} interruptions"
print("works")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "works\n", done.stderr


async def test_inside_a_loop_it_says_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"await retinue\.run"):
        shared(tmp_path).run_sync(PLAIN, "1")


def test_calls_that_have_returned_leave_no_task_behind(tmp_path: Path) -> None:
    retinue = Retinue(model=ScriptedModel(lambda _: "done"), db="memory:", cwd=tmp_path, environ={})
    before = _tasks()
    for _ in range(3):
        assert retinue.run_sync("general", "go").text == "done"
    assert _tasks() <= before


def _tasks() -> int:
    gc.collect()
    return sum(isinstance(each, asyncio.Task) for each in gc.get_objects())
