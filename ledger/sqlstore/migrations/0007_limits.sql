-- What bounds a workspace, and what of it may be deleted when it is over.

-- Only of workspaces for which something was ever set. NULL is the default.
CREATE TABLE IF NOT EXISTS workspace_limits (
	workspace {blob} NOT NULL PRIMARY KEY REFERENCES workspaces (id),
	open      {int},
	stored    {int},
	unpaid    {int},
	CONSTRAINT limits_in_bounds CHECK (open > 0 AND stored > 0 AND unpaid > 0) -- NULL passes
) {keyed};

-- 1 once it held credits. What never did moved no money, so that its row may go.
ALTER TABLE verifications ADD COLUMN {absent} paid {int} NOT NULL DEFAULT 0;
