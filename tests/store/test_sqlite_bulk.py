"""Many rows by one statement: stored as if they had come one by one, and by few statements."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from runlog import Log

from retinue.events import Event
from retinue.store import sqlite_bulk, sqlite_file
from retinue.store.connect import connect
from retinue.store.projection import Ancestry
from retinue.store.rows import PLACE, encoded


def crowd(count: int) -> list[list[Event]]:
    """A root with so many children, in three parts as they come together: begun, at work, ended."""
    root = Log("root", at=1.5)
    children = [Log(f"child{n}", root_id="root", parent_id="root", at=n / 8) for n in range(count)]
    return [
        [root.start(), *(child.start() for child in children)],
        [event for c in children for event in (c.step(), c.reply(), c.call(), c.result(), c.ask())],
        [child.finish(text=f"answer {n}") for n, child in enumerate(children)],
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 255, 256, 257, 700])
async def test_a_crowd_that_comes_together_is_stored_as_if_each_came_alone(
    tmp_path: Path, count: int
) -> None:
    together, alone = connect(f"sqlite://{tmp_path}/log.db"), connect("memory:")
    await asyncio.gather(together.open(), alone.open())
    try:
        for part in crowd(count):
            await together.append(part)
        for part in crowd(count):
            for event in part:
                await alone.append([event])
        stored = await together.tree("root")
        assert len(stored) == count + 1
        assert stored == await alone.tree("root")
        assert await together.waiting("root") == await alone.waiting("root")
    finally:
        await asyncio.gather(together.close(), alone.close())


def test_a_thousand_children_take_a_few_statements(tmp_path: Path) -> None:
    """Between two statements the thread waits for Python's lock: what counts is how many there are."""
    connection = sqlite_file.open_for_writing(tmp_path / "log.db", busy_seconds=5)
    made: list[str] = []
    connection.set_trace_callback(made.append)
    place, ancestry = 0, Ancestry()
    for part in crowd(1000):
        rows = encoded(part)
        for row in rows:
            place += 1
            row[PLACE] = place
        connection.execute("BEGIN")
        sqlite_bulk.insert(connection, rows)
        sqlite_bulk.project(connection, [part], ancestry)
        connection.execute("COMMIT")
    stored = connection.execute("SELECT count(*), max(pos) FROM events").fetchone()
    connection.set_trace_callback(None)
    assert stored == (7001, 7001)
    assert runs_by_status(connection) == {"running": 1, "completed": 1000}
    assert len(made) < 80, "some 7,000 events and 3,000 changes of rows"
    connection.close()


def runs_by_status(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT status, count(*) FROM runs GROUP BY status").fetchall())
