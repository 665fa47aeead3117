-- One call, one round trip, one transaction for a whole batch. The lock comes first, in a statement of its
-- own, so that what follows sees every place already given: a follower then never finds a lower place
-- appear behind one it has read. Locks are taken in one order, so that two batches cannot wait for each other.
--
-- Made anew by every migration, with the columns of `runs` as they are declared. To change it, add a step,
-- even an empty one. A process of an earlier version that is still open says nothing of newer columns.

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
    -- What nobody has begun was deleted: its writer is told, and nothing of it is kept.
    IF EXISTS (
        SELECT 1 FROM (
            SELECT DISTINCT ON (g.root) g.root, g.type
            FROM unnest(given_roots, given_types) WITH ORDINALITY AS g(root, type, n) ORDER BY g.root, g.n
        ) AS f WHERE f.type <> 'run_started' AND NOT EXISTS (SELECT 1 FROM events e WHERE e.root_id = f.root)
    ) THEN
        RAISE EXCEPTION 'this workflow was deleted' USING ERRCODE = 'RET01';
    END IF;
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
        INSERT INTO runs ({names})
        SELECT {values}
        FROM json_populate_recordset(NULL::runs, started) AS s ON CONFLICT DO NOTHING;
    END IF;
    IF changed IS NOT NULL THEN
        UPDATE runs AS r SET
            {changes}
        FROM json_to_recordset(changed) AS c(
            run_id text, moved boolean, {types}
        ) WHERE r.run_id = c.run_id;
    END IF;
    PERFORM pg_notify('retinue', g.root) FROM (SELECT DISTINCT unnest(given_roots) AS root) AS g;
    RETURN placed;
END
$body$;
