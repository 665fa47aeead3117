-- Events, the runs computed from them, letters, a cache.
-- `key` is a word of SQL in some versions of both databases, so it is quoted.

CREATE TABLE cache (
    scope TEXT NOT NULL,
    "key" TEXT NOT NULL,
    value {bytes} NOT NULL,
    expires {double} NOT NULL,
    CONSTRAINT cache_key PRIMARY KEY (scope, "key")
);

CREATE INDEX cache_by_expiry ON cache (expires);

CREATE TABLE events (
    root_id TEXT NOT NULL,
    pos BIGINT NOT NULL,
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    at {double} NOT NULL,
    data TEXT NOT NULL,
    CONSTRAINT events_place PRIMARY KEY (root_id, pos),
    CONSTRAINT events_fence UNIQUE (run_id, seq)
);

CREATE TABLE letters (
    id {id},
    root_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    "key" TEXT NOT NULL,
    body TEXT NOT NULL,
    at {double} NOT NULL,
    CONSTRAINT letters_once UNIQUE (root_id, "key")
);

CREATE INDEX letters_by_root ON letters (root_id, id);

CREATE TABLE runs (
    {runs},
    CONSTRAINT runs_key PRIMARY KEY (run_id)
);

CREATE INDEX runs_by_agent ON runs (agent, created_at);

CREATE INDEX runs_by_parent ON runs (parent_id, created_at);

CREATE INDEX runs_by_root ON runs (root_id, created_at);

CREATE INDEX runs_by_status ON runs (status, created_at);

CREATE INDEX runs_by_time ON runs (created_at);

-- only postgresql: SQLite walks `runs_by_parent` for the roots, PostgreSQL would sort all of them
CREATE INDEX runs_roots ON runs (created_at) WHERE parent_id IS NULL;
