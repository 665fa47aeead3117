CREATE TABLE cache (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    value BYTEA NOT NULL,
    expires DOUBLE PRECISION NOT NULL,
    CONSTRAINT cache_key PRIMARY KEY (scope, key)
);

CREATE INDEX cache_by_expiry ON cache (expires);

CREATE TABLE events (
    root_id TEXT NOT NULL,
    pos BIGINT NOT NULL,
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    data TEXT NOT NULL,
    CONSTRAINT events_place PRIMARY KEY (root_id, pos),
    CONSTRAINT events_fence UNIQUE (run_id, seq)
);

CREATE TABLE letters (
    id BIGSERIAL NOT NULL,
    root_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT letters_once UNIQUE (root_id, key)
);

CREATE INDEX letters_by_root ON letters (root_id, id);

CREATE TABLE runs (
    run_id TEXT NOT NULL,
    root_id TEXT NOT NULL,
    parent_id TEXT,
    depth INTEGER NOT NULL,
    agent TEXT NOT NULL,
    label TEXT NOT NULL,
    task TEXT NOT NULL,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    turns INTEGER NOT NULL,
    tool_calls INTEGER NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cost DOUBLE PRECISION,
    duration_ms BIGINT,
    summary TEXT,
    error TEXT,
    cwd TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    completed_at DOUBLE PRECISION,
    approvals TEXT NOT NULL,
    CONSTRAINT runs_key PRIMARY KEY (run_id)
);

CREATE INDEX runs_by_agent ON runs (agent, created_at);

CREATE INDEX runs_by_parent ON runs (parent_id, created_at);

CREATE INDEX runs_by_root ON runs (root_id, created_at);

CREATE INDEX runs_by_status ON runs (status, created_at);

CREATE INDEX runs_by_time ON runs (created_at);

CREATE INDEX runs_roots ON runs (created_at) WHERE parent_id IS NULL;

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
$body$;
