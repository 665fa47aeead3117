"""A run that has ended leaves nothing behind: no handle, no object, and nobody has to collect anything.

The collector is off all the while. Its work would hide what a busy server, whose collector looks seldom,
keeps for hours.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import warnings
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from leaving import alive, handles, uncollected
from retinue import AgentSpec, Retinue
from retinue.engine import workflows
from retinue.engine.answers import Answer
from retinue.engine.workflow import Workflow
from retinue.errors import ModelError, StoreError, ToolError
from retinue.events import (
    ApprovalRequested,
    Event,
    LiveEvent,
    ModelReplied,
    RunFinished,
    StepStarted,
    Streamed,
    ToolCalled,
)
from retinue.jail import Jail
from retinue.models.connect import connect
from retinue.models.http import Client
from retinue.models.retry import RetryPolicy
from retinue.run import Run
from retinue.settings import Settings
from retinue.store.memory import MemoryStore
from retinue.testing import FakeProvider, Script, ScriptedModel, SeenRequest, call
from retinue.testing.scripted import Play, Step, turn
from retinue.workspace import Files

BOSS = AgentSpec(name="boss", description="answers", prompt="You are the boss.", tools=("*",))
CLERK = AgentSpec(name="clerk", description="looks", prompt="You are the clerk.", tools=("read", "ls"))
CODER = AgentSpec(name="coder", description="computes", prompt="You are the boss.", tools=("run_code",))
RUNS = 4


async def approved(_: ApprovalRequested) -> Answer:
    return Answer(decision="approve")


def staff(boss: list[Play], clerk: list[Play] | None = None) -> ScriptedModel:
    return ScriptedModel({"You are the boss": boss, "You are the clerk": clerk or []})


async def heard(retinue: Retinue, is_it: Callable[[LiveEvent], bool], start: Awaitable[str]) -> str:
    """Start a run and wait until something has happened in it."""
    there = asyncio.Event()
    deaf = retinue.hear(lambda event: there.set() if is_it(event) else None)
    run_id = await start
    await there.wait()
    deaf()
    return run_id


async def plain(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff(["fine"]))
    return (await retinue.run("boss", "go")).status


async def with_tools(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff([[call("read", path="a.txt"), call("grep", pattern="a")], call("ls"), "fine"]))
    return (await retinue.run("boss", "go")).status


async def with_mistakes(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    wrong = [call("read", path="no"), call("no"), call("read", path="../../x"), call("read")]
    give(staff([*wrong, call("bash", command="exit 3"), "fine"]))
    return (await retinue.run("boss", "go")).status


async def with_a_workspace(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    write = call("write", path="/home/agent/n.txt", content="note")
    give(staff([write, call("read", path="~/n.txt"), "fine"]))
    return (await retinue.run("boss", "go")).status


async def with_children(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    both: list[Play] = [call("read", path="a.txt"), call("read", path="a.txt"), "seen", "seen"]
    give(staff([[call("clerk", prompt="look"), call("clerk", prompt="again")], "fine"], both))
    return (await retinue.run("boss", "go")).status


async def with_code(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff([call("run_code", code="print(1 + 1)"), "fine"]))
    return (await retinue.run(CODER, "go")).status


async def with_a_question(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff([call("write", path="b.txt", content="x"), "fine"]))
    return (await retinue.run("boss", "go")).status


async def that_fails(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff([lambda _: ModelError("no", kind="invalid")]))
    return (await retinue.run("boss", "go")).status


async def cancelled_in_a_tool(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff([call("bash", command="sleep 60"), "fine"]))
    run_id = await heard(retinue, lambda e: isinstance(e, ToolCalled), retinue.start("boss", "go"))
    await retinue.cancel(run_id)
    return (await retinue.wait(run_id)).status


async def cancelled_in_a_child(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff([call("clerk", prompt="look"), "fine"], [Step(text="x", gate=asyncio.Event())]))
    deep = retinue.start("boss", "go")
    run_id = await heard(retinue, lambda e: isinstance(e, StepStarted) and e.depth == 1, deep)
    await retinue.cancel(run_id)
    return (await retinue.wait(run_id)).status


async def talked_to_again(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff(["one", call("read", path="a.txt"), "two", "three"]))
    run_id = (await retinue.run("boss", "go")).run_id
    await retinue.resume(run_id, message="and then?")
    await retinue.wait(run_id)
    await retinue.resume(run_id, message="and then?")
    return (await retinue.wait(run_id)).status


async def forked_and_replayed(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff([call("clerk", prompt="look"), "fine", "more"], ["seen"]))
    run_id = (await retinue.run("boss", "go")).run_id
    assert not (await retinue.replay(run_id)).diff
    return (await retinue.wait(await retinue.fork(run_id, message="and then?"))).status


async def streamed(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff([call("read", path="a.txt"), "fine"]))
    async with contextlib.aclosing(retinue.stream("boss", "go")) as events:
        async for event in events:
            if isinstance(event, RunFinished):
                return event.report.status
    raise AssertionError("it never ended")


async def dropped_by_its_listener(retinue: Retinue, give: Callable[[ScriptedModel], None]) -> str:
    give(staff([Step(text="x", gate=asyncio.Event())]))
    async with contextlib.aclosing(retinue.stream("boss", "go")) as events:
        async for event in events:
            if isinstance(event, StepStarted):
                return "cancelled"
    raise AssertionError("it never began")


KINDS = (
    (plain, "completed"),
    (with_tools, "completed"),
    (with_mistakes, "completed"),
    (with_a_workspace, "completed"),
    (with_children, "completed"),
    (with_code, "completed"),
    (with_a_question, "completed"),
    (that_fails, "error"),
    (cancelled_in_a_tool, "cancelled"),
    (cancelled_in_a_child, "cancelled"),
    (talked_to_again, "completed"),
    (forked_and_replayed, "completed"),
    (streamed, "completed"),
    (dropped_by_its_listener, "cancelled"),
)
Kind = Callable[[Retinue, Callable[[ScriptedModel], None]], Awaitable[str]]


@pytest.mark.parametrize(("kind", "status"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
async def test_a_run_that_has_ended_leaves_neither_handles_nor_objects(
    kind: Kind, status: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a line\n")
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    async with Retinue(
        model=ScriptedModel([]),
        agents=[BOSS, CLERK],
        db=f"sqlite://{tmp_path}/log.db",
        cwd=tmp_path,
        approve=approved,
        yes=kind is not with_a_question,
        environ=environ,
    ) as retinue:

        def give(model: ScriptedModel) -> None:
            retinue.services.models.given = model

        # What is loaded and opened once: the record of what commands change is, with the first that runs.
        await with_mistakes(retinue, give)
        assert await kind(retinue, give) == status
        give(ScriptedModel([]))
        with uncollected() as found, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ResourceWarning)
            before, living = handles(), alive(Run, Workflow, Files)
            for _ in range(RUNS):
                await kind(retinue, give)
            give(ScriptedModel([]))
            await asyncio.sleep(0)
            assert handles() == before
            assert alive(Run, Workflow, Files) <= living
            assert found() == {}
            assert [str(one.message) for one in warned] == []


def broken(request: SeenRequest) -> Script:
    return {
        "refused": Script(status=400, message="no"),
        "overloaded": Script(status=529, message="later"),
        "dropped": Script(text="some text that never ends", drop_after=2),
        "garbled": Script(text="some text that never ends", garbage_after=2),
        "silent": Script(text="some text that never ends", delay=0.001, hang_after=4),
    }.get(request.asked, Script(text="fine"))


async def asked(retinue: Retinue, how: str) -> None:
    if how == "silent":
        begun = await heard(retinue, lambda e: isinstance(e, Streamed), retinue.start("boss", how))
        await retinue.cancel(begun)
        await retinue.wait(begun)
    else:
        await retinue.run("boss", how)


@pytest.mark.parametrize("how", ["fine", "refused", "overloaded", "dropped", "garbled", "silent"])
async def test_a_provider_that_fails_leaves_neither_handles_nor_objects(how: str, tmp_path: Path) -> None:
    async with FakeProvider(broken) as provider, Client() as client:
        model = connect(
            "openai:fake-model",
            settings=Settings(),
            client=client,
            environ=provider.environ(),
            policy=RetryPolicy(attempts=3, first_wait=0.0),
        )
        async with Retinue(
            model=model, agents=[BOSS], db=f"sqlite://{tmp_path}/log.db", cwd=tmp_path, environ={}
        ) as retinue:
            await asked(retinue, how)
            with uncollected() as found:
                before = handles()
                for _ in range(RUNS):
                    await asked(retinue, how)
                async with asyncio.timeout(20):
                    while handles() > before:  # the provider notices a moment later who has gone
                        await asyncio.sleep(0.01)
                assert found() == {}


async def test_a_run_that_its_database_lost_leaves_nothing_once_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workflows, "REMEMBERED", 0.0)

    class Failing(MemoryStore):
        def append(self, events: Sequence[Event]) -> asyncio.Future[None]:
            if any(isinstance(event, ModelReplied) for event in events):
                lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                lost.set_exception(StoreError("the disk is full"))
                return lost
            return super().append(events)

    async with Retinue(
        model=ScriptedModel(lambda _: "x"), agents=[BOSS], db=Failing(), environ={}
    ) as retinue:
        with uncollected() as found:
            for _ in range(RUNS):
                with contextlib.suppress(StoreError):
                    await retinue.run("boss", "go")
            await asyncio.sleep(0.01)  # until the timer of no time at all has come round
            assert found() == {}


def test_a_thousand_runs_of_one_program_open_no_more_files(tmp_path: Path) -> None:
    async def many() -> tuple[int, int]:
        (tmp_path / "a.txt").write_text("a line\n")
        steps = [call("read", path="a.txt"), "fine"]
        model = ScriptedModel(lambda request: steps[turn(request)])
        async with Retinue(model=model, agents=[BOSS], db="memory:", cwd=tmp_path, environ={}) as retinue:
            await retinue.run("boss", "go")
            before = handles()
            for _ in range(1000):
                await retinue.run("boss", "go")
                model.requests.clear()
            return before, handles()

    gc.disable()
    try:
        before, after = asyncio.run(many())
    finally:
        gc.enable()
    assert after == before


def test_a_jail_gives_its_handle_back_when_it_is_closed(tmp_path: Path) -> None:
    before = handles()
    jail = Jail(tmp_path)
    assert handles() == before + 1
    jail.close()
    jail.close()
    assert handles() == before
    with pytest.raises(OSError, match="Bad file descriptor"):
        jail.listdir()


def test_a_thread_at_work_keeps_the_handle_of_a_closed_jail_until_it_is_done(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    jail, there, go_on = Jail(tmp_path), threading.Event(), threading.Event()
    names: list[list[str]] = []

    def work() -> None:
        with jail.held() as fd:
            there.set()
            go_on.wait()
            names.append(os.listdir(fd))

    before = handles()
    thread = threading.Thread(target=work)
    thread.start()
    there.wait()
    jail.close()
    assert handles() == before  # a number that is free again would soon be another folder's
    go_on.set()
    thread.join()
    assert handles() == before - 1
    assert names == [["a.txt"]]


def test_a_forgotten_jail_says_so(tmp_path: Path) -> None:
    jail = Jail(tmp_path)
    with pytest.warns(ResourceWarning, match="never closed"):
        del jail


def test_a_tool_that_outlives_its_run_opens_nothing_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    files = Files(tmp_path, None)
    assert files.read_bytes("a.txt") == b"a"
    files.close()
    for late in (files, Files(tmp_path, None)):
        late.close()
        with pytest.raises(ToolError, match="the run it belonged to has ended"):
            late.read_bytes("a.txt")
