"""Every question that is put to a database, in the SQL that SQLite and PostgreSQL share.

Parameters are written `$1`, `$2`, …, as PostgreSQL wants them; SQLite takes the same text with `?1`. Lists
page by key, never by offset, and each `ORDER BY` has an index to walk, so the first page costs the same
whether there are a hundred runs or a hundred thousand.

The contract suite runs each of these on both databases.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, NamedTuple

import msgspec

from retinue.standing import OPEN
from retinue.store.base import KeptFile, Left, OldRoot, OwnerRow, RunFilter, RunRow, Signal, Totals, TotalsBy
from retinue.types import Outcome

Dialect = Literal["sqlite", "postgresql"]

RUN_FIELDS = RunRow.__struct_fields__
_RUN = ", ".join(RUN_FIELDS)
SAME = tuple(name for name in RunFilter.__struct_fields__ if name in RUN_FIELDS and name != "outcome")
"""Filters that are named like a column: what it must be."""


_GIVEN: dict[Dialect, str] = {
    "sqlite": "IN (SELECT value FROM json_each($1))",
    "postgresql": "= ANY($1::text[])",
}
"""One of those that are given as the first value."""


class Query(NamedTuple):
    sql: str
    params: tuple[Any, ...] = ()


class Where:
    """Conditions joined by AND, their values numbered as they come."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.params: list[Any] = []

    def value(self, value: Any) -> str:
        self.params.append(value)
        return f"${len(self.params)}"

    def add(self, column: str, sign: str, value: Any) -> None:
        if value is not None:
            self.conditions.append(f"{column} {sign} {self.value(value)}")

    def __str__(self) -> str:
        return " WHERE " + " AND ".join(self.conditions) if self.conditions else ""


def events(root_id: str, *, after: int, run_id: str | None, limit: int | None) -> Query:
    where = Where()
    if run_id is None:
        where.add("root_id", "=", root_id)
        where.add("pos", ">", after)
        order = "pos"
    else:
        # Of one run: by its own key. Within a run seq and pos rise together.
        where.add("run_id", "=", run_id)
        if after:
            where.add("+pos", ">", after)
        order = "seq"
    limited = "" if limit is None else f" LIMIT {where.value(limit)}"
    return Query(f"SELECT pos, data FROM events{where} ORDER BY {order}{limited}", tuple(where.params))  # noqa: S608  # only names and $n


def tail(root_id: str, *, limit: int, run_id: str | None) -> Query:
    """The last events, newest first."""
    key, order, value = ("root_id", "pos", root_id) if run_id is None else ("run_id", "seq", run_id)
    sql = f"SELECT pos, data FROM events WHERE {key} = $1 ORDER BY {order} DESC LIMIT $2"  # noqa: S608  # only names
    return Query(sql, (value, limit))


def taken(root_id: str) -> Query:
    """The event by which a workflow was begun, taken up or queued last."""
    sql = (
        "SELECT pos, data FROM events WHERE run_id = $1 AND type IN "
        "('run_started', 'run_resumed', 'run_queued') ORDER BY seq DESC LIMIT 1"
    )
    return Query(sql, (root_id,))


def count(root_id: str, *, run_id: str | None) -> Query:
    if run_id is None:  # places have no gaps
        return Query("SELECT coalesce(max(pos), 0) FROM events WHERE root_id = $1", (root_id,))
    return Query("SELECT count(*) FROM events WHERE run_id = $1", (run_id,))


def run(run_id: str) -> Query:
    return Query(f"SELECT {_RUN} FROM runs WHERE run_id = $1", (run_id,))  # noqa: S608  # only names


def tree(root_id: str) -> Query:
    sql = f"SELECT {_RUN} FROM runs WHERE root_id = $1 ORDER BY created_at, depth, run_id"  # noqa: S608  # only names
    return Query(sql, (root_id,))


ABOVE: dict[Dialect, str] = {
    dialect: (
        f"WITH RECURSIVE above AS (SELECT run_id, parent_id FROM runs WHERE run_id {given} "  # noqa: S608  # a constant
        "UNION SELECT r.run_id, r.parent_id FROM runs AS r JOIN above AS a ON r.run_id = a.parent_id) "
        "SELECT run_id, parent_id FROM above"
    )
    for dialect, given in _GIVEN.items()
}
"""Runs, everything above them, and the parent of each."""


def runs(dialect: Dialect, which: RunFilter) -> Query:
    where = Where()
    for name in SAME:
        where.add(name, "=", getattr(which, name))
    if which.id_prefix and dialect == "sqlite":  # a stretch of the key's index
        where.add("run_id", ">=", which.id_prefix)
        where.add("run_id", "<", which.id_prefix + "\U0010ffff")
    elif which.id_prefix:
        where.conditions.append(f"starts_with(run_id, {where.value(which.id_prefix)})")
    if which.roots_only:  # SQLite would rather read all roots than a few ids; the sign keeps it from it
        sign = "+" if which.id_prefix and dialect == "sqlite" else ""
        where.conditions.append(f"{sign}parent_id IS NULL")
    if which.among is not None:
        where.conditions.append(_among(dialect, "run_id", where.value(_list(dialect, which.among))))
    if which.outcome is not None:
        where.conditions.append(_stands(dialect, where, which.outcome, which.left))
    where.add("created_at", ">=", which.since)
    if which.before is not None and which.before_id is not None:
        mark = f"({where.value(which.before)}, {where.value(which.before_id)})"
        where.conditions.append(f"(created_at, run_id) < {mark}")
    else:
        where.add("created_at", "<", which.before)
    for name, value in which.metadata.items():
        if dialect == "sqlite":
            path = where.value(f'$."{name}"')
            where.add(f"json_extract(metadata_json, {path})", "=", value)
        else:
            where.add(f"metadata_json::jsonb ->> {where.value(name)}::text", "=", value)
    # Of a tree whose cost is not known, what is known of the run itself.
    where.add("coalesce(tree_cost, cost)", ">=", which.min_cost)
    if which.text:
        pattern = where.value(like(which.text))
        sign = "LIKE" if dialect == "sqlite" else "ILIKE"  # both take no notice of capitals
        where.conditions.append(
            f"(task {sign} {pattern} ESCAPE '\\' OR summary {sign} {pattern} ESCAPE '\\')"
        )
    limit = where.value(which.limit)
    sql = f"SELECT {_RUN} FROM runs{where} ORDER BY created_at DESC, run_id DESC LIMIT {limit}"  # noqa: S608  # only names and $n
    return Query(sql, tuple(where.params))


_OPEN = "outcome IN ({})".format(", ".join(f"'{one}'" for one in OPEN))


def _is_left(dialect: Dialect, where: Where, left: Left) -> str:
    """Of a run that has not ended: whether nobody works on it."""
    owners = _among(dialect, "owner", where.value(_list(dialect, left.owners)))
    working = _among(dialect, "root_id", where.value(_list(dialect, left.working)))
    return f"({owners} AND NOT {working})"


def _among(dialect: Dialect, column: str, given: str) -> str:
    return f"{column} {_GIVEN[dialect].replace('$1', given)}"


def _list(dialect: Dialect, values: Collection[str]) -> Any:
    """Values as `_GIVEN` takes them."""
    return list(values) if dialect == "postgresql" else msgspec.json.encode(list(values)).decode()


def _stands(dialect: Dialect, where: Where, outcome: Outcome, left: Left) -> str:
    """Whether this is what is shown of a run: `standing.shown` in SQL, so written that an index finds it."""
    if outcome == "interrupted":
        return f"{_OPEN} AND {_is_left(dialect, where, left)}"
    if outcome not in OPEN:
        return f"outcome = {where.value(outcome)}"
    waits = f"{_OPEN} AND waiting > 0" if outcome == "waiting" else f"outcome = '{outcome}' AND waiting = 0"
    return f"{waits} AND NOT {_is_left(dialect, where, left)}"


def open_owners() -> Query:
    return Query(f"SELECT DISTINCT owner FROM runs WHERE {_OPEN}")  # noqa: S608  # constants


def last_at(dialect: Dialect, root_ids: Collection[str]) -> Query:
    given = "json_each($1)" if dialect == "sqlite" else "unnest($1::text[]) AS g(value)"
    last = "SELECT at FROM events WHERE root_id = value ORDER BY pos DESC LIMIT 1"
    return Query(f"SELECT value, ({last}) FROM {given}", (_list(dialect, root_ids),))  # noqa: S608  # only names


def like(text: str) -> str:
    """A pattern that finds this very text."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


_DAY: dict[Dialect, str] = {
    "sqlite": "strftime('%Y-%m-%d', created_at + $1, 'unixepoch')",
    "postgresql": "to_char(to_timestamp(created_at + $1) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
}


TOTALS_FIELDS = (
    "key",
    "runs",
    "unpriced",
    "cost",
    "turns",
    "tool_calls",
    "input_tokens",
    "output_tokens",
    "duration_ms",
)


def totals(dialect: Dialect, by: TotalsBy, *, since: float | None, utc_offset: float, left: Left) -> Query:
    where = Where()
    key: str = by
    if by == "day":
        where.value(float(utc_offset))
        key = _DAY[dialect]
    elif by == "outcome":
        is_left = _is_left(dialect, where, left)
        key = (
            f"CASE WHEN NOT {_OPEN} THEN outcome WHEN {is_left} THEN 'interrupted' "
            "WHEN waiting > 0 THEN 'waiting' ELSE outcome END"
        )
    where.add("created_at", ">=", since)
    order = "1" if by == "day" else "4 DESC, 2 DESC, 1"
    sums = ", ".join(
        f"CAST(coalesce(sum({column}), 0) AS bigint)"
        for column in ("turns", "tool_calls", "input_tokens", "output_tokens", "duration_ms")
    )
    sql = (
        f"SELECT {key}, count(*), count(*) - count(cost), coalesce(sum(cost), 0.0), {sums} "  # noqa: S608  # only names and $n
        f"FROM runs{where} GROUP BY 1 ORDER BY {order}"
    )
    return Query(sql, tuple(where.params))


def waiting(dialect: Dialect, root_id: str | None) -> Query:
    where = Where()
    where.conditions.append("r.status = 'waiting'")
    where.conditions.append("r.approvals <> ''")
    where.add("r.root_id", "=", root_id)
    if dialect == "sqlite":  # which keeps to the order of a CROSS JOIN: each question by its own key
        asked = "json_each(r.approvals) AS a CROSS JOIN events AS e"
        seq = "a.value"
    else:
        asked = "LATERAL json_each_text(r.approvals::json) AS a CROSS JOIN events AS e"
        seq = "a.value::integer"
    where.conditions.append(f"e.run_id = r.run_id AND e.seq = {seq}")
    sql = f"SELECT e.pos, e.data FROM runs AS r CROSS JOIN {asked}{where} ORDER BY e.at, e.root_id, e.pos"  # noqa: S608  # only names and $n
    return Query(sql, tuple(where.params))


def old_roots(before: float, *, limit: int | None) -> Query:
    """A root, its last event and how many there are: the last place is the number, as there are no gaps."""
    where = Where()
    where.conditions.append("r.parent_id IS NULL")
    where.add("r.created_at", "<", before)
    where.add("e.at", "<", before)
    limited = "" if limit is None else f" LIMIT {where.value(limit)}"
    sql = (
        "SELECT r.run_id, r.status, r.created_at, e.at, e.pos FROM runs AS r JOIN events AS e "  # noqa: S608  # only names and $n
        "ON e.root_id = r.run_id AND e.pos = (SELECT max(pos) FROM events WHERE root_id = r.run_id)"
        f"{where} ORDER BY r.created_at{limited}"
    )
    return Query(sql, tuple(where.params))


SIGNAL_FIELDS = ("id", "root_id", "run_id", "kind", "key", "body", "at")
_SIGNAL = ", ".join(SIGNAL_FIELDS)
SIGNALS = f"SELECT {_SIGNAL} FROM letters WHERE root_id = $1 AND id > $2 ORDER BY id"  # noqa: S608  # only names
SIGNAL = f"SELECT {_SIGNAL} FROM letters WHERE root_id = $1 AND key = $2"  # noqa: S608  # only names
SEND = (
    "INSERT INTO letters (root_id, run_id, kind, key, body, at) VALUES ($1, $2, $3, $4, $5, $6) "
    "ON CONFLICT (root_id, key) DO NOTHING"
)

FILE_FIELDS = ("root_id", "run_id", "path", "seq", "at", "data")
KEPT = (
    f"SELECT {', '.join(FILE_FIELDS)} FROM retinue_files "  # noqa: S608  # only names
    "WHERE root_id = $1 AND ($2 = '' OR run_id = $2) ORDER BY at, run_id, path, seq"
)
KEEP = (
    f"INSERT INTO retinue_files ({', '.join(FILE_FIELDS)}) VALUES ($1, $2, $3, $4, $5, $6) "  # noqa: S608  # only names
    "ON CONFLICT (root_id, run_id, path, seq) DO UPDATE SET at = excluded.at, data = excluded.data"
)
STRAYS = (
    "SELECT f.root_id FROM retinue_files AS f WHERE f.at < $1 "
    "AND NOT EXISTS (SELECT 1 FROM events AS e WHERE e.root_id = f.root_id) "
    "UNION SELECT l.root_id FROM letters AS l WHERE l.at < $1 "
    "AND NOT EXISTS (SELECT 1 FROM events AS e WHERE e.root_id = l.root_id) "
    "UNION SELECT d.root_id FROM (SELECT DISTINCT root_id FROM events) AS d WHERE NOT EXISTS "
    "(SELECT 1 FROM events AS e WHERE e.run_id = d.root_id AND e.seq = 1) AND NOT EXISTS "
    "(SELECT 1 FROM events AS e WHERE e.root_id = d.root_id AND e.at >= $2) ORDER BY 1"
)
"""The log of a workflow has its beginning, or nothing of it was ever to stay."""
UNKEEP = "DELETE FROM retinue_files WHERE root_id = $1 AND run_id = $2 AND path = $3 AND seq = $4"

CACHED = "SELECT value, expires FROM cache WHERE scope = $1 AND key = $2 AND expires > $3"
CACHE = (
    "INSERT INTO cache (scope, key, value, expires) VALUES ($1, $2, $3, $4) "
    "ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value, expires = excluded.expires"
)
FORGET = "DELETE FROM cache WHERE expires <= $1"

_OF_A_WORKFLOW = ("events", "runs", "letters", "retinue_files")
DELETE = tuple(f"DELETE FROM {table} WHERE root_id = $1" for table in _OF_A_WORKFLOW)  # noqa: S608  # only names


def record(values: Any) -> RunRow:
    """A row of one of the queries above for runs."""
    return msgspec.convert(dict(zip(RUN_FIELDS, values, strict=True)), RunRow)


OWNERS: dict[Dialect, str] = {
    "sqlite": "SELECT id, beats, place, NULL FROM retinue_owners",
    # A database that was away heard nobody: silence counts from when it was back.
    "postgresql": (
        "SELECT id, beats, place, extract(epoch FROM clock_timestamp())::double precision - "
        "greatest(at, extract(epoch FROM pg_postmaster_start_time())::double precision) FROM retinue_owners"
    ),
}
_NOW: dict[Dialect, str] = {"sqlite": "0", "postgresql": "extract(epoch FROM clock_timestamp())"}
RELEASE = "DELETE FROM retinue_owners WHERE id = $1"


def beat(dialect: Dialect) -> str:
    now = _NOW[dialect]
    return (
        f"INSERT INTO retinue_owners (id, place, beats, at) VALUES ($1, $2, 1, {now}) "  # noqa: S608  # a constant
        f"ON CONFLICT (id) DO UPDATE SET beats = retinue_owners.beats + 1, at = {now}"
    )


def owner(row: Any) -> OwnerRow:
    return OwnerRow(id=row[0], beats=row[1], place=row[2], silent=row[3])


def kept_file(values: Any) -> KeptFile:
    return KeptFile(**dict(zip(FILE_FIELDS, values, strict=True)))


def signal(values: Any) -> Signal:
    return msgspec.convert(dict(zip(SIGNAL_FIELDS, values, strict=True)), Signal)


def total(values: Any) -> Totals:
    return msgspec.convert(dict(zip(TOTALS_FIELDS, values, strict=True)), Totals)


def old_root(values: Any) -> OldRoot:
    return msgspec.convert(dict(zip(OldRoot.__struct_fields__, values, strict=True)), OldRoot)
