package sqlstore_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// TestMigrateCountsTheDaysThatOlderNodesWroteAnew: after an upgrade node by node the days are those of the entries again,
// and nothing else has changed.
func TestMigrateCountsTheDaysThatOlderNodesWroteAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	server := sqlstore.NewLedger(t)
	for url, change := range map[string]func(statement string){
		"sqlite:" + path: func(statement string) { change(t, path, statement) },
		server:           func(statement string) { changeAt(t, server, statement) },
	} {
		s, err := sqlstore.Open(t.Context(), url, sqlstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := ledgertest.NewDesk(t, s, 9)
		_, l := d.Prepares(3)
		d.Settles(l, 1, 0, 1, smtp.Valid)
		other := ledgertest.NewDesk(t, s, 5)
		q := ledger.StatementQuery{Workspace: d.Workspace, Limit: 9}
		before, err := s.Statement(t.Context(), q)
		if err != nil || before.Days[ledger.StatementDays-1].Spent+before.Days[ledger.StatementDays-2].Spent != 2 {
			t.Fatalf("statement: %+v, %v", before, err)
		}
		// What an older node enters is on no day: today, and yesterday.
		change(`DELETE FROM credit_days WHERE kind = 'charge'; UPDATE credit_days SET credits = credits - 1 WHERE kind = 'hold'`)
		change(`INSERT INTO credit_days SELECT workspace, day - 86400000, 'release', 1 FROM credit_days WHERE kind = 'hold'`)
		report, err := s.Audit(t.Context())
		if err != nil || report.Found != 3 {
			t.Errorf("found %+v, %v", report, err)
		}
		for _, v := range report.Violations {
			if v.Invariant != ledger.Days || v.Subject != "credit_days" || !strings.Contains(v.Detail, fmt.Sprint(d.Workspace)) {
				t.Errorf("found %+v", v)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := sqlstore.Migrate(t.Context(), url); err != nil {
				t.Fatal(err)
			}
		}
		if s, err = sqlstore.Open(t.Context(), url, sqlstore.Options{}); err != nil {
			t.Fatal(err)
		}
		d.Book, other.Book = s, s
		d.Audits()
		if after, err := s.Statement(t.Context(), q); err != nil || fmt.Sprint(after.Days, after.Balance) != fmt.Sprint(before.Days, before.Balance) {
			t.Errorf("after: %+v, %v, before: %+v", after, err, before)
		}
		if other.Account() != (ledger.Balance{Granted: 5, Available: 5}) {
			t.Errorf("the other: %+v", other.Account())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
