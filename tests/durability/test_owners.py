"""Who works on a run is known by a lock and a heartbeat, and by no process id, host name or clock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from retinue.app import Retinue
from retinue.engine import owners as engine_owners
from retinue.engine.owners import Owners
from retinue.engine.take_up import TakeUp
from retinue.errors import ConfigError, Fenced, RunError, StoreError
from retinue.events import RunResumed, RunStarted
from retinue.store.base import OwnerRow, Store
from retinue.store.connect import connect
from retinue.store.memory import MemoryStore
from retinue.store.owner_lock import LockFile, OwnerLock
from retinue.testing import ScriptedModel
from trees import agent

ROOT = agent("root")
HOLDER = """
import asyncio, os, socket, sys, time
from retinue.app import Retinue
from retinue.testing import ScriptedModel
from retinue.types import AgentSpec

url, folder, shift, tries = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
real = time.time
time.time = lambda: real() + shift
os.getpid = lambda: 1
socket.gethostname = lambda: "equal"

async def never(request):
    await asyncio.Event().wait()

async def main():
    spec = AgentSpec(name="root", description="d", prompt="PLAY root")
    async with Retinue(model=ScriptedModel(never), db=url, cwd=folder, environ={}) as retinue:
        for n in range(tries):
            await retinue.start(spec, "go", run_id=f"r0held{n}")
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def holder(
    url: str, folder: Path, *, shift: float = 0.0, tries: int = 1, namespace: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that works on runs, with the process id and the host name of any other, by its own clock."""
    command = [sys.executable, "-c", HOLDER, url, str(folder), str(shift), str(tries)]
    if namespace:
        command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", *command]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        if namespace and not line:
            pytest.skip("this system makes no process namespaces")
        assert line == b"ready\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def opened(url: str | Store, folder: Path) -> Retinue:
    return Retinue(model=ScriptedModel(["went on"]), db=url, cwd=folder, environ={})


@pytest.fixture
def equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has the id and the host name of the one that is watched."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(socket, "gethostname", lambda: "equal")


@pytest.mark.usefixtures("equal")
@pytest.mark.parametrize("namespace", [False, True], ids=["same namespace", "pid namespace"])
@pytest.mark.parametrize("shift", [0.0, -86_400.0, 86_400.0])
async def test_no_live_run_is_taken_over_whatever_pids_names_and_clocks_say(
    durable_url: str, tmp_path: Path, shift: float, namespace: bool
) -> None:
    """With both stores more than 200 tries."""
    async with (
        holder(durable_url, tmp_path, shift=shift, tries=20, namespace=namespace),
        opened(durable_url, tmp_path) as other,
    ):
        assert await other.resume_abandoned() == []
        for n in range(20):
            assert not await other.abandoned(f"r0held{n}")
            with pytest.raises(RunError, match="still running in process 1 on equal"):
                await other.resume(f"r0held{n}")
            assert isinstance(await other.store.taken(f"r0held{n}"), RunStarted)


@pytest.mark.usefixtures("equal")
async def test_a_killed_ones_run_is_taken_up_at_once_also_while_it_is_a_zombie(
    durable_url: str, tmp_path: Path
) -> None:
    process = await asyncio.to_thread(
        lambda: os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", HOLDER, durable_url, str(tmp_path), "0", "1"],
            dict(os.environ),
            file_actions=[(os.POSIX_SPAWN_OPEN, 1, str(tmp_path / "out"), os.O_WRONLY | os.O_CREAT, 0o600)],
        )
    )
    async with asyncio.timeout(60):
        while not (tmp_path / "out").exists() or not (tmp_path / "out").read_text():
            await asyncio.sleep(0.02)
    os.kill(process, signal.SIGKILL)
    try:
        async with opened(durable_url, tmp_path) as other:
            before = other.owners._beats
            async with asyncio.timeout(60):
                while not await other.abandoned("r0held0"):  # dying takes a moment
                    await asyncio.sleep(0.01)
            assert Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            await other.resume("r0held0")
            assert other.owners._beats == before, "it waited for no heartbeat"
            assert (await other.wait("r0held0")).text == "went on"
    finally:
        os.waitpid(process, 0)


async def test_one_that_is_stopped_and_not_dead_keeps_its_run(durable_url: str, tmp_path: Path) -> None:
    async with holder(durable_url, tmp_path) as process, opened(durable_url, tmp_path) as other:
        process.send_signal(signal.SIGSTOP)
        assert not await other.abandoned("r0held0")
        with pytest.raises(RunError, match="still running"):
            await other.resume("r0held0")


async def test_whoever_leaves_hands_over_at_once(durable_url: str, tmp_path: Path) -> None:
    async def never(request: object) -> str:
        await asyncio.Event().wait()
        return ""

    async with (
        Retinue(model=ScriptedModel(never), db=durable_url, cwd=tmp_path, environ={}) as old,
        opened(durable_url, tmp_path) as new,
    ):
        root = await old.start(ROOT, "go")
        assert not await new.abandoned(root), "two parts of one program are told apart"
        await old.leave()
        assert await new.abandoned(root)
        assert await new.resume_abandoned() == [root]
        assert (await new.wait(root)).text == "went on"


def test_a_loop_that_died_holds_nobodys_run(tmp_path: Path) -> None:
    """Whoever opens again, in another loop, is told apart from who was open in the first."""

    async def never(request: object) -> str:
        await asyncio.Event().wait()
        return ""

    retinue = Retinue(
        model=ScriptedModel(never), db=f"sqlite:///{tmp_path / 'log.db'}", cwd=tmp_path, environ={}
    )

    async def begin() -> str:
        await retinue.__aenter__()
        return await retinue.start(ROOT, "go")

    async def look(root: str) -> bool:
        async with retinue:
            return await retinue.abandoned(root)

    dead = asyncio.new_event_loop()
    dead.set_exception_handler(lambda *_: None)  # that its tasks were never ended is what this is about
    root = dead.run_until_complete(begin())
    dead.close()
    assert asyncio.run(look(root))


def heartbeats() -> list[str]:
    return [each.get_name() for each in asyncio.all_tasks() if each.get_name().startswith("heartbeat")]


class SlowToBeat(MemoryStore):
    """Hears of an owner when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def beat(self, owner: str, place: str) -> None:
        self.asked.set()
        await self.goes_on.wait()
        await super().beat(owner, place)


async def test_who_lets_go_while_becoming_an_owner_has_no_heartbeat_left() -> None:
    store = SlowToBeat()
    owners = Owners(store, busy=lambda: False)
    claiming = asyncio.create_task(owners.watch(["seems alive"]))
    await store.asked.wait()
    releasing = asyncio.create_task(owners.release())
    await asyncio.sleep(0)
    store.goes_on.set()
    await asyncio.gather(claiming, releasing)
    assert (owners.id, heartbeats(), await store.owners()) == (None, [], [])


async def test_closing_that_is_broken_off_ends_the_heartbeat_and_lets_go(tmp_path: Path) -> None:
    began, told, goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(request: object) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()
            await goes_on.wait()
        return ""

    url = f"sqlite:///{tmp_path / 'log.db'}"
    async with opened(url, tmp_path) as other:
        retinue = Retinue(model=ScriptedModel(stubborn), db=url, cwd=tmp_path, environ={})
        await retinue.open()
        root = await retinue.start(ROOT, "go")
        await began.wait()
        closing = asyncio.create_task(retinue.aclose())
        await told.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert heartbeats() == []
        assert await other.abandoned(root), "and whoever looks need not wait for it"
        goes_on.set()


async def test_of_two_who_take_up_the_same_run_one_does(durable_url: str, tmp_path: Path) -> None:
    for round_ in range(5):
        async with holder(durable_url, tmp_path) as process:
            process.kill()
            await process.wait()
        async with opened(durable_url, tmp_path) as one, opened(durable_url, tmp_path) as two:
            outcomes = await asyncio.gather(
                one.resume("r0held0"), two.resume("r0held0"), return_exceptions=True
            )
            # The other is told that it runs, or that it is completed: whichever it finds.
            assert sum(isinstance(each, RunError | ConfigError) for each in outcomes) == 1, (round_, outcomes)
            assert not any(isinstance(each, Fenced) for each in outcomes)
            winner = one if isinstance(outcomes[0], str) else two
            assert (await winner.wait("r0held0")).text == "went on"
            log = await winner.store.events("r0held0")
            assert sum(isinstance(event, RunResumed) for event in log) == 1
            await winner.store.delete("r0held0")


class Elsewhere(OwnerLock):
    """As on another machine: the file is not the same one."""

    def __init__(self, path: Path) -> None:
        super().__init__(LockFile(path=path))


async def test_from_another_machine_a_live_one_is_seen_to_live_and_a_dead_one_to_be_gone(
    durable_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_owners, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(engine_owners, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(engine_owners, "_LOOK_SECONDS", 0.02)
    mine, theirs = connect(durable_url), connect(durable_url)
    await mine.open()
    await theirs.open()
    here, there = Owners(mine, busy=lambda: False), Owners(theirs, busy=lambda: True)
    there._lock = Elsewhere(tmp_path / "another-file")
    async with there.working() as owner:
        assert not await here.is_gone(owner)
        beating = there._beating
        assert beating is not None
        beating.cancel()  # as a machine that lost its current: its row stays
        assert await here.is_gone(owner)
    await there.release()
    assert await here.is_gone(owner)
    await here.release()
    await mine.close()
    await theirs.close()


async def test_who_has_worked_for_long_gives_another_as_much_time_to_be_heard_as_anybody() -> None:
    store = MemoryStore()
    await store.beat("another", "of another machine")
    here = Owners(store, busy=lambda: True)
    here._beats = 1000

    async def seen(beats: int) -> list[str]:
        found: list[str] = []
        for _ in range(beats):
            found.append((await here.look(["another"]))["another"])
            here._beats += 1
        return found

    assert await seen(6) == ["seems alive"] * 5 + ["gone"]
    await store.beat("another", "of another machine")
    assert await seen(7) == ["alive"] + ["seems alive"] * 4 + ["gone"] * 2


class Slowly(LockFile):
    """A file that another thread wants as well, in the very moment in which it is opened."""

    def open(self) -> int:
        opens.append(threading.current_thread().name)
        if len(opens) == 1:
            other = threading.Thread(target=looked_at[0].is_held, args=("a", "any"), name="another")
            other.start()
            other.join(0.2)
        return super().open()


opens: list[str] = []
looked_at: list[OwnerLock] = []


class Away(MemoryStore):
    """As PostgreSQL after it was away: it has heard nothing of another owner for longer than is usual."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.failed = 0

    async def beat(self, owner: str, place: str) -> None:
        if self.is_away:
            self.failed += 1
            raise StoreError("away", passing=True)
        await super().beat(owner, place)

    async def owners(self) -> list[OwnerRow]:
        silent = 100.0
        return [msgspec.structs.replace(row, silent=silent) for row in await super().owners()]


@pytest.mark.parametrize("was_away", [True, False])
async def test_a_database_that_was_away_has_heard_nobody(
    monkeypatch: pytest.MonkeyPatch, was_away: bool
) -> None:
    monkeypatch.setattr(engine_owners, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(engine_owners, "SILENT_SECONDS", 90.0)
    store = Away()
    await store.beat("another", "")
    here = Owners(store, busy=lambda: True)
    async with here.working():
        await here.look()
        store.is_away = was_away
        async with asyncio.timeout(60):
            while was_away and not store.failed:
                await asyncio.sleep(0.01)
            store.is_away = False
            while here._beats < 10:
                await asyncio.sleep(0.01)
        assert (await here.look(["another"]))["another"] == ("seems alive" if was_away else "gone")
    await here.release()


async def test_the_row_of_one_that_is_gone_does_not_stay_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_owners, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(engine_owners, "TIDY_BEATS", 10)
    store = MemoryStore()
    await store.beat("another", "of a machine that is gone")
    here = Owners(store, busy=lambda: True)
    async with here.working() as mine, asyncio.timeout(60):
        while [row.id for row in await store.owners()] != [mine]:
            await asyncio.sleep(0.01)
    await here.release()


def test_threads_that_look_at_once_share_one_open_file(tmp_path: Path) -> None:
    looked_at.append(OwnerLock(Slowly(path=tmp_path / "owners")))
    assert looked_at[0].take("a")
    assert "another" not in opens
    looked_at[0].close()


def test_an_owner_with_a_lock_is_held_until_its_file_is_closed_and_by_nothing_else(tmp_path: Path) -> None:
    file = LockFile(path=tmp_path / "owners")
    one, other = OwnerLock(file), OwnerLock(file)
    place = one.take("a")
    assert place
    assert other.is_held("a", place) is True
    assert other.is_held("b", place) is False
    assert other.is_held("a", "another:place") is None
    there, tell = os.pipe()
    child = os.fork()
    if child == 0:  # a fork that outlives its parent does not hold its lock
        os.write(tell, b"!")
        signal.pause()
        os._exit(0)
    try:
        assert os.read(there, 1) == b"!", "it has begun, and let go of what it inherited"
        one.close()
        assert other.is_held("a", place) is False
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(there)
        os.close(tell)
    (tmp_path / "owners").unlink()
    (tmp_path / "owners").symlink_to(tmp_path / "elsewhere")
    assert OwnerLock(file).take("a") == "", "a link is not followed"
    assert not (tmp_path / "elsewhere").exists()


async def test_nobody_tries_to_take_up_what_the_process_of_another_works_on(
    durable_url: str, tmp_path: Path
) -> None:
    """It is known before: nothing is tried that would be refused."""
    tried: list[str] = []

    async def resume(run_id: str, *, message: str | None = None, by_itself: bool = False) -> str:
        tried.append(run_id)
        return run_id

    async def cancel(run_id: str, reason: str) -> bool:
        return False

    store = connect(durable_url)
    await store.open()
    try:
        owners = Owners(store, busy=lambda: False)
        async with holder(durable_url, tmp_path) as process, owners.working():
            take_up = TakeUp(
                store,
                owners,
                cwd=str(tmp_path),
                is_running=lambda root_id: False,
                resume=resume,
                cancel=cancel,
            )
            await take_up.all()
            assert tried == []
            process.kill()
            await process.wait()
            await take_up.all()
            assert tried == ["r0held0"]
        await owners.release()
    finally:
        await store.close()
