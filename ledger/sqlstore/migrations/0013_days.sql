-- What the pages tell of credits: the sums of each day, who made a grant, and what moved credits in a workspace.

-- The sums of the entries. No reference to the workspace: the entries have one.
CREATE TABLE IF NOT EXISTS credit_days (
	workspace {blob} NOT NULL,
	day       {int}  NOT NULL, -- its beginning: 00:00 UTC by the database's clock
	kind      TEXT   NOT NULL, -- as in entries
	credits   {int}  NOT NULL,
	PRIMARY KEY (workspace, day, kind),
	CONSTRAINT day_begins CHECK (day % 86400000 = 0),
	CONSTRAINT credits_positive CHECK (credits > 0)
) {keyed};

-- Who made a grant; empty: nobody said, or an older version wrote it.
ALTER TABLE entries ADD COLUMN {absent} author TEXT NOT NULL DEFAULT '';

-- The grants and the corrections of a workspace, newest first.
CREATE INDEX IF NOT EXISTS entries_grants ON entries (workspace, created, subject) WHERE kind = 'grant' AND number = 0;
CREATE INDEX IF NOT EXISTS corrections_workspace ON corrections (workspace, created, id);

INSERT INTO credit_days (workspace, day, kind, credits)
	SELECT workspace, created - created % 86400000, kind, CAST(sum(amount) AS BIGINT) FROM entries
	GROUP BY workspace, created - created % 86400000, kind
	ON CONFLICT (workspace, day, kind) DO NOTHING;
