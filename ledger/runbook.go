package ledger

// Invariant is one thing that an audit checks, in words for operators.
type Invariant struct {
	ID    string `json:"id"`    // as in Violation
	Holds string `json:"holds"` // what is true of a sound ledger
	Do    string `json:"do"`    // the first steps when it is not
}

// The invariants without a number.
const (
	InOrder = "settlements" // in their order, by the leases of theirs
	Owned   = "owners"      // what belongs to something belongs to what is there
	Erased  = "erased"      // what was erased is gone in every form
	Bounds  = "bounds"      // what operators change keeps to its bounds
	Paid    = "paid"        // what says that credits were held
	Days    = "days"        // the sums of credits by day
	Storage = "storage"     // the database can be read and is sound
)

// Invariants lists what an audit checks, in the order in which it is told.
func Invariants() []Invariant {
	return []Invariant{
		{"I1", "granted = available + held + spent, for each workspace",
			"The database checks this itself on every write, so the row was changed past it: look for a hand edit " +
				"or a damaged disk. The entries (I3) say what the account must be."},
		{"I2", "no amount is negative, in accounts and in entries",
			"As for I1: the row was changed past the database's own check."},
		{"I3", "each account is what its entries make; each entry is a grant, of a verification or of a correction",
			"The entries are the truth, they are never changed. List them with `rollcall credits show`, find what " +
				"moved the account without one, and correct the workspace: its account becomes what they make. If a " +
				"verification has an entry that does not belong to it, correct the verification."},
		{"I4", "held credits are those of the addresses that are not settled yet",
			"List the entries of the named verification: what they leave held is the truth. Make sure " +
				"that nobody cancels it before its row says the same, since a cancel releases what the row says. When it is over, " +
				"correct the workspace, so that it holds what its verifications hold, and then the verification."},
		{"I5", "a final verification holds nothing",
			"If its entries leave credits held too, nothing will ever move them: grant the workspace as many, with " +
				"the verification's id as the reason. Otherwise only its row is wrong."},
		{"I6", "charged credits are the outcomes that cost one, settlement by settlement",
			"If more was charged than there are outcomes, grant the workspace the difference, with the " +
				"verification's id as the reason. If less was, nothing is owed to the customer."},
		{"I7", "released credits are the unknown outcomes and the cancelled addresses",
			"If less was released, grant the workspace the difference, with the verification's id as the reason."},
		{"I8", "counters fit the settlements and the total, and reach it exactly when final",
			"The customer sees a wrong progress; results and credits may still be right, see I6, I7 and I12. If the " +
				"verification does not end by itself, cancel it once I4 holds for it."},
		{"I9", "no address has two outcomes, and no committed settlement was changed",
			"Take the settlement from the newest backup in which an audit finds nothing, and tell the customer if " +
				"results were downloaded meanwhile."},
		{"I10", "status, time of completion and outcomes fit each other",
			"The row was changed past the program. Its settlements and entries say what happened: compare with the " +
				"newest backup in which an audit finds nothing."},
		{"I11", "a workspace has one verification for each idempotency key",
			"The unique key of the table is gone or damaged. Stop all nodes, since a repeated create may now begin " +
				"a second verification, and restore the schema or a backup."},
		{"I12", "stored results are exactly the outcomes that were counted",
			"The results file of the customer is not complete or not right. Take the settlement from a backup; what " +
				"cannot be had again is owed to the customer: grant the credits of these addresses."},
		{"I13", "uploaded bytes that were acknowledged are stored",
			"The file cannot be read to its end. Cancel the verification, which releases its credits, and have the " +
				"customer upload the file again with a new idempotency key."},
		{InOrder, "settlements are numbered without a gap, by leases that never went back",
			"A settlement is missing or was written by a node whose lease was over. Stop the nodes; take what is " +
				"missing from a backup, and compare the entries of the verification."},
		{Owned, "settlements, evidence, uploads, verifications, weights and limits belong to something that is there",
			"Rows were deleted by hand, or the database lost them. Find the missing row in a backup and put it back."},
		{Erased, "no evidence outlives the results that it is about, and no bytes the upload that is said to be erased",
			"Delete the lines of the named verifications from the table evidence, or upload_chunks, by hand: they are past " +
				"the retention that you promise. Then look into the log for what the sweep says."},
		{Bounds, "weights of workspaces are 1 to 100, limits at least 1; an override has an end, which is not after its time",
			"The row was changed past the database's own check, and the named workspace may be served too much or never, " +
				"or an override may hold for longer than was said. Set the weight or the limits again, or clear the " +
				"override by its id."},
		{Paid, "a verification is marked as paid if credits were ever held for it, and only then",
			"The row was changed past the program. Its entries are the truth: set its column paid to 1 if it has any, " +
				"otherwise to 0. What has entries is never deleted, whatever its mark says."},
		{Days, "the credits of each day and kind are the sum of the entries",
			"The row of credit_days was changed past the program, and statements of credits show it. The entries are the truth: set the " +
				"credits of the named day and kind to the sum of the workspace's entries of that kind and day."},
		{Storage, "the database is sound and every row can be read",
			"Stop the node and keep a copy of its files before anything else. Check the disk, then restore the " +
				"newest backup in which an audit finds nothing. On a database server run its own checks."},
	}
}
