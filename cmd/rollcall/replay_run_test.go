package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/evidence"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/verdict"
)

// TestAWholeRunIsReplayedToTheSameAnswers: every address of a file that was verified
// in the lab has evidence, which gives its outcome and reason, by the verdicts that
// were noted and by the rules of now. Nobody is asked for that.
func TestAWholeRunIsReplayedToTheSameAnswers(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	n := labNode(t, folder, io.Discard, func(c *config.Config) { openedWide(t, c, false) })
	sample := smtplab.Sample(11, 500, 100)
	v := finish(t, n, submit(t, n, []byte("email\n"+strings.Join(sample, "\n")+"\n"), 500), 2*time.Minute)
	settled, sheet := results(t, n, v), n.Lab.Manners()
	balance, err := n.Book.Balance(t.Context(), v.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	attempts, without := 0, 0
	summary, err := evidence.Replay(t.Context(), n.Book, v.ID, evidence.Query{Rules: verdict.Builtin(), All: true,
		Yield: func(r evidence.Replayed) error {
			was := settled[r.Address]
			if r.Before != r.After || r.Before.Outcome != was.Outcome.String() || r.Before.Reason != was.Reason.String() {
				return errors.New(r.Address + " has another outcome")
			}
			if r.After.Rule == "" {
				without++
			}
			return nil
		}})
	if err != nil || summary.Replayed != v.Total || summary.Same != v.Total || summary.Unexplained != 0 ||
		summary.Addresses != v.Total || len(summary.Changes) > 0 {
		t.Errorf("got %+v of %d addresses, %v", summary, v.Total, err)
	}
	token, err := client.ReadToken(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range sample[:20] {
		var out bytes.Buffer
		root := newRoot(nil)
		root.SetOut(&out)
		root.SetArgs([]string{"evidence", v.ID.String(), address, "--admin", n.AdminURL, "--token", token})
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(),
			"\noutcome       "+settled[address].Outcome.String()+": "+settled[address].Reason.String()) {
			t.Errorf("%s: %v\n%s", address, err, out.String())
		}
		attempts += strings.Count(out.String(), "\n    host ")
	}
	if attempts < 20 || int64(without) > v.Total/4 {
		t.Errorf("%d attempts at 20 addresses, %d of %d outcomes without any", attempts, without, v.Total)
	}
	after := n.Lab.Manners().Total // sessions of before may end meanwhile
	if after.Rcpts != sheet.Total.Rcpts || after.Sessions != sheet.Total.Sessions {
		t.Errorf("receivers were asked: %+v, before %+v", after, sheet.Total)
	}
	if after, err := n.Book.Balance(t.Context(), v.Workspace); err != nil || after != balance {
		t.Errorf("the account was %+v, is %+v, %v", balance, after, err)
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

// TestReplayByACandidate judges by a rule file that no node has, at a node and
// without one, and tells the faults of a bad one.
func TestReplayByACandidate(t *testing.T) {
	t.Parallel()
	r := newWitnessRig(t, shownCases(), nil)
	file := filepath.Join(t.TempDir(), "verdict.toml")
	writes := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writes(candidate)
	text, err := r.run("replay", r.id, "--rules", file)
	for _, words := range []string{"user0@example.test\n", "    now  invalid, mailbox_disabled, by rule tried-out@",
		"1 would have another outcome, 1 another reason"} {
		if err != nil || !strings.Contains(text+strings.ReplaceAll(text, "\n", " "), words) {
			t.Errorf("%v: %q is not in\n%s", err, words, text)
		}
	}
	rules, err := replay{rules: candidate}.own(config.Default())
	if err != nil {
		t.Fatal(err)
	}
	summary, err := evidence.Replay(t.Context(), r.desk.Book, uuid.MustParse(r.id),
		evidence.Query{Rules: rules, Yield: func(evidence.Replayed) error { return nil }})
	if err != nil || summary.Reasons != 1 || summary.Status != ledger.Verifying {
		t.Errorf("without a node: %+v, %v", summary, err)
	}
	writes(strings.Replace(candidate, `miss =`, `mis =`, 1))
	if text, err := r.run("replay", r.id, "--rules", file); err == nil || text != "" ||
		!strings.Contains(err.Error(), "verdict.toml:") {
		t.Errorf("a bad file: %v, %s", err, text)
	}
	writes("")
	if _, err := r.run("replay", r.id, "--rules", file); err == nil {
		t.Error("an empty file was taken")
	}
}

// TestAReplayThatIsCutIsNoReplay: what came is shown, and the command fails.
func TestAReplayThatIsCutIsNoReplay(t *testing.T) {
	const line = `{"address":{"ordinal":0,"address":"a@b.test"}}` + "\n"
	for body, words := range map[string]string{
		line: errCut.Error(), line + line[:20]: errCut.Error(),
		line + `{"error":{"code":"unavailable","message":"ask again"}}`: "ask again",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", admin.ReplayType)
			_, _ = io.WriteString(w, body)
		}))
		lines := 0
		r := replay{read: func(reading) error { return nil }}
		err := r.ask(t.Context(), client.NewAdmin(server.URL, "token"), reading{}, func(admin.ReplayLine) error {
			lines++
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), words) || lines != 1 {
			t.Errorf("%q: %d lines, %v", body, lines, err)
		}
		server.Close()
	}
}
