package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
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
	t    *testing.T
	path string // of the ledger
	id   string // of the file
	args []string
	desk *ledgertest.Fixture
}

// newWitnessRig settles cases, as the rules of now conclude, and one address without evidence.
func newWitnessRig(t *testing.T, cases []evidence.Case) *witnessRig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	book, err := sqlstore.Open(t.Context(), "sqlite:"+path, sqlstore.Options{})
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
	return &witnessRig{t: t, path: path, id: v.ID.String(), desk: d, args: []string{"--admin", url, "--token", token}}
}

// run runs a command of the operator in this process.
func (r *witnessRig) run(args ...string) (string, error) {
	r.t.Helper()
	where := r.args
	if args[0] == "replay" { // only the ledger has what it reads
		where = []string{"--ledger", "sqlite:" + r.path}
	}
	out, errs, err := runHere(r.t.Context(), true, nil, "", append(args, where...)...)
	fits(r.t, out+errs, term.Columns)
	return out + errs, err
}

// witnessAt is when everything here was answered.
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

// TestEvidenceOfAnAddressIsShown within 80 columns, whatever a receiver wrote.
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
		"user2@example.test": {"given up      because of harvest_guard\n", "1,234 attempts behind",
			"The receiver didn't answer in time.", "void: the session", "554   -", "not known whether it accepts"},
		"user3@example.test": {"route         none, DNS says domain_not_found\n", "no attempt was made"},
		"user5@example.test": {"outcome       valid", "No evidence was kept"},
	} {
		text, err := r.run("evidence", r.id, address)
		effort.ErrIs(t, err, nil, address)
		holds(t, text, want...)
	}
	text, err := r.run("evidence", r.id, "user2@example.test", "--json")
	var f admin.Explanation
	if err == nil {
		err = json.Unmarshal([]byte(text), &f)
	}
	effort.ErrorIf(t, err != nil || f.Case == nil || f.Case.Attempts[2].Text == "" || f.Case.Why != "harvest_guard",
		"JSON: %v, %s", err, text)
	text, err = r.run("evidence", r.id, "user0@example.test", "--json")
	if err != nil || strings.Count(text, `"cause"`) != 1 ||
		!strings.Contains(text, `{"scope":"receiver","why":"4 of the last 5 new addresses, of 3 domains, got 450 4.2.0"}`) {
		t.Errorf("JSON: %v, %s", err, text)
	}
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
		text, err := r.run(c.args...)
		effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), c.words) || isUsage(err) != c.usage ||
			text != "", "%v: got %v and %q, want %q", c.args, err, text, c.words)
	}
}

// TestReplayIsShown as lines and as JSON; exit code 0 though something would change.
func TestReplayIsShown(t *testing.T) {
	r := newWitnessRig(t, shownCases())
	before := r.desk.Account()
	text, err := r.run("replay", r.id[:6]) // its beginning is enough
	for _, words := range []string{"user4@example.test\n    was  unknown, policy, by rule older@00000001\n" +
		"    now  invalid, mailbox_not_found, by rule ", "6 settled addresses", "5 of them with evidence", "4 stay the same",
		"unknown     invalid                1\n", "Nothing was charged"} {
		effort.ErrorIf(t, err != nil || !strings.Contains(text+strings.ReplaceAll(text, "\n", " "), words),
			"%v: %q is not in\n%s", err, words, text)
	}
	effort.Is(t, strings.Count(text, "@example.test"), 1, "more is told")
	effort.Lacks(t, text, "fault", "more is told")
	text, err = r.run("replay", r.id, "--all")
	effort.ErrorIf(t, err != nil || strings.Count(text, "@example.test") != 5, "all: %v\n%s", err, text)
	text, err = r.run("replay", r.id, "--json", "--all")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var last replayLine
	if err == nil {
		err = json.Unmarshal([]byte(lines[len(lines)-1]), &last)
	}
	effort.ErrorIf(t, err != nil || len(lines) != 7 || !strings.Contains(lines[0], `{"read":{"ledger":`) ||
		last.Summary == nil || last.Summary.Outcomes != 1, "JSON: %v\n%s", err, text)
	effort.Is(t, r.desk.Account(), before, fmt.Sprintf("the account was %+v, is", before))
}

// TestWithoutANodeTheLedgerIsRead, unless the operator has named a node.
func TestWithoutANodeTheLedgerIsRead(t *testing.T) {
	r := newWitnessRig(t, shownCases())
	flags := &ledgerFlags{node: &adminFlags{environ: environment{"ROLLCALL_DATA_DIR=" + filepath.Dir(r.path)}}}
	away := func(*client.Admin, reading) error { return fmt.Errorf("asked: %w", client.ErrNoNode) }
	var found admin.FoundEvidence
	summary, read := admin.ReplaySummary{}, 0
	own := func(book *sqlstore.Store, _ config.Config, at reading) (err error) {
		effort.Is(t, at, reading{Ledger: "sqlite:" + r.path}, "read")
		read++
		found, err = admin.FindEvidence(t.Context(), book, r.desk.Workspace, "x")
		effort.ErrorIf(t, err == nil, "a workspace is no verification")
		q := admin.ReplayQuery{Rules: verdict.Builtin(), Yield: func(admin.Replayed) error { return nil }}
		list, err := book.Workspaces(t.Context())
		if err != nil || len(list) != 1 {
			return errors.Join(err, errors.New("another ledger"))
		}
		summary, err = admin.ReplayEvidence(t.Context(), book, uuid.MustParse(r.id), q)
		return err
	}
	err := flags.read(t.Context(), away, own)
	effort.ErrorIf(t, err != nil || summary.Replayed != 5, "got %v, %+v, %+v", err, found, summary)
	flags.node.url, flags.node.token = "http://127.0.0.1:1", "x"
	if err := flags.read(t.Context(), away, own); !errors.Is(err, client.ErrNoNode) || read != 1 {
		t.Errorf("with a node that was named: %v, read %d times", err, read)
	}
}

// candidate is a rule file that takes an unknown user of one receiver for a disabled one.
const candidate = `
title = "tried out"
scope = ["example.test"]

[[rule]]
id = "tried-out"
stage = ["rcpt"]
code = ["550"]
words = ["user unknown"]
outcome = "invalid"
reason = "mailbox_disabled"
blame = "address"
meaning = "A test."
source = "test"
date = "2026-11"
match = ["550 5.1.1 user unknown"]
miss = ["550 5.7.1 blocked"]
`

// TestReplayByACandidate judges by a rule file that no node has, and tells the faults of a bad one.
func TestReplayByACandidate(t *testing.T) {
	effort.Unraced(t, "rules are read, and text")
	t.Parallel()
	r := newWitnessRig(t, shownCases())
	file := filepath.Join(t.TempDir(), "verdict.toml")
	writes := func(text string) {
		t.Helper()
		effort.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	writes(candidate)
	text, err := r.run("replay", r.id, "--rules", file)
	for _, words := range []string{"user0@example.test\n", "    now  invalid, mailbox_disabled, by rule tried-out@",
		"1 would have another outcome, 1 another reason"} {
		effort.ErrorIf(t, err != nil || !strings.Contains(text+strings.ReplaceAll(text, "\n", " "), words),
			"%v: %q is not in\n%s", err, words, text)
	}
	writes(strings.Replace(candidate, `miss =`, `mis =`, 1))
	if text, err := r.run("replay", r.id, "--rules", file); err == nil || text != "" ||
		!strings.Contains(err.Error(), "verdict.toml:") {
		t.Errorf("a bad file: %v, %s", err, text)
	}
}
