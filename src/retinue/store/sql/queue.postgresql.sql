-- What a `RunQueued` event in the log of a root is in the queue. `dedupe_key` is one job of one workflow. What is
-- parked without a time has no job until it is woken; with a signal that nobody has read, it is not parked.
--
-- Made anew whenever a worker begins, with the name of PgQueuer's table.

-- PgQueuer itself tells its workers of new jobs, and not of those that are due earlier than they were.
CREATE OR REPLACE FUNCTION retinue_call_workers() RETURNS void LANGUAGE sql AS $body$
    SELECT pg_notify('{channel}', json_build_object(
        'channel', '{channel}', 'operation', 'update', 'sent_at', now(), 'table', '{table}',
        'type', 'table_changed_event'
    )::text)
$body$;

CREATE OR REPLACE FUNCTION retinue_enqueue(root text, place integer, event json, wake boolean)
RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    due timestamptz := now();
    job text := root || '/' || place;
BEGIN
    IF coalesce((event ->> 'parked')::boolean, false) AND NOT wake AND NOT EXISTS (
        SELECT 1 FROM letters WHERE root_id = root AND id > coalesce((event ->> 'letters')::bigint, 0)
    ) THEN
        IF event ->> 'until' IS NULL THEN
            RETURN;
        END IF;
        due := to_timestamp((event ->> 'until')::double precision);
    END IF;
    UPDATE {table} SET execute_after = due, updated = now()
        WHERE dedupe_key = job AND status = 'queued' AND execute_after > due;
    IF FOUND THEN
        PERFORM retinue_call_workers();
    END IF;
    INSERT INTO {table} (priority, entrypoint, payload, execute_after, dedupe_key, status)
    VALUES (
        coalesce((event ->> 'priority')::integer, 0), event ->> 'queue', convert_to(job, 'UTF8'), due, job,
        'queued'
    ) ON CONFLICT DO NOTHING;
END
$body$;

-- A signal has come: what is parked goes on. Called with the lock of the workflow, so that nobody queues it, takes
-- it up or parks it meanwhile.

CREATE OR REPLACE FUNCTION retinue_wake(root text) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    queued record;
BEGIN
    IF EXISTS (SELECT 1 FROM runs WHERE run_id = root AND owner = 'queue') THEN
        SELECT e.seq, e.data::json AS event INTO queued FROM events e
            WHERE e.run_id = root AND e.type = 'run_queued' ORDER BY e.seq DESC LIMIT 1;
        PERFORM retinue_enqueue(root, queued.seq, queued.event, true);
    END IF;
END
$body$;

-- What waits for a worker and has no job: PgQueuer deletes one whose handler fails, or that it cannot put back. What is
-- parked without a time has none on purpose, unless a signal has come. Returns how many have one again.

CREATE OR REPLACE FUNCTION retinue_search() RETURNS integer LANGUAGE plpgsql AS $body$
DECLARE
    lost record;
    found integer := 0;
BEGIN
    FOR lost IN
        SELECT r.run_id, e.seq, e.data::json AS event FROM runs r CROSS JOIN LATERAL (
            SELECT seq, data FROM events
            WHERE run_id = r.run_id AND type = 'run_queued' ORDER BY seq DESC LIMIT 1
        ) e
        WHERE r.owner = 'queue' AND r.parent_id IS NULL AND r.completed_at IS NULL AND NOT EXISTS (
            SELECT 1 FROM {table} j
            WHERE j.dedupe_key = r.run_id || '/' || e.seq AND j.status IN ('queued', 'picked')
        )
    LOOP
        PERFORM retinue_enqueue(lost.run_id, lost.seq, lost.event, false);
        IF EXISTS (SELECT 1 FROM {table} WHERE dedupe_key = lost.run_id || '/' || lost.seq) THEN
            found := found + 1;
        END IF;
    END LOOP;
    RETURN found;
END
$body$;

-- The workers there are, as each says of itself every few seconds. Whether one lives is known by its owner's row.

CREATE TABLE IF NOT EXISTS retinue_workers (
    owner TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    folder TEXT NOT NULL,
    labels TEXT[] NOT NULL,
    slots INTEGER NOT NULL,
    at_work INTEGER NOT NULL,
    version TEXT NOT NULL,
    draining BOOLEAN NOT NULL DEFAULT false,
    since TIMESTAMPTZ NOT NULL DEFAULT now(),
    at TIMESTAMPTZ NOT NULL DEFAULT now()
);
