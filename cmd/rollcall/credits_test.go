package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// TestEntriesOfAManySettledFile lists 1,201 entries through a real admin
// listener: the newest 50, and all of them in two pages, as a table and as JSON.
func TestEntriesOfAManySettledFile(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	const settled = 1200
	book := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	d := ledgertest.NewFixture(t, book, settled)
	v, l := d.Prepares(settled)
	for number := int64(1); number <= settled; number++ {
		o := smtp.Valid
		if number > 1000 {
			o = smtp.Unknown
		}
		d.Settles(l, number, number-1, number-1, o)
	}
	url, token := serveAdmin(t, book, admin.Options{})
	show := func(flags ...string) string {
		t.Helper()
		out, _, err := runHere(t.Context(), false, nil, "", append([]string{"credits", "show", "--admin", url, "--token",
			token, "--workspace", d.Workspace.String(), "--verification", v.ID.String()}, flags...)...)
		effort.OK(t, err)
		return out
	}
	const sum = "held 1,200 = charged 1,000 + released 200 + still held 0\n"
	newest, all := show(), show("--all")
	effort.ErrorIf(t, strings.Count(newest, "  release  ") != 50 || !strings.Contains(newest, sum) ||
		!strings.HasSuffix(newest, "\nthe newest 50 of 1,201 entries; --all shows all\n"), "the newest:\n%s", newest)
	if strings.Count(all, "  release  ") != 200 || strings.Count(all, "  charge   ") != 1000 ||
		strings.Count(all, "TIME") != 1 || !strings.Contains(all, sum) || strings.Contains(all, "--all") ||
		!strings.HasSuffix(all, "  hold              -            1,200\n") {
		t.Errorf("all:\n%.500s ... %s", all, all[len(all)-100:])
	}
	for asked, want := range map[bool]int{false: 50, true: settled + 1} {
		var s admin.Statement
		text := show("--json", fmt.Sprintf("--all=%v", asked))
		if err := json.Unmarshal([]byte(text), &s); err != nil || len(s.Entries) != want ||
			(s.Next == nil) != asked || s.Count != settled+1 {
			t.Errorf("JSON, all %v: %d entries of %d, next %v, %v", asked, len(s.Entries), s.Count, s.Next, err)
		}
	}
}

// TestAStatementThatDoesNotAddUpFails and says where to go on.
func TestAStatementThatDoesNotAddUpFails(t *testing.T) {
	out := term.NewPage(nil)
	s := statement{admin.Statement{Held: 10, Charged: 6, Released: 1, StillHeld: 2}}
	printStatement(out, s)
	holds(t, out.String(), "held 10 is not charged 6 + ")
	err := s.failsWith()
	effort.ErrorIf(t, !errors.Is(err, errOff) || !strings.Contains(err.Error(), "rollcall audit"), "got %v", err)
}
