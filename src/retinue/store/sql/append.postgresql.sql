-- One call, one round trip, one transaction for a whole batch. The lock comes first, in a statement of its
-- own, so that what follows sees every place already given: a follower then never finds a lower place
-- appear behind one it has read. Locks are taken in one order, so that two batches cannot wait for each other.
--
-- Made anew by every migration. To change it, add one, if only an empty one.

CREATE OR REPLACE FUNCTION retinue_append(
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
