"""The SQLite file: private, checked before use, and plain words when something is wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from runlog import Log

from retinue.errors import StoreError
from retinue.store import migrate, sqlite_file
from retinue.store.connect import connect
from retinue.store.sqlite import SqliteStore


@contextlib.asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


async def filled(path: Path, runs: int = 20) -> None:
    async with opened(path) as store:
        for n in range(runs):
            log = Log(f"r{n}")
            await store.append([log.start(), *(log.result(f"{n} " * 500) for _ in range(10)), log.finish()])


async def test_a_new_file_and_its_folder_are_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "log.db"
    async with opened(path) as store:
        await store.append([Log("r").start()])
        assert mode(path) == "0o600"
        assert mode(path.with_name("log.db-wal")) == "0o600"
        assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == "0o700"


async def test_a_python_with_an_old_sqlite_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.26.0")
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
    with pytest.raises(StoreError, match=r"SQLite 3\.26\.0, and at least 3\.33\.0 is needed"):
        async with opened(tmp_path / "log.db"):
            pass
    assert not list(tmp_path.iterdir())


async def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    async with opened(folder / "log.db"):
        assert mode(folder) == "0o755"


async def test_processes_that_make_the_same_file_at_once_all_succeed(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "log.db") for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.append([Log(f"r{n}").start()]) for n, store in enumerate(stores)))
    assert len([1 for n in range(8) if await stores[0].run(f"r{n}")]) == 8
    for store in stores:
        await store.close()


async def test_a_newer_database_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE retinue_schema SET version = 999")
    connection.close()
    with pytest.raises(StoreError) as caught:
        await SqliteStore(path).open()
    assert str(caught.value) == (
        f"{path} has version 999, this Retinue knows up to {migrate.newest()}: "
        "upgrade with 'pip install -U retinue'"
    )


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE theirs (x)"],
        [
            "CREATE TABLE alembic_version (version_num TEXT)",
            "INSERT INTO alembic_version VALUES ('ae1027a6acf')",
        ],
        ["CREATE TABLE alembic_version (version_num TEXT)", "INSERT INTO alembic_version VALUES ('0001')"],
    ],
)
async def test_the_file_of_another_program_is_left_alone(tmp_path: Path, statements: list[str]) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        await SqliteStore(path).open()
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["text", "header", "page one"])
async def test_a_damaged_file_is_reported_and_not_touched(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "log.db"
    await filled(path)
    data = bytearray(path.read_bytes())
    if damage == "text":
        data = bytearray(b"these are my notes, not a database\n" * 200)
    elif damage == "header":
        data[0:16] = os.urandom(16)
    else:
        data[100:4096] = b"\xff" * 3996
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"log\.db is (?:damaged|no SQLite database).* 'retinue doctor"):
        await SqliteStore(path).open()
    assert path.read_bytes() == data
    assert sqlite_file.check(path)


async def test_damage_found_while_reading_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await filled(path)
    data = bytearray(path.read_bytes())
    for page in range(30, len(data) // 4096):
        data[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    path.write_bytes(data)
    async with opened(path) as store:
        with pytest.raises(StoreError, match="is damaged"):
            await asyncio.gather(*(store.events(f"r{n}") for n in range(20)))


async def test_a_sound_file_has_nothing_wrong(tmp_path: Path) -> None:
    await filled(tmp_path / "log.db")
    assert sqlite_file.check(tmp_path / "log.db") == []
    assert sqlite_file.check(tmp_path / "none.db") == []


async def test_a_lock_of_another_program_is_waited_for_then_reported(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path, busy_seconds=0.2) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        log = Log("r")
        futures = [store.append([log.start()]), store.append([Log("s").start()])]
        for future in futures:
            with pytest.raises(StoreError, match=r"locked by another program for 0.2 s.*Close"):
                await future
        assert await store.events("r") == [], "reading goes on all the while"
        other.execute("COMMIT")
        other.close()
        await store.append([Log("r").start()])


async def test_a_lock_that_passes_is_not_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path, busy_seconds=20) as store:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        future = store.append([Log("r").start()])
        done, _ = await asyncio.wait([future], timeout=0.1)
        assert not done
        other.execute("COMMIT")
        await future
        other.close()


async def test_a_locked_file_cannot_be_opened_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    other.execute("CREATE TABLE x (y)")
    with pytest.raises(StoreError, match="locked by another program"):
        await SqliteStore(path, busy_seconds=0.2).open()
    other.close()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "retinue-test", str(folder)]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(command, check=False).returncode:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_disk_is_reported_and_writing_goes_on_once_there_is_space(tiny_disk: Path) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"x" * 1_500_000)
    async with opened(tiny_disk / "log.db", hold=0.2) as store:
        log = Log("r")
        await store.append([log.start()])
        with pytest.raises(StoreError, match=r"no space left for the database .*log\.db.*Free some space"):
            await store.append([log.result("x" * 200_000) for _ in range(10)])
        assert await store.count("r") == 1
        log.seq = 1
        store.hold_for(None)
        away = asyncio.Event()
        store.on_outage(lambda now: away.set())
        waiting = store.append([log.resume(), log.result("x" * 1_200_000)])
        await away.wait()
        assert not waiting.done()
        ballast.unlink()
        await waiting
        assert await store.count("r") == 3
    assert sqlite_file.check(tiny_disk / "log.db") == []


async def test_a_disk_that_is_full_before_it_is_opened_is_called_full_and_the_file_not_damaged(
    tiny_disk: Path, tmp_path: Path
) -> None:
    path = tiny_disk / "log.db"
    async with opened(path) as store:
        await store.append([Log("r").start()])
    ballast = tiny_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    full = r"no space left for the database .*log\.db: \d+ KB are free on its disk, and 1,024 KB are needed"
    with pytest.raises(StoreError, match=full):
        await SqliteStore(path).open()
    with pytest.raises(StoreError, match=full):
        sqlite_file.check(path)
    ballast.unlink()
    assert sqlite_file.check(path) == []


async def test_a_folder_without_rights_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match=r"cannot write to the database .*Make its folder writable"):
        await SqliteStore(tmp_path / "file" / "log.db").open()
    with pytest.raises(StoreError, match="cannot write to the database"):
        await SqliteStore("/proc/retinue/log.db").open()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="retinue-test-") as folder:
        yield Path(folder)
        Path(folder).chmod(0o700)


@pytest.mark.parametrize("what", ["folder", "file"])
async def test_a_file_that_may_not_be_written_is_named(open_folder: Path, what: str) -> None:
    """In a process of an ordinary user, since root may do anything."""
    path = open_folder / "log.db"
    if what == "file":
        await filled(path, runs=1)
        path.chmod(0o444)
    open_folder.chmod(0o555)
    code = (
        "import asyncio, os\n"
        "from retinue.store.sqlite import SqliteStore\n"
        "asyncio.run(asyncio.to_thread(int))\n"  # loads what it needs while it may read it
        "if os.geteuid() == 0: os.setuid(65534)\n"
        f"asyncio.run(SqliteStore({str(path)!r}).open())\n"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert f"StoreError: cannot write to the database {path}" in done.stderr


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_a_run_is_started_and_listed_without_loading_what_it_does_not_need(tmp_path: Path, url: str) -> None:
    code = (
        "import asyncio, sys\n"
        "from runlog import Log\n"
        "from retinue.store.base import RunFilter\n"
        "from retinue.store.connect import connect\n"
        "async def main():\n"
        f"    store = connect({url!r} if {url!r} == 'memory:' else {str(tmp_path / 'log.db')!r})\n"
        "    await store.open()\n"
        "    await store.append([Log('r').start()])\n"
        "    print(len(await store.runs(RunFilter())), len(await store.totals('day')))\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
        "print(sorted({'asyncpg', 'pydantic', 'aiohttp', 'rich'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["1 1", "[]"]


async def test_compacting_gives_space_back_to_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await filled(path, runs=60)
    before = path.stat().st_size
    async with opened(path) as store:
        for n in range(50):
            await store.delete(f"r{n}")
        assert await store.size() < before / 2
        await store.compact()
        assert path.stat().st_size < before / 2
        assert await store.count("r55") == 12


async def test_an_event_of_a_newer_form_is_reported_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await filled(path, runs=1)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute('UPDATE events SET data = \'{"type": "from_the_future"}\' WHERE pos = 3')
        connection.commit()
    async with opened(path) as store:
        assert len(await store.events("r0", limit=2)) == 2
        with pytest.raises(StoreError, match=r"event 3 in .*log\.db cannot be read"):
            await store.events("r0")


async def test_a_program_that_forgets_to_close_still_ends(tmp_path: Path) -> None:
    code = (
        "import asyncio\n"
        "from retinue.store.connect import connect\n"
        "async def main():\n"
        f"    store = connect({str(tmp_path / 'log.db')!r})\n"
        "    await store.open()\n"
        "    store.subscribe('r', lambda: None)\n"
        "asyncio.run(main())\n"
        "print('ended')\n"
    )
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


async def test_connecting_with_an_address_opens_that_file(tmp_path: Path) -> None:
    store = connect(f"sqlite://{tmp_path}/log.db")
    await store.open()
    await store.close()
    assert (tmp_path / "log.db").is_file()
