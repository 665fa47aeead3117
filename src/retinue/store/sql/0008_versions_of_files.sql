-- A file that is kept again has versions: a fork from before has it as it was then.

-- only postgresql: SQLite cannot change the key of a table
ALTER TABLE retinue_files DROP CONSTRAINT retinue_files_place;

-- only postgresql
ALTER TABLE retinue_files ADD CONSTRAINT retinue_files_place PRIMARY KEY (root_id, run_id, path, seq);

-- only sqlite
ALTER TABLE retinue_files RENAME TO retinue_files_before;

-- only sqlite
CREATE TABLE retinue_files (
    root_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    path TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at {double} NOT NULL,
    data {bytes} NOT NULL,
    CONSTRAINT retinue_files_place PRIMARY KEY (root_id, run_id, path, seq)
);

-- only sqlite
INSERT INTO retinue_files SELECT root_id, run_id, path, seq, at, data FROM retinue_files_before;

-- only sqlite
DROP TABLE retinue_files_before;
