-- What operators change for a time, who did what and why, and when a verification is expected to be over.

CREATE TABLE IF NOT EXISTS throttle_overrides (
	id      {blob} NOT NULL PRIMARY KEY,
	name    TEXT   NOT NULL, -- of the receiver, suffix, domain or source that it is about
	fields  TEXT   NOT NULL, -- JSON: the ledger does not look inside
	author  TEXT   NOT NULL,
	reason  TEXT   NOT NULL,
	created {int}  NOT NULL,
	expires {int}  NOT NULL, -- as it was set
	ends    {int}  NOT NULL, -- the same, or when it was cleared
	CONSTRAINT ends_in_its_time CHECK (ends <= expires),
	CONSTRAINT expires_after_it_was_created CHECK (expires > created)
) {keyed};

-- Those that hold, which every node asks for each second, whatever is kept of before, and what a sweep
-- forgets. One column says which: of two that depend on each other a planner takes neither for few.
CREATE INDEX IF NOT EXISTS throttle_overrides_ends ON throttle_overrides (ends);

-- Only of workspaces whose weight was ever set. A table of its own, so that who asks for the weights each
-- second reads no account.
CREATE TABLE IF NOT EXISTS workspace_weights (
	workspace {blob} NOT NULL PRIMARY KEY REFERENCES workspaces (id),
	weight    {int}  NOT NULL,
	CONSTRAINT weight_in_bounds CHECK (weight >= 1 AND weight <= 100)
) {keyed};

ALTER TABLE verifications ADD COLUMN {absent} expected {int} NOT NULL DEFAULT 0;

ALTER TABLE operator_log ADD COLUMN {absent} author TEXT NOT NULL DEFAULT '';
ALTER TABLE operator_log ADD COLUMN {absent} old    TEXT NOT NULL DEFAULT '';
ALTER TABLE operator_log ADD COLUMN {absent} reason TEXT NOT NULL DEFAULT '';

-- The log, newest first: one range read.
CREATE INDEX IF NOT EXISTS operator_log_newest ON operator_log (created, id);
