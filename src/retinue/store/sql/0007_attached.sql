-- Attached workbooks are kept with the files of their workflow, and go with it. They were in the cache before,
-- where those of workflows that are gone go now.

INSERT INTO retinue_files (root_id, run_id, path, seq, at, data)
    SELECT r.run_id, 'attached', 'workbooks', 0, r.created_at, c.value
    FROM cache AS c JOIN runs AS r ON r.run_id = c."key"
    WHERE c.scope = 'workbooks';

DELETE FROM cache WHERE scope = 'workbooks';
