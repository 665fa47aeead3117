"""How SQLite goes about each question: by an index, whatever the size of the log."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pytest

from retinue.store import migrate, queries
from retinue.store.base import RunFilter


@pytest.mark.parametrize(
    ("which", "index"),
    [
        ({}, "runs_by_time"),
        ({"before": 5.0, "before_id": "x"}, "runs_by_time (created_at<?)"),
        ({"roots_only": True}, "runs_by_parent (parent_id=?)"),
        (
            {"roots_only": True, "before": 5.0, "before_id": "x"},
            "runs_by_parent (parent_id=? AND created_at<?)",
        ),
        ({"status": "waiting", "before": 5.0}, "runs_by_status (status=? AND created_at<?)"),
        ({"agent": "a", "since": 1.0}, "runs_by_agent (agent=? AND created_at>?)"),
        ({"root_id": "r"}, "runs_by_root (root_id=?)"),
        ({"parent_id": "r"}, "runs_by_parent (parent_id=?)"),
        ({"id_prefix": "r", "roots_only": True}, "sqlite_autoindex_runs_1 (run_id>? AND run_id<?)"),
    ],
)
def test_a_list_of_runs_walks_an_index(which: dict[str, Any], index: str) -> None:
    plan = planned(queries.runs("sqlite", RunFilter(**which)))
    assert plan[0].endswith(f"INDEX {index}")
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan or "id_prefix" in which


def test_events_questions_and_old_workflows_are_found_by_key() -> None:
    for query in (
        queries.events("r", after=1, run_id=None, limit=5),
        queries.events("r", after=1, run_id="x", limit=5),
        queries.tail("r", limit=5, run_id=None),
        queries.tail("r", limit=5, run_id="x"),
        queries.count("r", run_id=None),
        queries.old_roots(5.0, limit=5),
    ):
        plan = planned(query)
        assert not [step for step in plan if step.startswith("SCAN") or "TEMP B-TREE" in step], plan
    assert "SEARCH e USING INDEX sqlite_autoindex_events_2 (run_id=? AND seq=?)" in planned(
        queries.waiting("sqlite", None)
    )


def planned(query: queries.Query) -> list[str]:
    """How SQLite would go about it."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for number in range(1, migrate.newest() + 1):
            for statement in migrate.statements(number, "sqlite"):
                connection.execute(statement)
        sql = "EXPLAIN QUERY PLAN " + query.sql.replace("$", "?")
        return [row[3] for row in connection.execute(sql, query.params)]
