-- What migration 7 added a column for.

UPDATE verifications SET paid = 1
	WHERE EXISTS (SELECT 1 FROM entries WHERE subject = verifications.id);

-- How many bytes a workspace has stored.
CREATE INDEX IF NOT EXISTS verifications_stored ON verifications (workspace, bytes) WHERE upload_deleted = 0;
-- How many of late never held a credit.
CREATE INDEX IF NOT EXISTS verifications_unpaid ON verifications (workspace, created) WHERE paid = 0;
-- What goes when its time is over.
CREATE INDEX IF NOT EXISTS verifications_unpaid_kept ON verifications (completed) WHERE completed > 0 AND paid = 0;
-- What a refusal or a cancel left of a large file.
CREATE INDEX IF NOT EXISTS verifications_unread ON verifications (completed)
	WHERE completed > 0 AND upload_deleted = 0 AND total < 0;
