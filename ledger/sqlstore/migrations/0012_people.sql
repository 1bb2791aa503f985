-- Who signs in to the pages: people, what they may do in which workspace, their sessions and one-time links, the sign-ins that
-- failed, and the log that the owners of a workspace read.

CREATE TABLE IF NOT EXISTS users (
	id       {blob} NOT NULL PRIMARY KEY,
	email    TEXT   NOT NULL, -- as it was given
	folded   {blob} NOT NULL, -- the same with A to Z as a to z, as bytes: each database has these in one order
	name     TEXT   NOT NULL,
	password TEXT   NOT NULL, -- a PHC text; empty: none
	oidc     TEXT   NOT NULL DEFAULT '', -- who they are at a provider: issuer and subject; empty: none
	totp     TEXT   NOT NULL DEFAULT '', -- the sealed state of the codes that sign-in asks for; empty: none
	created  {int}  NOT NULL,
	seen     {int}  NOT NULL DEFAULT 0, -- when one of the sessions was used last
	disabled {int}  NOT NULL DEFAULT 0,
	CONSTRAINT email_once UNIQUE (folded)
) {keyed};

-- Who signs in by way of a provider.
CREATE UNIQUE INDEX IF NOT EXISTS users_oidc ON users (oidc) WHERE oidc <> '';

CREATE TABLE IF NOT EXISTS memberships (
	workspace {blob} NOT NULL REFERENCES workspaces (id),
	user_id   {blob} NOT NULL REFERENCES users (id),
	role      TEXT   NOT NULL,
	created   {int}  NOT NULL,
	PRIMARY KEY (workspace, user_id),
	CONSTRAINT role_known CHECK (role IN ('viewer', 'member', 'owner'))
) {keyed};

-- What a user may do.
CREATE INDEX IF NOT EXISTS memberships_user ON memberships (user_id);

CREATE TABLE IF NOT EXISTS user_sessions (
	id      {blob} NOT NULL PRIMARY KEY, -- SHA-256 of the cookie
	user_id {blob} NOT NULL REFERENCES users (id),
	created {int}  NOT NULL,
	seen    {int}  NOT NULL,
	ends    {int}  NOT NULL, -- at the latest, or when it was ended
	agent   TEXT   NOT NULL,
	network TEXT   NOT NULL
) {keyed};

-- Those of a user that hold, and what a sweep forgets.
CREATE INDEX IF NOT EXISTS user_sessions_user ON user_sessions (user_id, ends);
CREATE INDEX IF NOT EXISTS user_sessions_ends ON user_sessions (ends);

CREATE TABLE IF NOT EXISTS links (
	id        {blob} NOT NULL PRIMARY KEY, -- SHA-256 of the token
	purpose   TEXT   NOT NULL,             -- invite, password
	workspace {blob} NOT NULL,             -- of an invitation; otherwise zeros
	email     TEXT   NOT NULL,
	folded    {blob} NOT NULL,             -- as in users
	role      TEXT   NOT NULL,             -- of an invitation
	made_by   TEXT   NOT NULL,
	created   {int}  NOT NULL,
	expires   {int}  NOT NULL, -- as it was made
	ends      {int}  NOT NULL, -- the same, or when it was used or ended
	used_by   {blob} NOT NULL, -- the session that began with it; empty: none did
	CONSTRAINT link_ends_in_its_time CHECK (ends <= expires)
) {keyed};

-- The invitations to a workspace and the links of a person that can be used, and what a sweep forgets.
CREATE INDEX IF NOT EXISTS links_workspace ON links (workspace, ends);
CREATE INDEX IF NOT EXISTS links_folded ON links (folded, ends);
CREATE INDEX IF NOT EXISTS links_ends ON links (ends);

CREATE TABLE IF NOT EXISTS sign_in_attempts (
	subject   {blob} NOT NULL PRIMARY KEY, -- keyed hash of an email and a network, or of one of them
	failures  {int}  NOT NULL,
	since     {int}  NOT NULL,
	refused   {int}  NOT NULL, -- until when; 0: it is not
	ends      {int}  NOT NULL, -- when all of it is forgotten
	last_call {blob} NOT NULL  -- which call counted last, so that none counts twice
) {keyed};

CREATE INDEX IF NOT EXISTS sign_in_attempts_ends ON sign_in_attempts (ends);

-- Without a reference to the workspace: that would read the account's row, which the nodes change all the time.
CREATE TABLE IF NOT EXISTS workspace_log (
	id        {blob} NOT NULL PRIMARY KEY,
	workspace {blob} NOT NULL,
	created   {int}  NOT NULL,
	actor     TEXT   NOT NULL,
	action    TEXT   NOT NULL,
	subject   TEXT   NOT NULL,
	detail    TEXT   NOT NULL
) {keyed};

-- The log of a workspace, newest first: one range read.
CREATE INDEX IF NOT EXISTS workspace_log_newest ON workspace_log (workspace, created, id);

-- Who made and ended what, as the log names an actor; empty: it is of before, or nobody said.
ALTER TABLE verifications ADD COLUMN {absent} made_by TEXT NOT NULL DEFAULT '';
ALTER TABLE api_keys ADD COLUMN {absent} made_by TEXT NOT NULL DEFAULT '';
ALTER TABLE api_keys ADD COLUMN {absent} revoked_by TEXT NOT NULL DEFAULT '';
ALTER TABLE api_keys ADD COLUMN {absent} last_used {int} NOT NULL DEFAULT 0;
