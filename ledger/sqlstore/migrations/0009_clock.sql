-- What a node can work on now, by how long it has been due. Those of workspaces that have their share are
-- passed over without a look at the table.
CREATE INDEX IF NOT EXISTS verifications_due ON verifications (wake_at, id, workspace)
	WHERE status IN ('preparing', 'verifying', 'cancelling') OR (status = 'waiting' AND issue_code = '');
-- Its forerunner, which was by another order before migration 6.
DROP INDEX IF EXISTS verifications_runnable;

-- When the ledger was last swept, so that a clock that jumped is noticed before anything is erased. There is one line,
-- for ever.

CREATE TABLE IF NOT EXISTS ledger_clock (
	one   {int} NOT NULL PRIMARY KEY,
	swept {int} NOT NULL,
	CONSTRAINT one_line CHECK (one = 1)
) {keyed};

INSERT INTO ledger_clock (one, swept) VALUES (1, {now}) ON CONFLICT (one) DO NOTHING;
