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
