-- The processes of a cluster, the counter of their turns, and what was learned about receivers.

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
