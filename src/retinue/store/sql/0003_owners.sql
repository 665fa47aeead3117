-- Who works on runs, and that it still lives: `beats` moves every few seconds, `at` is when, by PostgreSQL's
-- clock. `place` is the file that it holds a lock on.

CREATE TABLE retinue_owners (
    id TEXT NOT NULL PRIMARY KEY,
    place TEXT NOT NULL,
    beats BIGINT NOT NULL,
    at {double} NOT NULL
);
