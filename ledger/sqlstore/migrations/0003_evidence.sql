-- How the outcomes of a settlement were judged. A table of its own, so that who reads results never reads
-- past it, also on a database that keeps a row in one piece. There is no line for a settlement without
-- evidence, such as all of before this migration; after the retention of the results there is none either.

CREATE TABLE IF NOT EXISTS evidence (
	verification {blob} NOT NULL,
	number       {int}  NOT NULL,
	data         {blob} NOT NULL, -- as it came: the ledger does not look inside
	PRIMARY KEY (verification, number),
	CONSTRAINT of_a_settlement FOREIGN KEY (verification, number) REFERENCES settlements (verification, number)
) {strict};
