-- The book of record. Times are milliseconds since 1970 by the database's clock, 0 is "never".
-- {blob}, {int}, {strict}, {keyed} and {absent} are the words in which the databases differ (dialect.go).
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
	revoked   {int}  NOT NULL DEFAULT 0
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
-- What a node can work on, oldest first.
CREATE INDEX IF NOT EXISTS verifications_runnable ON verifications (created, id)
	WHERE status IN ('preparing', 'verifying', 'cancelling') OR (status = 'waiting' AND issue_code = '');
-- What waits for credits, oldest first.
CREATE INDEX IF NOT EXISTS verifications_unfunded ON verifications (workspace, created, id)
	WHERE issue_code = 'credits_required';
-- What time will end or erase.
CREATE INDEX IF NOT EXISTS verifications_uploading ON verifications (upload_expires) WHERE status = 'uploading';
CREATE INDEX IF NOT EXISTS verifications_uploads_kept ON verifications (completed) WHERE completed > 0 AND upload_deleted = 0;
CREATE INDEX IF NOT EXISTS verifications_results_kept ON verifications (completed) WHERE completed > 0 AND results_deleted = 0;
-- What a node has.
CREATE INDEX IF NOT EXISTS verifications_leased ON verifications (lease_node) WHERE lease_node IS NOT NULL;

CREATE TABLE IF NOT EXISTS upload_chunks (
	verification {blob} NOT NULL REFERENCES verifications (id),
	at_byte      {int}  NOT NULL,
	data         {blob} NOT NULL,
	PRIMARY KEY (verification, at_byte)
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
	PRIMARY KEY (subject, number, kind),
	CONSTRAINT amount_positive CHECK (amount > 0)
) {keyed};

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
	detail    TEXT   NOT NULL
) {keyed};
