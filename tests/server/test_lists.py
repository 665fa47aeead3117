"""Lists of runs: as many questions to the database for one run as for a hundred, and no log is read."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "store"))
from api import serving
from runlog import Log

from retinue.app import Retinue
from retinue.store.base import RunFilter
from retinue.store.sqlite import SqliteStore
from retinue.testing import ScriptedModel

ASKED: list[str] = []


class Telling(sqlite3.Connection):
    """Says what it is asked."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        ASKED.append(sql)
        return super().execute(sql, *values)


@pytest.fixture(autouse=True)
def nothing_asked() -> Iterator[None]:
    ASKED.clear()
    yield
    ASKED.clear()


async def plant(store: SqliteStore, count: int) -> None:
    """So many trees: a third has ended, a third waits, a third was left, each by a process of its own."""
    for number in range(count):
        root = Log(f"r{number}")
        child = Log(f"c{number}", root_id=f"r{number}", parent_id=f"r{number}")
        await store.append([root.start(owner=f"o{number}"), child.start(owner=f"o{number}"), child.step()])
        if number % 3 == 0:
            await store.append([child.reply(), child.finish(), root.finish()])
        elif number % 3 == 1:
            await store.append([child.ask()])


def questions() -> list[str]:
    found = [sql for sql in ASKED if sql.lstrip().startswith("SELECT")]
    ASKED.clear()
    return found


@pytest.mark.parametrize("outcome", [None, "interrupted", "completed"])
async def test_a_list_asks_the_same_whatever_its_length(tmp_path: Path, outcome: Any) -> None:
    asked: dict[int, list[str]] = {}
    for count in (3, 60):
        store = SqliteStore(tmp_path / f"{count}.db", factory=Telling)
        async with Retinue(db=store, model=ScriptedModel([]), cwd=tmp_path, environ={}) as retinue:
            await plant(store, count)
            questions()
            rows = await retinue.runs(RunFilter(outcome=outcome, limit=500))
            asked[count] = questions()
            expected = {None: 2 * count, "completed": 2 * count // 3, "interrupted": 4 * count // 3}
            assert len(rows) == expected[outcome]
    assert asked[3] == asked[60]
    assert len(asked[60]) <= 5
    logs = [sql for sql in asked[60] if re.search(r"\bdata\b", sql)]
    assert not logs, "a list reads no log"


async def test_the_list_of_the_api_asks_what_a_list_asks(tmp_path: Path) -> None:
    asked: dict[int, int] = {}
    for count in (3, 60):
        store = SqliteStore(tmp_path / f"{count}.db", factory=Telling)
        async with serving(ScriptedModel([]), tmp_path, db=store, resume=False) as api:
            await plant(store, count)
            questions()
            page = await api.get("runs?children=1&limit=200")
            asked[count] = len(questions())
            assert len(page["runs"]) == 2 * count
    assert asked[3] == asked[60] <= 4
