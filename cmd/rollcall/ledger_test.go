package main

import (
	"fmt"
	"strings"
	"testing"

	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

// TestLedgerRenew gives a copy of a database its own identity, with the built binary.
func TestLedgerRenew(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	server := postgres.New(t, postgres.Options{})
	url := server.NewDatabase(t, "original", "")
	if err := sqlstore.Migrate(t.Context(), url, func(string) {}); err != nil {
		t.Fatal(err)
	}
	identity := func(url string) string {
		t.Helper()
		book, err := sqlstore.Open(t.Context(), url, sqlstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		id, err := book.Identity(t.Context())
		if err == nil {
			err = book.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return id.String()
	}
	before := identity(url)
	copied := server.NewDatabase(t, "copied", "original")
	if got := identity(copied); got != before {
		t.Fatalf("a copy has the identity %s, the original %s", got, before)
	}
	for _, refused := range []struct {
		url, says string
		code      int
		args      []string
	}{
		{copied, "--reason is missing", exitUsage, nil},
		{copied, "give --yes to renew the ledger postgres://", exitUsage, []string{"--reason", "x"}},
		{"sqlite:" + c.folder + "/ledger.db", "there is nothing to renew", 1, []string{"--reason", "x", "--yes"}},
	} {
		c.environ = []string{"ROLLCALL_LEDGER_URL=" + refused.url, "ROLLCALL_LEDGER_DISK_RESERVE=0"}
		code, stdout, stderr := c.run(append([]string{"ledger", "renew"}, refused.args...)...)
		if code != refused.code || !strings.Contains(stderr, refused.says) {
			t.Errorf("%q: got code %d, %s%s", refused.args, code, stdout, stderr)
		}
	}
	c.environ = []string{"ROLLCALL_LEDGER_URL=" + copied}
	code, stdout, stderr := c.run("ledger", "renew", "--reason", "a rehearsal", "--yes")
	after := identity(copied)
	if want := fmt.Sprintf("\n%s, was %s\n", after, before); code != exitDone || !strings.HasSuffix(stdout, want) ||
		after == before {
		t.Errorf("got code %d, %s%s, want %s", code, stdout, stderr, want)
	}
	if got := identity(url); got != before {
		t.Errorf("the original has the identity %s now, it was %s", got, before)
	}
}
