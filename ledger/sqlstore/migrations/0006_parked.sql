-- Verifications whose next work is far away have no node, and a state that any node goes on with.

ALTER TABLE verifications ADD COLUMN wake_at {int} NOT NULL DEFAULT 0; -- no node takes it before
ALTER TABLE verifications ADD COLUMN crashes {int} NOT NULL DEFAULT 0; -- of the actors that worked on it

CREATE TABLE parked_work (
	verification {blob} NOT NULL PRIMARY KEY REFERENCES verifications (id),
	data         {blob} NOT NULL -- as it came: the ledger does not look inside
) {strict};

-- What a node can work on now, by how long it has been due. Those of workspaces that have their share are
-- passed over without a look at the table.
UPDATE verifications SET wake_at = created WHERE status IN ('preparing', 'verifying', 'cancelling', 'uploading', 'waiting');
DROP INDEX verifications_runnable;
CREATE INDEX verifications_runnable ON verifications (wake_at, id, workspace)
	WHERE status IN ('preparing', 'verifying', 'cancelling') OR (status = 'waiting' AND issue_code = '');
