-- The book of record. Times are milliseconds since 1970 by the database's clock, 0 is "never".
-- {blob}, {int}, {strict} and {keyed} are the words in which the databases differ (dialect.go).
-- A migration is run statement by statement, and a crash may repeat any of them (migrate.go): each finds what
-- it did before, and none makes anew, under the same name, what another one removes.

CREATE TABLE IF NOT EXISTS workspaces (
	id        {blob} NOT NULL PRIMARY KEY,
	name      TEXT   NOT NULL,
	created   {int}  NOT NULL,
	granted   {int}  NOT NULL DEFAULT 0,
	available {int}  NOT NULL DEFAULT 0,
	held      {int}  NOT NULL DEFAULT 0,
	spent     {int}  NOT NULL DEFAULT 0,
	CONSTRAINT balance CHECK (available >= 0 AND held >= 0 AND spent >= 0 AND granted = available + held + spent)
) {keyed};

CREATE TABLE IF NOT EXISTS api_keys (
	id        TEXT   NOT NULL PRIMARY KEY,
	workspace {blob} NOT NULL REFERENCES workspaces (id),
	label     TEXT   NOT NULL,
	secret    {blob} NOT NULL, -- SHA-256 of the secret part
	created   {int}  NOT NULL,
	revoked   {int}  NOT NULL DEFAULT 0,
	last_used {int}  NOT NULL DEFAULT 0,
	-- Who made and ended it, as the log names an actor; empty: nobody said.
	made_by    TEXT  NOT NULL DEFAULT '',
	revoked_by TEXT  NOT NULL DEFAULT ''
) {keyed};

CREATE INDEX IF NOT EXISTS api_keys_workspace ON api_keys (workspace, created);

CREATE TABLE IF NOT EXISTS verifications (
	id              {blob} NOT NULL PRIMARY KEY,
	workspace       {blob} NOT NULL REFERENCES workspaces (id),
	identity        {blob} NOT NULL, -- the idempotency key
	kind            TEXT   NOT NULL,
	filename        TEXT   NOT NULL,
	single_email    TEXT   NOT NULL DEFAULT '',
	single_outcome  {int}  NOT NULL DEFAULT 0,
	bytes           {int}  NOT NULL,
	durable         {int}  NOT NULL DEFAULT 0,
	writer          {int}  NOT NULL DEFAULT 0, -- fence of the upload
	upload_expires  {int}  NOT NULL,
	status          TEXT   NOT NULL,
	issue_code      TEXT   NOT NULL DEFAULT '',
	issue_message   TEXT   NOT NULL DEFAULT '',
	issue_row       {int}  NOT NULL DEFAULT 0,
	issue_text      TEXT   NOT NULL DEFAULT '', -- that row, for members of the workspace
	created         {int}  NOT NULL,
	waiting_since   {int}  NOT NULL DEFAULT 0, -- for credits
	completed       {int}  NOT NULL DEFAULT 0,
	records         {int}  NOT NULL DEFAULT 0, -- rows of the file
	duplicates      {int}  NOT NULL DEFAULT 0,
	total           {int}  NOT NULL DEFAULT -1,
	count_valid     {int}  NOT NULL DEFAULT 0,
	count_invalid   {int}  NOT NULL DEFAULT 0,
	count_catch_all {int}  NOT NULL DEFAULT 0,
	count_unknown   {int}  NOT NULL DEFAULT 0,
	count_error     {int}  NOT NULL DEFAULT 0,
	count_cancelled {int}  NOT NULL DEFAULT 0,
	next_try        {int}  NOT NULL DEFAULT 0,
	held            {int}  NOT NULL DEFAULT 0,
	lease_node      {blob},                    -- NULL: nobody
	lease_expires   {int}  NOT NULL DEFAULT 0,
	epoch           {int}  NOT NULL DEFAULT 0,
	settlements     {int}  NOT NULL DEFAULT 0,
	upload_deleted  {int}  NOT NULL DEFAULT 0,
	results_deleted {int}  NOT NULL DEFAULT 0,
	expected        {int}  NOT NULL DEFAULT 0, -- when it is likely to be over
	wake_at         {int}  NOT NULL DEFAULT 0, -- no node takes it before
	crashes         {int}  NOT NULL DEFAULT 0, -- of the actors that worked on it
	paid            {int}  NOT NULL DEFAULT 0, -- 1 once it held credits: the row of one that never did may go
	made_by         TEXT   NOT NULL DEFAULT '', -- as the log names an actor; empty: nobody said
	CONSTRAINT once_for_ever UNIQUE (workspace, identity),
	CONSTRAINT durable_within CHECK (durable >= 0 AND durable <= bytes),
	CONSTRAINT held_not_negative CHECK (held >= 0),
	CONSTRAINT settled_within CHECK (total < 0 OR
		count_valid + count_invalid + count_catch_all + count_unknown + count_error + count_cancelled <= total)
) {strict};

-- History: one range read, with and without the kind.
CREATE INDEX IF NOT EXISTS verifications_history ON verifications (workspace, created, id);
CREATE INDEX IF NOT EXISTS verifications_history_kind ON verifications (workspace, kind, created, id);
-- How many are open in a workspace.
CREATE INDEX IF NOT EXISTS verifications_open ON verifications (workspace) WHERE completed = 0;
-- What a node can work on now, by how long it has been due. Those of workspaces that have their share are
-- passed over without a look at the table.
CREATE INDEX IF NOT EXISTS verifications_due ON verifications (wake_at, id, workspace)
	WHERE status IN ('preparing', 'verifying', 'cancelling') OR (status = 'waiting' AND issue_code = '');
-- What waits for credits, oldest first.
CREATE INDEX IF NOT EXISTS verifications_unfunded ON verifications (workspace, created, id)
	WHERE issue_code = 'credits_required';
-- What has waited for credits for too long, by how long: the other index of these begins with the workspace.
CREATE INDEX IF NOT EXISTS verifications_waiting ON verifications (waiting_since) WHERE issue_code = 'credits_required';
-- What time will end or erase.
CREATE INDEX IF NOT EXISTS verifications_uploading ON verifications (upload_expires) WHERE status = 'uploading';
CREATE INDEX IF NOT EXISTS verifications_uploads_kept ON verifications (completed)
	WHERE completed > 0 AND upload_deleted = 0;
CREATE INDEX IF NOT EXISTS verifications_results_kept ON verifications (completed)
	WHERE completed > 0 AND results_deleted = 0;
-- How many bytes a workspace has stored.
CREATE INDEX IF NOT EXISTS verifications_stored ON verifications (workspace, bytes) WHERE upload_deleted = 0;
-- How many of late never held a credit.
CREATE INDEX IF NOT EXISTS verifications_unpaid ON verifications (workspace, created) WHERE paid = 0;
-- What goes when its time is over.
CREATE INDEX IF NOT EXISTS verifications_unpaid_kept ON verifications (completed) WHERE completed > 0 AND paid = 0;
-- What a refusal or a cancel left of a large file.
CREATE INDEX IF NOT EXISTS verifications_unread ON verifications (completed)
	WHERE completed > 0 AND upload_deleted = 0 AND total < 0;
-- What a node has.
CREATE INDEX IF NOT EXISTS verifications_leased ON verifications (lease_node) WHERE lease_node IS NOT NULL;

CREATE TABLE IF NOT EXISTS upload_chunks (
	verification {blob} NOT NULL REFERENCES verifications (id),
	at_byte      {int}  NOT NULL,
	data         {blob} NOT NULL,
	PRIMARY KEY (verification, at_byte)
) {strict};

-- Verifications whose next work is far away have no node, and a state that any node goes on with.
CREATE TABLE IF NOT EXISTS parked_work (
	verification {blob} NOT NULL PRIMARY KEY REFERENCES verifications (id),
	data         {blob} NOT NULL -- as it came: the ledger does not look inside
) {strict};

CREATE TABLE IF NOT EXISTS settlements (
	verification    {blob} NOT NULL REFERENCES verifications (id),
	number          {int}  NOT NULL,
	epoch           {int}  NOT NULL,
	created         {int}  NOT NULL,
	first_ordinal   {int}  NOT NULL,
	last_ordinal    {int}  NOT NULL,
	count_valid     {int}  NOT NULL,
	count_invalid   {int}  NOT NULL,
	count_catch_all {int}  NOT NULL,
	count_unknown   {int}  NOT NULL,
	count_error     {int}  NOT NULL,
	digest          {blob} NOT NULL, -- SHA-256 of the results, so that a repeat is recognised
	payload         {blob} NOT NULL, -- ledger.EncodeResults; empty after the retention
	PRIMARY KEY (verification, number)
) {strict};

-- How the outcomes of a settlement were judged. A table of its own, so that who reads results never reads
-- past it, also on a database that keeps a row in one piece. There is no line for a settlement without
-- evidence; after the retention of the results there is none either.
CREATE TABLE IF NOT EXISTS evidence (
	verification {blob} NOT NULL,
	number       {int}  NOT NULL,
	data         {blob} NOT NULL, -- as it came: the ledger does not look inside
	PRIMARY KEY (verification, number),
	CONSTRAINT of_a_settlement FOREIGN KEY (verification, number) REFERENCES settlements (verification, number)
) {strict};

-- One line for each movement of credits. The key keeps any from being written twice: the subject of
-- a grant is its own id, of the others their verification; the number is that of the settlement, 0 for
-- hold, grant and the release of a cancelled verification.
CREATE TABLE IF NOT EXISTS entries (
	subject   {blob} NOT NULL,
	number    {int}  NOT NULL,
	kind      TEXT   NOT NULL, -- grant, hold, charge, release
	workspace {blob} NOT NULL REFERENCES workspaces (id),
	amount    {int}  NOT NULL,
	created   {int}  NOT NULL,
	reason    TEXT   NOT NULL DEFAULT '',
	author    TEXT   NOT NULL DEFAULT '', -- of a grant; empty: nobody said
	PRIMARY KEY (subject, number, kind),
	CONSTRAINT amount_positive CHECK (amount > 0)
) {keyed};

-- The grants of a workspace, newest first.
CREATE INDEX IF NOT EXISTS entries_grants ON entries (workspace, created, subject) WHERE kind = 'grant' AND number = 0;

-- The sums of the entries of each day. No reference to the workspace: the entries have one.
CREATE TABLE IF NOT EXISTS credit_days (
	workspace {blob} NOT NULL,
	day       {int}  NOT NULL, -- its beginning: 00:00 UTC by the database's clock
	kind      TEXT   NOT NULL, -- as in entries
	credits   {int}  NOT NULL,
	PRIMARY KEY (workspace, day, kind),
	CONSTRAINT day_begins CHECK (day % 86400000 = 0),
	CONSTRAINT credits_positive CHECK (credits > 0)
) {keyed};

-- What operators have set right. A line is never changed: a mistake in one is another correction.
CREATE TABLE IF NOT EXISTS corrections (
	id        {blob} NOT NULL PRIMARY KEY, -- the subject of its entries
	subject   TEXT   NOT NULL,             -- what the audit named: a workspace, a verification, a table
	number    {int}  NOT NULL,             -- of the corrections of this subject, from 1
	workspace {blob} NOT NULL,             -- in which credits moved; zeros: in none
	created   {int}  NOT NULL,
	author    TEXT   NOT NULL,
	reason    TEXT   NOT NULL,
	findings  TEXT   NOT NULL,             -- JSON: what the audit said, word for word
	CONSTRAINT corrected_in_turn UNIQUE (subject, number)
) {keyed};

CREATE INDEX IF NOT EXISTS corrections_workspace ON corrections (workspace, created, id);

CREATE TABLE IF NOT EXISTS secrets (
	name    TEXT   NOT NULL PRIMARY KEY,
	value   {blob} NOT NULL,
	created {int}  NOT NULL
) {keyed};

CREATE TABLE IF NOT EXISTS operator_log (
	id        {blob} NOT NULL PRIMARY KEY,
	created   {int}  NOT NULL,
	action    TEXT   NOT NULL,
	workspace {blob} NOT NULL,
	subject   TEXT   NOT NULL,
	detail    TEXT   NOT NULL,
	author    TEXT   NOT NULL DEFAULT '',
	old       TEXT   NOT NULL DEFAULT '',
	reason    TEXT   NOT NULL DEFAULT ''
) {keyed};

-- The log, newest first: one range read.
CREATE INDEX IF NOT EXISTS operator_log_newest ON operator_log (created, id);

-- What operators change for a time.
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

-- Only of workspaces for which something was ever set. NULL is the default.
CREATE TABLE IF NOT EXISTS workspace_limits (
	workspace {blob} NOT NULL PRIMARY KEY REFERENCES workspaces (id),
	open      {int},
	stored    {int},
	unpaid    {int},
	CONSTRAINT limits_in_bounds CHECK (open > 0 AND stored > 0 AND unpaid > 0) -- NULL passes
) {keyed};

-- One line for each life of a node.
CREATE TABLE IF NOT EXISTS nodes (
	session      {blob} NOT NULL PRIMARY KEY,
	node         {blob} NOT NULL,
	cluster      TEXT   NOT NULL,
	name         TEXT   NOT NULL,
	version      TEXT   NOT NULL,
	actors       TEXT   NOT NULL, -- host:port
	draining     {int}  NOT NULL,
	started      {int}  NOT NULL,
	current_view {blob} NOT NULL, -- session and node, 16 bytes each, of whom it sees
	before_view  {blob},          -- NULL: there was none
	read_turn    {int}  NOT NULL,
	leases       {int}  NOT NULL,
	addresses    {int}  NOT NULL,
	receivers    {int}  NOT NULL,
	standing     {int}  NOT NULL, -- 0 in, 1 left, 2 lost
	since        {int}  NOT NULL, -- of the standing
	seen         {int}  NOT NULL,
	turn         {int}  NOT NULL, -- of the last publication, or of the end
	dead         {int}  NOT NULL DEFAULT 0,
	drain_asked  {int}  NOT NULL DEFAULT 0,
	silent       {blob}, -- receivers that may hold sessions which it has ended: hashes of keys, 8 bytes each; NULL: none
	CONSTRAINT turn_of_one UNIQUE (turn),
	CONSTRAINT standing_known CHECK (standing >= 0 AND standing <= 2)
) {keyed};

-- The last turn that was taken. There is one line, for ever.
CREATE TABLE IF NOT EXISTS cluster_turn (
	one  {int} NOT NULL PRIMARY KEY,
	turn {int} NOT NULL,
	CONSTRAINT one_line CHECK (one = 1)
) {keyed};

INSERT INTO cluster_turn (one, turn) VALUES (1, 0) ON CONFLICT (one) DO NOTHING;

CREATE TABLE IF NOT EXISTS receiver_facts (
	receiver TEXT   NOT NULL PRIMARY KEY, -- its key
	data     {blob} NOT NULL,
	expires  {int}  NOT NULL,
	updated  {int}  NOT NULL
) {keyed};

-- What a sweep forgets.
CREATE INDEX IF NOT EXISTS receiver_facts_expired ON receiver_facts (expires);

-- When the ledger was last swept, so that a clock that jumped is noticed before anything is erased. There is one line,
-- for ever.
CREATE TABLE IF NOT EXISTS ledger_clock (
	one   {int} NOT NULL PRIMARY KEY,
	swept {int} NOT NULL,
	CONSTRAINT one_line CHECK (one = 1)
) {keyed};

INSERT INTO ledger_clock (one, swept) VALUES (1, {now}) ON CONFLICT (one) DO NOTHING;

-- Who signs in to the pages: people, what they may do in which workspace, their sessions and one-time links, the
-- sign-ins that failed, and the log that the owners of a workspace read.

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
