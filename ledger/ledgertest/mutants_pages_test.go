package ledgertest_test

const (
	sqlRecent    = "ledger/sqlstore/breakdown.go"
	sqlStatement = "ledger/sqlstore/statement.go"
)

var (
	// days are the tests of the sums of each day.
	days = suite{folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^(TestDaysAddUp.*|TestAuditFindsWhatWasChanged.*)$"}}}
	// breakdowns are the tests of what a breakdown forgets.
	breakdowns = suite{folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^TestABreakdownForgets"}}}
	// shown is the part of the conformance suite about what pages show.
	shown = suite{folder: "./ledger/sqlstore", stages: [][]string{{"-test.run", "^TestConformance$/^sqlite$/^(single|recent|statements|operators)"}}}
)

// ofPages are those of what the pages ask of the ledger.
var ofPages = []mutant{
	{"check of another address", uploadRules, "(v.SingleEmail == address || v.ResultsDeleted)", "(v.SingleEmail != \"\" || v.ResultsDeleted)", shown},
	{"check past its retention is another", uploadRules, "(v.SingleEmail == address || v.ResultsDeleted)", "(v.SingleEmail == address)", shown},
	{"check with the key of a file", uploadRules, "return v.Kind == ledger.Single && v.Bytes", "return v.SingleEmail != \"x\" || v.Bytes", shown},
	{"file with the key of a check", uploadRules, "return v.Kind == ledger.Bulk && v.Bytes", "return v.Bytes", shown},
	{"quote in an address", uploadRules, "strings.ReplaceAll(address, `\"`, `\"\"`)", "strings.ReplaceAll(address, `\"`, `\"`)", shown},
	{"check beyond the limits", uploadRules, "if err := admit(t, n); err != nil {", "if err := admit(t, n); err != nil && single == \"\" {", shown},
	{"check told as a file", uploadRules, "if single != \"\" {", "if single == \"?\" {", shown},
	{"cancel told as a create", uploadRules, "actionCancel = \"verification cancel\"", "actionCancel = \"verification create\"", shown},
	{"granted by nobody", creditRules, "Amount: n, Reason: reason, Author: ledger.Author(ctx)}", "Amount: n, Reason: reason}", shown},
	{"SQL: entries on no day", sqlAccounts, "return t.countOn(dayOf(created[0]), entries)",
		"_ = created\n\treturn nil", shown},
	{"SQL: just the first entry of a day", sqlAccounts, "DO UPDATE SET credits = credit_days.credits + excluded.credits", "DO NOTHING", shown},
	{"SQL: just the last entry of a kind", sqlAccounts, "sums[key] += e.Amount", "sums[key] = e.Amount", days},
	{"days are not audited", sqlAccounts, "HAVING sum(credits) <> 0", "HAVING sum(credits) > 1000", days},
	{"days too high are not audited", sqlAccounts, "HAVING sum(credits) <> 0", "HAVING sum(credits) > 0", days},
	{"a page that looks too far", sqlRecent, "r.page.Looked == ledger.RecentLooked", "r.page.Looked > ledger.RecentLooked", shown},
	{"oldest results first", sqlRecent, "cmp.Compare(r.batch.Times[b], r.batch.Times[a])", "cmp.Compare(r.batch.Times[a], r.batch.Times[b])", shown},
	{"a page from the beginning of its settlement", sqlRecent, "if number != r.next.Settlement {", "if number > 0 {", shown},
	{"a page without the rest of a settlement", sqlRecent, "if r.next.Row >= len(r.order) {", "if r.next.Row > 0 {", shown},
	{"a search that tells cases apart", sqlRecent, "c += 'a' - 'A'", "c += 0", shown},
	{"SQL: results of another outcome", sqlRecent, "` AND count_catch_all > 0`", "` AND count_error > 0`", shown},
	{"a breakdown that hides what it forgot", sqlRecent, "c.forgot = true", "c.forgot = false", breakdowns},
	{"a breakdown that forgets the worst", sqlRecent, "c.byUnknown()[c.most/2:]", "c.byUnknown()[:c.most/2]", breakdowns},
	{"domains as they are spelled", sqlRecent, "smtp.ParseDomain(string(c.folded)); err == nil {", "smtp.ParseDomain(string(c.folded)); err != nil {", shown},
	{"SQL: grants of corrections twice", sqlStatement, "kind = 'grant' AND number = 0`", "kind = 'grant' AND number >= 0`", corrections},
	{"a refund that is not given back", sqlStatement, "e.Released+e.Refunded", "e.Released", corrections},
	{"SQL: moves of files that held nothing", sqlStatement, "AND paid = 1`", "AND paid >= 0`", shown},
	{"a statement with one page more", sqlStatement, "len(st.Moves) > q.Limit\n", "len(st.Moves) >= q.Limit\n", shown},
}
