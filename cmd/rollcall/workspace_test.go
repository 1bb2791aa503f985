package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

// TestWeightsAreShown: weights are shown, changed and checked. A workspace is given by its name or the beginning of
// its id.
func TestWeightsAreShown(t *testing.T) {
	b := newThrottleBench(t)
	var made admin.Workspace
	b.asks(&made, "workspace", "create", "acme")
	holds(t, b.must("workspace", "weight", made.ID, "3"), "acme  3")
	holds(t, b.must("workspace", "list"), "WEIGHT", "acme  3 ")
	for i, typed := range []string{"acme", "ACME", made.ID[:4], strings.ToUpper(made.ID[:8])} {
		holds(t, b.must("workspace", "weight", typed, strconv.Itoa(i+4)), made.ID, fmt.Sprint("acme  ", i+4))
		holds(t, b.must("credits", "show", "--workspace", typed), "AVAILABLE")
	}
	b.must("workspace", "create", "Acme")
	for typed, want := range map[string]string{"AcMe": "2 workspaces have this name or begin with",
		"x": "there is no workspace"} {
		b.refused(want, "user", "list", "--workspace", typed)
	}
	for _, wrong := range [][]string{{made.ID, "0"}, {made.ID, "101"}, {made.ID, "many"}} {
		b.misused(append([]string{"workspace", "weight"}, wrong...)...)
	}
}

// TestLimitsOfAWorkspaceAreShown: limits are shown and set. The operator log has the author and the reason.
func TestLimitsOfAWorkspaceAreShown(t *testing.T) {
	b := newThrottleBench(t)
	var made admin.Workspace
	b.asks(&made, "workspace", "create", "acme")
	_, _, err := b.book.Create(t.Context(), ledger.NewVerification{ID: uuid.New(), Workspace: uuid.MustParse(made.ID),
		Identity: uuid.New(), Bytes: 3 << 20, BytesMax: 1 << 30, Limits: ledger.Limits{Open: 9, Stored: 1 << 30, Unpaid: 9}})
	effort.OK(t, err)
	limits := func(flags ...string) string {
		t.Helper()
		return b.must(append([]string{"workspace", "limits", made.ID}, flags...)...)
	}
	holds(t, limits(), made.ID+"  acme", "LIMIT                                  VALUE   FROM     USED\n",
		"unfinished verifications               100     default  1\n",
		"stored bytes                           10 GiB  default  3 MiB\n",
		"verifications of 24 h without credits  1,000   default  1\n",
		"weight at receivers                    1       default")
	holds(t, limits("--stored", "1.5TiB", "--open", "1000", "--reason", "contract"),
		"1,000    set ", "1.5 TiB  set      3 MiB\n", "1,000    default  1\n")
	b.must("workspace", "weight", made.ID, "3")
	holds(t, limits("--unpaid", "7"), "1.5 TiB", "7        set   1\n", "3        set")
	var seen admin.WorkspaceLimits
	effort.OK(t, json.Unmarshal([]byte(limits("--default", "--open", "5", "--json")), &seen))
	if want := (admin.WorkspaceLimits{ID: made.ID, Name: "acme", Weight: 3, Open: admin.Limit{Limit: 5, Used: 1},
		Stored: admin.Limit{Limit: 10 << 30, Default: true, Used: 3 << 20},
		Unpaid: admin.Limit{Limit: 1000, Default: true, Used: 1}}); seen != want {
		t.Errorf("got %+v, want %+v", seen, want)
	}
	holds(t, b.must("log"), "anna@desk", "workspace limits", "open=default", "stored=1649267441664", "contract")
	for _, wrong := range [][]string{{made.ID, "--open", "0"}, {made.ID, "--open", "many"},
		{made.ID, "--stored", "10 parsecs"}, {made.ID, "--stored", "-1GiB"}, {made.ID, "--stored", "9999999TiB"},
		{made.ID, "--stored", "NaN"}, {made.ID, "--unpaid", "1.5"}, {made.ID, "--reason", "none"}, {}} {
		b.misused(append([]string{"workspace", "limits"}, wrong...)...)
	}
	b.refused("no such workspace", "workspace", "limits", uuid.NewString())
}

// TestSizesAreReadAsTheyAreWritten reads and writes sizes in every unit.
func TestSizesAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "7B": 7, "2kB": 2000, "2KiB": 2048, "500MB": 500e6,
		"1.5 GiB": 3 << 29,
		"1TiB":    1 << 40, "2TB": 2e12} {
		effort.Is(t, effort.Must(parseSize(text))(t), want, text)
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 3 << 29: "1.5 GiB",
		1 << 50: "1024 TiB"} {
		effort.Is(t, bytesOf(n), want, n)
	}
}

// TestEntriesOfAManySettledFile lists 1,201 entries through a real admin listener: the newest 50, and all entries in
// two pages, as a table and as JSON.
func TestEntriesOfAManySettledFile(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	effort.Unraced(t, "one call after the other")
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
	b := console{t: t, environ: []string{"ROLLCALL_ADMIN=" + url, "ROLLCALL_ADMIN_TOKEN=" + token}, toFile: true}
	show := func(flags ...string) string {
		t.Helper()
		return b.must(append([]string{"credits", "show", "--workspace", d.Workspace.String(), "--verification",
			v.ID.String()}, flags...)...)
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
		err := json.Unmarshal([]byte(text), &s)
		effort.ErrorIf(t, err != nil || len(s.Entries) != want || (s.Next == nil) != asked || s.Count != settled+1,
			"JSON, all %v: %d entries of %d, next %v, %v", asked, len(s.Entries), s.Count, s.Next, err)
	}
}

// TestAStatementThatDoesNotAddUpFails: the error names the next command.
func TestAStatementThatDoesNotAddUpFails(t *testing.T) {
	out := term.NewPage(nil)
	s := statement{admin.Statement{Held: 10, Charged: 6, Released: 1, StillHeld: 2}}
	printStatement(out, s)
	holds(t, out.String(), "held 10 is not charged 6 + ")
	err := s.failsWith()
	effort.ErrorIf(t, !errors.Is(err, errOff) || !strings.Contains(err.Error(), "rollcall audit"), "got %v", err)
}
