-- Verifications whose next work is far away have no node, and a state that any node goes on with.

ALTER TABLE verifications ADD COLUMN {absent} wake_at {int} NOT NULL DEFAULT 0; -- no node takes it before
ALTER TABLE verifications ADD COLUMN {absent} crashes {int} NOT NULL DEFAULT 0; -- of the actors that worked on it

CREATE TABLE IF NOT EXISTS parked_work (
	verification {blob} NOT NULL PRIMARY KEY REFERENCES verifications (id),
	data         {blob} NOT NULL -- as it came: the ledger does not look inside
) {strict};

-- What has work is due since it was created. Once only: a later run would wake what was parked meanwhile.
UPDATE verifications SET wake_at = created
	WHERE wake_at = 0 AND status IN ('preparing', 'verifying', 'cancelling', 'uploading', 'waiting');
