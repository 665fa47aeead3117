-- Files of workspaces that the log names: whole reports, saved pages. `seq` is the last event of the run
-- when the file was kept.

CREATE TABLE retinue_files (
    root_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    path TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at {double} NOT NULL,
    data {bytes} NOT NULL,
    CONSTRAINT retinue_files_place PRIMARY KEY (root_id, run_id, path)
);
