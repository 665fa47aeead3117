"""Databases of earlier versions, as they were stored: taken over whole, read, gone on with."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pg import server
from retinue.engine.workbooks import kept_workbooks
from retinue.errors import StoreError
from retinue.fold import fold
from retinue.standing import shown
from retinue.store import migrate
from retinue.store.base import RunFilter
from retinue.store.connect import connect
from retinue.story import Story
from retinue.types import ENDED, Usage
from stored_workflows import ROOT, ROOTS, opened

STORED = Path(__file__).parent.parent / "stored"


def restored(url: str, folder: Path, version: int = 1) -> None:
    """Put a stored database at this address. Its runs worked in `folder`, on this machine."""
    dialect = url.partition(":")[0]
    text = (STORED / f"database-{version}.{dialect}.sql").read_text()
    text = text.replace("@folder@", str(folder)).replace("@host@", socket.gethostname())
    if dialect == "sqlite":
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite://"))) as connection:
            connection.executescript(text)
    else:
        script = folder / "dump.sql"
        script.write_text(text)
        server().run(script, url.rpartition("/")[2])
        script.unlink()


def described(url: str) -> str:
    """The shape of every table, as the database itself tells it."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite://"))) as connection:
            rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOTNULL ORDER BY name")
            return "\n".join(f"{name}: {' '.join(sql.split())}" for name, sql in rows)
    questions = (
        "SELECT table_name, column_name, data_type, is_nullable, column_default FROM "
        "information_schema.columns WHERE table_schema = 'public' ORDER BY 1, ordinal_position",
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname",
        "SELECT prosrc FROM pg_proc WHERE proname = 'retinue_append'",
    )
    return "\n".join(server().sql(question, url.rpartition("/")[2]) for question in questions)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture(params=[1, 3])
def old_url(disk_url: str, folder: Path, request: pytest.FixtureRequest) -> str:
    restored(disk_url, folder, request.param)
    return disk_url


async def test_a_stored_database_has_all_it_had_and_the_tables_of_a_new_one(
    old_url: str, tmp_path: Path
) -> None:
    store = connect(old_url)
    await store.open()
    try:
        roots = await store.runs(RunFilter(roots_only=True))
        assert {row.run_id for row in roots} == set(ROOTS)
        for row in roots:
            for run in await store.tree(row.run_id):
                state = fold(await store.events(row.run_id, run_id=run.run_id))
                assert (state.status, state.turns, state.tool_calls) == (
                    run.status,
                    run.turns,
                    run.tool_calls,
                )
        assert [asked.tool for asked in await store.waiting()] == ["mark"]
        assert [signal.kind for signal in await store.signals("shut")] == ["answer"]
        assert sum(total.input_tokens for total in await store.totals("agent")) == 2700
    finally:
        await store.close()
    migrated = described(old_url)
    assert "alembic" not in migrated
    if old_url.startswith("sqlite"):
        fresh = f"sqlite://{tmp_path}/fresh.db"
    else:
        server().sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public", old_url.rpartition("/")[2])
        fresh = old_url
    store = connect(fresh)
    await store.open()
    await store.close()
    assert described(fresh) == migrated


async def test_attached_sheets_of_before_are_kept_with_their_workflow_and_no_others(old_url: str) -> None:
    books = '[{"name":"a.csv","sheets":[]}]'
    for root in ("done", "gone"):
        row = f"INSERT INTO cache VALUES ('workbooks', '{root}', {{}}, 9e12)"
        if old_url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(old_url.removeprefix("sqlite://"))) as connection:
                connection.execute(row.format(f"x'{books.encode().hex()}'"))
                connection.commit()
        else:
            server().sql(row.format(f"'{books}'::bytea"), old_url.rpartition("/")[2])
    store = connect(old_url)
    await store.open()
    try:
        assert [book.name for book in await kept_workbooks(store, "done")] == ["a.csv"]
        assert await kept_workbooks(store, "gone") == []
        assert [await store.cached("workbooks", root) for root in ("done", "gone")] == [None, None]
    finally:
        await store.close()


SHOWN = {
    "done": "completed",
    "talk": "completed",
    "poor": "incomplete",
    "shut": "rejected",
    "fail": "error",
    "stop": "cancelled",
    "asks": "interrupted",
    "half": "interrupted",
}


async def test_the_rows_of_a_stored_database_say_what_their_logs_say(old_url: str, folder: Path) -> None:
    async with opened(old_url, folder) as retinue:
        for root_id in ROOTS:
            story = Story()
            for event in await retinue.store.events(root_id):
                story.apply(event)
            for row in await retinue.store.tree(root_id):
                node = story.nodes[row.run_id]
                assert shown(row.outcome, row.waiting, left=False) == node.outcome
                assert (row.shortfall, row.waiting) == (node.shortfall, node.standing.waiting)
                assert row.seconds(2e9) == pytest.approx(node.seconds(2e9), abs=1e-6)
                used = sum((each.own for each in node.walk()), Usage())
                assert (row.tree_runs, row.tree_tokens) == (len(list(node.walk())), used.total_tokens)
                assert row.tree_cost == pytest.approx(used.cost)
        roots = await retinue.runs(RunFilter(roots_only=True))
        assert {row.run_id: row.outcome for row in roots} == SHOWN
        for outcome in set(SHOWN.values()):
            found = await retinue.runs(RunFilter(roots_only=True, outcome=outcome))  # pyright: ignore[reportArgumentType]
            assert {row.run_id for row in found} == {one for one, word in SHOWN.items() if word == outcome}


async def test_rows_are_filled_some_workflows_at_a_time_and_where_it_was_left(
    old_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, lots = migrate.fill, 0

    def three_lots(*given: Any) -> Any:
        nonlocal lots
        lots += 1
        if lots > 3:
            raise StoreError("pulled the plug")
        return fill(*given)

    monkeypatch.setattr(migrate, "ROOTS_AT_ONCE", 1)
    monkeypatch.setattr(migrate, "fill", three_lots)
    with pytest.raises(StoreError, match="plug"):
        await connect(old_url).open()
    half = sql(old_url, "SELECT filled, fill_after FROM retinue_schema")
    assert half[1] == sorted(ROOTS)[2]
    # What is not filled yet says what it said before, and what is filled says more.
    assert sql(old_url, "SELECT outcome FROM runs WHERE run_id = 'shut'") == ["completed"]
    assert sql(old_url, "SELECT tree_runs FROM runs WHERE run_id = 'done'") == ["4"]
    monkeypatch.setattr(migrate, "fill", fill)
    async with opened(old_url, folder) as retinue:
        roots = await retinue.runs(RunFilter(roots_only=True))
        assert {row.run_id: row.outcome for row in roots} == SHOWN
    assert sql(old_url, "SELECT filled, fill_after FROM retinue_schema") == [str(migrate.newest()), ""]


async def test_a_fill_that_was_left_before_a_newer_version_fills_its_columns_in_every_row(
    old_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process of version 5 leaves it that was stopped while it filled."""
    fill, lots = migrate.fill, 0

    def three_lots(*given: Any) -> Any:
        nonlocal lots
        lots += 1
        if lots > 3:
            raise StoreError("pulled the plug")
        return fill(*given)

    with monkeypatch.context() as then:
        known = [column for column in migrate.columns() if column.how.since <= 5]
        then.setattr(migrate, "columns", lambda: known)
        then.setattr(migrate, "newest", lambda: 5)
        then.setattr(migrate, "ROOTS_AT_ONCE", 1)
        then.setattr(migrate, "fill", three_lots)
        with pytest.raises(StoreError, match="plug"):
            await connect(old_url).open()
    left = sql(old_url, "SELECT version, filled, fill_after FROM retinue_schema")
    assert left[0] == "5"
    assert left[2] == sorted(ROOTS)[2]
    filled: list[str] = []
    refolded = migrate._refolded

    def noted(root_id: str) -> Any:
        filled.append(root_id)
        return refolded(root_id)

    monkeypatch.setattr(migrate, "_refolded", noted)
    async with opened(old_url, folder):
        assert sorted(filled) == sorted(ROOTS)


def sql(url: str, question: str) -> list[str]:
    """The one row of an answer, as texts."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite://"))) as connection:
            return [str(value) for value in connection.execute(question).fetchone()]
    return server().sql(question, url.rpartition("/")[2]).split("|")


async def test_the_workflows_of_a_stored_database_go_on_where_they_stopped(
    old_url: str, folder: Path
) -> None:
    async with opened(old_url, folder, answering="ask") as retinue:
        await retinue.resume("half")
        assert (await retinue.wait("half")).text == "half finished"
        assert (await retinue.store.tree("half"))[1].turns == 2  # what was paid for is not asked again
        await retinue.resume("talk", message="and at last?")
        assert (await retinue.wait("talk")).text == "and at last? finished"
        [asked] = await retinue.approvals()
        assert await retinue.answer(asked.approval_id, "approve")
        await retinue.resume("asks")
        assert (await retinue.wait("asks")).text == "asks finished"
        assert (folder / "marks").read_text() == "k\n"
        assert (await retinue.run(ROOT, "done", run_id="new")).ok
        assert not [row for row in await retinue.runs() if row.status not in ENDED]


async def test_processes_that_find_an_old_database_together_change_it_once(old_url: str) -> None:
    stores = [connect(old_url) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        assert len(await store.runs(RunFilter(roots_only=True))) == len(ROOTS)
        await store.close()


async def test_a_change_that_fails_half_way_leaves_the_database_as_it_was(
    old_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = described(old_url)
    broken = tmp_path / "sql"
    shutil.copytree(migrate.FOLDER, broken)
    last = broken / f"{migrate.newest() + 1:04}_broken.sql"
    last.write_text("CREATE TABLE extra (x INTEGER);\n\nINSERT INTO nowhere VALUES (1);\n")
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "FOLDER", broken)
        with pytest.raises(StoreError, match="nowhere"):
            await connect(old_url).open()
    assert described(old_url) == before
    store = connect(old_url)
    await store.open()
    assert len(await store.runs(RunFilter(roots_only=True))) == len(ROOTS)
    await store.close()


def test_the_steps_have_numbers_without_a_gap() -> None:
    numbers = [int(path.name[:4]) for path in sorted(migrate.FOLDER.glob("[0-9]*.sql"))]
    assert numbers == list(range(1, migrate.newest() + 1))
