-- How a run stands in one word, what it and everything below it used and went without, and its clock: all that
-- lists show. Until a row is filled from its log it says what it said before.

ALTER TABLE retinue_schema ADD COLUMN filled INTEGER NOT NULL DEFAULT 0;

ALTER TABLE retinue_schema ADD COLUMN fill_after TEXT NOT NULL DEFAULT '';

{added};

UPDATE runs SET outcome = status, began_at = created_at, tree_runs = 1, tree_turns = turns,
    tree_tool_calls = tool_calls, tree_input_tokens = input_tokens, tree_output_tokens = output_tokens,
    tree_cost = cost;

CREATE INDEX runs_by_outcome ON runs (outcome, created_at);
