"""Saving what is readable of a damaged file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from runlog import Log

from retinue.errors import StoreError
from retinue.store import sqlite_file
from retinue.store.base import RunFilter, Signal
from retinue.store.salvage import salvage
from retinue.store.sqlite import SqliteStore

PAGE = 4096


async def filled(path: Path) -> int:
    """Thirty finished runs, some of whose events are larger than a page; how many events that is."""
    store = SqliteStore(path)
    await store.open()
    written = 0
    for n in range(30):
        log = Log(f"run{n:02}")
        size = 40_000 if n % 7 == 0 else 600
        events = [
            log.start(f"task {n}"),
            *(log.result("ü" * (size // 2)) for _ in range(6)),
            log.reply(),
            log.finish(),
        ]
        await store.append(events)
        written += len(events)
    await store.send(Signal(root_id="run00", run_id="run00", kind="message", key="k", body="hello", at=1.0))
    await store.close()
    return written


async def test_a_sound_file_is_saved_whole(tmp_path: Path) -> None:
    written = await filled(tmp_path / "a.db")
    saved = salvage(tmp_path / "a.db", tmp_path / "b.db")
    assert (saved.events, saved.runs, saved.letters, saved.incomplete) == (written, 30, 1, ())
    one, two = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "b.db")
    await one.open()
    await two.open()
    assert await one.runs(RunFilter()) == await two.runs(RunFilter())
    for n in range(30):
        assert await one.events(f"run{n:02}") == await two.events(f"run{n:02}")
    assert await one.signals("run00") == await two.signals("run00")
    await one.close()
    await two.close()


@pytest.mark.parametrize("seed", range(6))
async def test_of_a_file_with_damaged_pages_the_rest_is_saved(tmp_path: Path, seed: int) -> None:
    path, to = tmp_path / "a.db", tmp_path / "b.db"
    written = await filled(path)
    data = bytearray(path.read_bytes())
    chance = random.Random(seed)
    for page in chance.sample(range(12, len(data) // PAGE), 6):
        data[page * PAGE : page * PAGE + 64] = chance.randbytes(64)
    path.write_bytes(data)
    saved = salvage(path, to)
    assert written / 3 < saved.events <= written
    assert sqlite_file.check(to) == []
    assert path.read_bytes() == data
    store = SqliteStore(to)
    await store.open()
    found = 0
    for n in range(30):
        events = await store.events(f"run{n:02}")
        assert [event.pos for event in events] == list(range(1, len(events) + 1))
        whole = [event.seq for event in events] == list(range(1, len(events) + 1))
        assert whole != (f"run{n:02}" in saved.incomplete)
        found += len(events)
    assert found == saved.events
    assert len(await store.runs(RunFilter(limit=100))) == saved.runs
    await store.append([Log("new").start()])
    await store.close()


@pytest.mark.parametrize("lost", ["header", "page one", "first pages"])
async def test_a_file_without_its_index_of_tables_is_read_page_by_page(tmp_path: Path, lost: str) -> None:
    path, to = tmp_path / "a.db", tmp_path / "b.db"
    written = await filled(path)
    data = bytearray(path.read_bytes())
    size = {"header": 100, "page one": PAGE, "first pages": 3 * PAGE}[lost]
    data[:size] = b"\0" * size
    path.write_bytes(data)
    saved = salvage(path, to)
    assert saved.events == written
    assert saved.runs == 30
    assert saved.incomplete == ()


async def test_what_is_still_in_the_write_ahead_log_is_saved_too(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    await store.open()
    log = Log("r")
    await store.append([log.start(), log.reply()])
    copy = tmp_path / "copy.db"
    copy.write_bytes(b"\0" * PAGE + path.read_bytes()[PAGE:])
    (tmp_path / "copy.db-wal").write_bytes((tmp_path / "a.db-wal").read_bytes())
    await store.close()
    assert salvage(copy, tmp_path / "b.db").events == 2


async def test_nothing_is_overwritten(tmp_path: Path) -> None:
    await filled(tmp_path / "a.db")
    (tmp_path / "b.db").write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        salvage(tmp_path / "a.db", tmp_path / "b.db")
    assert (tmp_path / "b.db").read_text() == "mine"
    with pytest.raises(StoreError, match="there is no database"):
        salvage(tmp_path / "none.db", tmp_path / "c.db")


async def test_of_a_file_that_never_was_a_database_nothing_is_saved(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"notes\n" * 5000)
    assert salvage(tmp_path / "a.db", tmp_path / "b.db").events == 0
    (tmp_path / "empty.db").touch()
    assert salvage(tmp_path / "empty.db", tmp_path / "c.db").events == 0
