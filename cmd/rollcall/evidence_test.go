package main

import (
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// witnessRig is an operator's listener over a ledger with one settled file.
type witnessRig struct {
	console
	id   string // of the file
	book *ledgertest.Fixture
}

// newWitnessRig settles cases with the outcomes of the present rules, and one address without evidence.
func newWitnessRig(t *testing.T, cases []evidence.Case) *witnessRig {
	t.Helper()
	folder := t.TempDir()
	book, err := sqlstore.Open(t.Context(), "sqlite:"+filepath.Join(folder, "ledger.db"), sqlstore.Options{})
	effort.OK(t, err)
	d := ledgertest.NewFixture(t, book, 100)
	v, l := d.Prepares(int64(len(cases) + 2))
	s := ledger.Settlement{Lease: l, Number: 1}
	var entries []evidence.Entry
	for i, c := range cases {
		r := ledgertest.OneResult(int64(i), smtp.Valid)
		r.Outcome, r.Reason = verdict.Conclude(c)
		s.Results, entries = append(s.Results, r), append(entries, evidence.Entry{Ordinal: int64(i), Case: c})
	}
	if s.Evidence, err = evidence.Pack(entries); err == nil {
		_, err = d.Settle(t.Context(), s)
	}
	effort.OK(t, err)
	d.Settles(l, 2, int64(len(cases)), int64(len(cases)), smtp.Valid)
	url, token := serveAdmin(t, book, admin.Options{})
	environ := []string{"ROLLCALL_ADMIN=" + url, "ROLLCALL_ADMIN_TOKEN=" + token, "ROLLCALL_DATA_DIR=" + folder}
	return &witnessRig{console: console{t: t, environ: environ}, id: v.ID.String(), book: d}
}

// witnessAt is the time of all replies in these tests.
var witnessAt = time.Date(2026, 11, 20, 20, 15, 0, 123e6, time.UTC)

// shownCases are a refusal after a greylisting, a catch-all, a hostile receiver, and no route.
func shownCases() []evidence.Case {
	at := func(after time.Duration, a evidence.Attempt) evidence.Attempt {
		a.At, a.Host, a.Source, a.TLS = witnessAt.Add(after), "mx1.example.test", "192.0.2.7", true
		if a.Stage == smtp.StageNone {
			a.Stage = smtp.StageRcpt
		}
		verdict.Builtin().Decide(&a)
		return a
	}
	grey := at(0, evidence.Attempt{Code: 450, Enhanced: smtp.EnhancedCode{4, 2, 0}, Text: "greylisted, try later"})
	grey.Cause = evidence.NewCause(evidence.ScopeReceiver, "4 of the last 5 new addresses, of 3 domains, got 450 4.2.0")
	missing := at(5*time.Minute, evidence.Attempt{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Text: "user unknown"})
	good := at(0, evidence.Attempt{Code: 250, Text: "ok"})
	void := good
	void.Void = true
	hostile := at(time.Hour, evidence.Attempt{Code: 554, Text: "\x1b[31mred\x07 " + strings.Repeat("x", 300) +
		" \u202e " + strings.Repeat("many words ", 20)})
	hostile.Host, hostile.Source = strings.Repeat("h", 200)+".example", ""
	gone := at(0, evidence.Attempt{Stage: smtp.StageConnect, Trouble: evidence.TroubleTimeout})
	old := missing
	old.Outcome, old.Reason, old.Blame = smtp.Undecided, smtp.Policy, smtp.BlameNobody
	old.Rule, old.Version = "older", 1
	return []evidence.Case{
		{Attempts: []evidence.Attempt{grey, missing}, Hosts: 2},
		{Attempts: []evidence.Attempt{good}, Hosts: 1, Behaviour: evidence.AcceptBehaviour{
			Accepted: 3, First: witnessAt, Last: witnessAt.Add(17 * time.Second), Controls: []evidence.Attempt{good, good,
				good}}},
		{Attempts: []evidence.Attempt{gone, void, hostile}, Omitted: 1234, Hosts: 1, GaveUp: true, Why: smtp.HarvestGuard},
		{NoRoute: smtp.DomainNotFound},
		{Attempts: []evidence.Attempt{old}, Hosts: 1, GaveUp: true},
	}
}

// TestEvidenceOfAnAddressIsShown: the output fits 80 columns, whatever a receiver wrote.
func TestEvidenceOfAnAddressIsShown(t *testing.T) {
	r := newWitnessRig(t, shownCases())
	for address, want := range map[string][]string{
		"user0@EXAMPLE.test": {"address       user0@example.test\n",
			"outcome       invalid: mailbox_not_found The receiver says",
			"in settlement 1, as address 1", "route         2 hosts\n",
			"2026-11-20T20:15:00.123Z  rcpt      yes  450   4.2.0     ask again\n",
			"2026-11-20T20:20:00.123Z  rcpt      yes  550   5.1.1     invalid\n",
			"    host mx1.example.test, from 192.0.2.7\n", `    "user unknown"`, "to blame: address, by rule ",
			"    probably about the whole receiver: 4 of the last 5 new addresses, of 3\n    domains, got 450 4.2.0\n"},
		"user1@example.test": {"catch_all: accept_all", "3 of 3 control addresses accepted over 17s, the last at",
			"it accepts every address", "\nCONTROL "},
		"user2@example.test": {"given up      because of harvest_guard\n", "1,234 later attempts",
			"The receiver didn't answer in time.", "void: the session", "554   -", "unknown whether it accepts"},
		"user3@example.test": {"route         none, DNS says domain_not_found\n", "no attempt was made"},
		"user5@example.test": {"outcome       valid", "No evidence was kept"},
	} {
		holds(t, r.must("evidence", r.id, address), want...)
	}
	var f admin.Explanation
	r.asks(&f, "evidence", r.id, "user2@example.test")
	effort.ErrorIf(t, f.Case == nil || f.Case.Attempts[2].Text == "" || f.Case.Why != "harvest_guard", "JSON: %+v", f)
	text := r.must("evidence", r.id, "user0@example.test", "--json")
	effort.Is(t, strings.Count(text, `"cause"`), 1, "causes")
	effort.Has(t, text, `{"scope":"receiver","why":"4 of the last 5 new addresses, of 3 domains, got 450 4.2.0"}`)
}

func TestEvidenceThatCannotBeShownSaysWhatToDo(t *testing.T) {
	r := newWitnessRig(t, shownCases())
	const other = "00000000-0000-4000-8000-000000000000"
	for _, c := range []struct {
		args  []string
		words string
		usage bool
	}{
		{[]string{"evidence", r.id, "nobody@example.test"}, "ask again later", false},
		{[]string{"evidence", other, "nobody@example.test"}, "there is no such verification", false},
		{[]string{"replay", other}, "there is no such verification", false},
		{[]string{"evidence", r.id}, "ADDRESS is missing", true},
		{[]string{"evidence", "x", "y"}, "is not an id", true},
		{[]string{"evidence", "00000000", "y"}, "no verification begins with 00000000", false},
		{[]string{"replay", "x"}, "is not an id", true},
		{[]string{"replay", r.id, "--rules", filepath.Join(t.TempDir(), "none.toml")}, "read the rules", false},
	} {
		text, err := r.said(c.args...)
		effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), c.words) || isUsage(err) != c.usage ||
			text != "", "%v: got %v and %q, want %q", c.args, err, text, c.words)
	}
}

// TestReplayIsShown: a replay is shown as lines and as JSON. The exit code is 0 even if verdicts would change.
func TestReplayIsShown(t *testing.T) {
	r := newWitnessRig(t, shownCases())
	before := r.book.Account()
	text := r.must("replay", r.id[:6]) // the beginning of an id is enough
	holds(t, text, "user4@example.test\n    was  unknown, policy, by rule older@00000001\n"+
		"    now  invalid, mailbox_not_found, by rule ", "unknown     invalid                1\n")
	holds(t, unfolded(text), "6 settled addresses", "5 of them with evidence", "4 stay the same", "Nothing was charged")
	effort.Is(t, strings.Count(text, "@example.test"), 1, "more is told")
	effort.Lacks(t, text, "fault", "more is told")
	effort.Is(t, strings.Count(r.must("replay", r.id, "--all"), "@example.test"), 5, "all")
	text = r.must("replay", r.id, "--json", "--all")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var last replayLine
	err := json.Unmarshal([]byte(lines[len(lines)-1]), &last)
	effort.ErrorIf(t, err != nil || len(lines) != 7 || !strings.Contains(lines[0], `{"read":{"ledger":`) ||
		last.Summary == nil || last.Summary.Outcomes != 1, "JSON: %v\n%s", err, text)
	effort.Is(t, r.book.Account(), before, "the account")
}

// candidate is a rule file. By its rule, one receiver's words for an unknown user mean a disabled user.
//
//go:embed testdata/candidate.toml
var candidate string

// TestReplayByACandidate judges by a rule file that no node has, and shows the faults of a bad file.
func TestReplayByACandidate(t *testing.T) {
	effort.Unraced(t, "rules are read, and text")
	t.Parallel()
	r := newWitnessRig(t, shownCases())
	file := filepath.Join(t.TempDir(), "verdict.toml")
	effort.OK(t, os.WriteFile(file, []byte(candidate), 0o600))
	text := r.must("replay", r.id, "--rules", file)
	holds(t, text, "user0@example.test\n", "    now  invalid, mailbox_disabled, by rule tried-out@")
	effort.Has(t, unfolded(text), "1 would have another outcome, 1 another reason")
	effort.OK(t, os.WriteFile(file, []byte(strings.Replace(candidate, `miss =`, `mis =`, 1)), 0o600))
	r.refused("verdict.toml:", "replay", r.id, "--rules", file)
}
