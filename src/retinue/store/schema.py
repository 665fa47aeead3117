"""The tables, as SQLAlchemy Core describes them: the one place where their shape is decided.

`python -m retinue.store.schema` writes it down in `ddl/`, as the statements that make a new database of
the newest version. Never imported while a run goes on: importing SQLAlchemy costs more than a run's first
turn. A change here needs a migration, a new version in `migrate`, and new files in `ddl/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.schema import CreateIndex, CreateTable

if TYPE_CHECKING:
    from retinue.store.queries import Dialect

metadata = MetaData()

# SQLite keeps a key of its own type only if it is called INTEGER.
_Id = BigInteger().with_variant(Integer, "sqlite")

events = Table(
    "events",
    metadata,
    Column("root_id", Text, nullable=False),
    Column("pos", BigInteger, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("data", Text, nullable=False),
    PrimaryKeyConstraint("root_id", "pos", name="events_place"),
    UniqueConstraint("run_id", "seq", name="events_fence"),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, nullable=False),
    Column("root_id", Text, nullable=False),
    Column("parent_id", Text),
    Column("depth", Integer, nullable=False),
    Column("agent", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("turns", Integer, nullable=False),
    Column("tool_calls", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cost", Double),
    Column("duration_ms", BigInteger),
    Column("summary", Text),
    Column("error", Text),
    Column("cwd", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("completed_at", Double),
    Column("approvals", Text, nullable=False),
    PrimaryKeyConstraint("run_id", name="runs_key"),
    Index("runs_by_time", "created_at"),
    Index("runs_by_root", "root_id", "created_at"),
    Index("runs_by_parent", "parent_id", "created_at"),
    Index("runs_by_status", "status", "created_at"),
    Index("runs_by_agent", "agent", "created_at"),
    # SQLite walks `runs_by_parent` for the roots, PostgreSQL would sort all of them.
    Index("runs_roots", "created_at", postgresql_where=text("parent_id IS NULL")),
)

letters = Table(
    "letters",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("root_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("at", Double, nullable=False),
    UniqueConstraint("root_id", "key", name="letters_once"),
    Index("letters_by_root", "root_id", "id"),
    sqlite_autoincrement=True,
)

cache = Table(
    "cache",
    metadata,
    Column("scope", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", LargeBinary, nullable=False),
    Column("expires", Double, nullable=False),
    PrimaryKeyConstraint("scope", "key", name="cache_key"),
    Index("cache_by_expiry", "expires"),
)

# One call, one round trip, one transaction for a whole batch. The lock comes first, in a statement of its
# own, so that what follows sees every place already given: a follower then never finds a lower place
# appear behind one it has read. Locks are taken in one order, so that two batches cannot wait for each other.
APPEND_FUNCTION = """\
CREATE FUNCTION retinue_append(
    given_roots text[], given_runs text[], given_seqs integer[], given_types text[],
    given_ats double precision[], given_data text[], started json, changed json
) RETURNS bigint[] LANGUAGE plpgsql AS $body$
DECLARE
    placed bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock(locks.lock) FROM (
        SELECT DISTINCT hashtextextended(g.root, 0) AS lock FROM unnest(given_roots) AS g(root) ORDER BY 1
    ) AS locks;
    WITH given AS (
        SELECT * FROM unnest(given_roots, given_runs, given_seqs, given_types, given_ats, given_data)
            WITH ORDINALITY AS g(root_id, run_id, seq, type, at, data, n)
    ), last AS (
        SELECT d.root_id, coalesce((SELECT max(e.pos) FROM events e WHERE e.root_id = d.root_id), 0) AS pos
        FROM (SELECT DISTINCT g.root_id FROM given g) AS d
    ), numbered AS MATERIALIZED (
        SELECT g.*, l.pos + row_number() OVER (PARTITION BY g.root_id ORDER BY g.n) AS pos
        FROM given g JOIN last l ON l.root_id = g.root_id
    ), stored AS (
        INSERT INTO events (root_id, pos, run_id, seq, type, at, data)
        SELECT p.root_id, p.pos, p.run_id, p.seq, p.type, p.at, p.data FROM numbered p ORDER BY p.n
    )
    SELECT array_agg(p.pos ORDER BY p.n) INTO placed FROM numbered p;
    IF started IS NOT NULL THEN
        INSERT INTO runs SELECT * FROM json_populate_recordset(NULL::runs, started) ON CONFLICT DO NOTHING;
    END IF;
    IF changed IS NOT NULL THEN
        UPDATE runs AS r SET
            turns = r.turns + c.turns,
            tool_calls = r.tool_calls + c.tool_calls,
            input_tokens = r.input_tokens + c.input_tokens,
            output_tokens = r.output_tokens + c.output_tokens,
            cost = r.cost + c.cost,
            status = CASE WHEN c.moved THEN c.status ELSE r.status END,
            approvals = CASE WHEN c.moved THEN c.approvals ELSE r.approvals END,
            duration_ms = CASE WHEN c.moved THEN c.duration_ms ELSE r.duration_ms END,
            summary = CASE WHEN c.moved THEN c.summary ELSE r.summary END,
            error = CASE WHEN c.moved THEN c.error ELSE r.error END,
            completed_at = CASE WHEN c.moved THEN c.completed_at ELSE r.completed_at END
        FROM json_to_recordset(changed) AS c(
            run_id text, turns integer, tool_calls integer, input_tokens bigint, output_tokens bigint,
            cost double precision, moved boolean, status text, approvals text, duration_ms bigint,
            summary text, error text, completed_at double precision
        ) WHERE r.run_id = c.run_id;
    END IF;
    PERFORM pg_notify('retinue', g.root) FROM (SELECT DISTINCT unnest(given_roots) AS root) AS g;
    RETURN placed;
END
$body$"""


def statements(dialect: Dialect) -> list[str]:
    """What makes a new database, in order."""
    from sqlalchemy.dialects import postgresql, sqlite

    chosen = sqlite.dialect() if dialect == "sqlite" else postgresql.dialect()
    found: list[str] = []
    for table in metadata.sorted_tables:
        parts: list[CreateTable | CreateIndex] = [CreateTable(table)]
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            if dialect == "postgresql" or index.name != "runs_roots":
                parts.append(CreateIndex(index))
        for part in parts:
            lines = str(part.compile(dialect=chosen)).strip().splitlines()
            found.append("\n".join(line.rstrip().replace("\t", "    ") for line in lines))
    if dialect == "postgresql":
        found.append(APPEND_FUNCTION)
    return found


def main() -> None:
    from retinue.store.migrate import HEAD, ddl_file

    for dialect in ("sqlite", "postgresql"):
        ddl_file(HEAD, dialect).write_text(";\n\n".join(statements(dialect)) + ";\n", "utf-8")


if __name__ == "__main__":
    main()
