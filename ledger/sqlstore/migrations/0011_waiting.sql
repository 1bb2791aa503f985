-- What has waited for credits for too long, by how long: the other index of these begins with the workspace.
CREATE INDEX IF NOT EXISTS verifications_waiting ON verifications (waiting_since) WHERE issue_code = 'credits_required';
