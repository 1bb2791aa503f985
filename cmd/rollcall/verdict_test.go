package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/cmd/rollcall/node"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

//go:embed testdata/own.toml
var ownRules string

func rulesFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "own.toml")
	effort.OK(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestVerdictJudge(t *testing.T) {
	effort.Unraced(t, "rules are read, and text")
	t.Parallel()
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"550 5.1.1 User unknown"}, []string{"invalid", "mailbox_not_found", "address", "not-found",
			"user unknown"}},
		{[]string{"--stage", "greeting", "554-No SMTP service", "554 Bad DNS PTR"}, []string{"source_identity",
			"other_source"}},
		{[]string{"--host", "mx.yandex.net", "550 5.7.1 No such user!"}, []string{"invalid", "yandex"}},
		{[]string{"--address", "no.such.user@example.com", "550 no.such.user no"}, []string{"undecided", "policy", "^ no"}},
		{[]string{"--rules", rulesFile(t, ownRules), "550 no such user"}, []string{"undecided", "ours",
			"We do not believe it."}},
	} {
		out, err := here(t, "", append([]string{"verdict", "judge"}, test.args...)...)
		for _, want := range test.want {
			effort.ErrorIf(t, err != nil || !strings.Contains(out, want),
				"%q: %v\n%s\nwants %q", test.args, err, out, want)
		}
	}
	out, err := here(t, "", "verdict", "judge", "--json", "450 4.2.0 Greylisted, come back in 5 minutes")
	var view verdictView
	effort.ErrorIf(t, err != nil || json.Unmarshal([]byte(out), &view) != nil || view.Action != "greylist" ||
		view.Wait != "5m0s" || view.Rule == "" || view.Meaning == "" || view.Version == 0, "%v, %s", err, out)
	for _, args := range [][]string{{}, {"hello"}, {"--stage", "data", "550 no"}, {"--address", "x", "550 no"}} {
		_, err := here(t, "", append([]string{"verdict", "judge"}, args...)...)
		effort.ErrorIf(t, !isUsage(err), "%q: %v", args, err)
	}
}

func TestVerdictList(t *testing.T) {
	out, err := here(t, "", "verdict", "list")
	effort.ErrorIf(t, err != nil || !strings.Contains(out, "generic") && !strings.Contains(out, "not-found"),
		"%v\n%s", err, out)
	out, err = here(t, "", "verdict", "list", "--scope", "aspmx.l.google.com", "--json")
	var list []verdict.Info
	effort.FatalIf(t, err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list) == 0, "%v\n%s", err, out)
	for _, r := range list {
		effort.ErrorIf(t, !inScope(r.Scope, "google.com") || r.Source == "" || r.Date == "", "%+v", r)
	}
	if _, err := here(t, "", "verdict", "list", "--scope", "nobody.test"); err == nil {
		t.Error("a list without rules is no error")
	}
}

func TestVerdictCheck(t *testing.T) {
	effort.Unraced(t, "rules are read, and text")
	t.Parallel()
	out, err := here(t, "", "verdict", "check", rulesFile(t, ownRules))
	effort.ErrorIf(t, err != nil || !strings.Contains(out, "is fine: 1 rules") ||
		!strings.Contains(out, "now again: retry"), "%v\n%s", err, out)
	out, err = here(t, "", "verdict", "check", "--json", rulesFile(t, ownRules))
	var view struct {
		Rules   int
		Changes []changeView
	}
	effort.ErrorIf(t, err != nil || json.Unmarshal([]byte(out), &view) != nil || view.Rules != 1 ||
		len(view.Changes) == 0, "%v\n%s", err, out)
	_, err = here(t, "", "verdict", "check", rulesFile(t, ownRules+ownRules))
	effort.ErrorIf(t, !errors.Is(err, verdict.ErrFaults), "%v", err)
	_, err = here(t, "", "verdict", "check", "nowhere.toml")
	effort.ErrorIf(t, !errors.Is(err, os.ErrNotExist), "%v", err)
}

// Only the file of the default name may be absent; a bad one keeps the node from starting.
func TestLoadRules(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"", config.Default().Verdict.File} {
		effort.Is(t, effort.Must(node.LoadRules(config.Verdict{File: name}))(t), verdict.Builtin(), name)
	}
	_, err := node.LoadRules(config.Verdict{File: "other.toml"})
	effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "verdict.file"), "%v", err)
	effort.OK(t, os.WriteFile(config.Default().Verdict.File, []byte(ownRules), 0o600))
	rules := effort.Must(node.LoadRules(config.Default().Verdict))(t)
	_, ok := rules.Rule("ours")
	effort.ErrorIf(t, !ok, "the file of the default name is not read")
	effort.OK(t, os.WriteFile("verdict.toml", []byte("x"), 0o600))
	effort.Denied(node.LoadRules(config.Default().Verdict))(t, verdict.ErrFaults)
}

// Replies that no rule took are listed by how often they came, without addresses, and can be judged from that
// list; what a rule took, and what is too old, is not there.
func TestUnknownRepliesAreListed(t *testing.T) {
	said := func(local string, code int, text string) evidence.Case {
		a := evidence.Note(evidence.Raw{At: time.Now(), Stage: smtp.StageRcpt, Host: "mx.example.com",
			Reply:   smtp.Reply{Code: code, Lines: []string{text}},
			Address: smtp.Address{Local: local, Domain: "example.com"}})
		verdict.Builtin().Decide(&a)
		return evidence.Case{Attempts: []evidence.Attempt{a, a}, Hosts: 1, GaveUp: true}
	}
	r := newWitnessRig(t, []evidence.Case{said("anna", 550, "Blorp <anna@example.com>"), said("bert", 550,
		"Blorp <bert@example.com>"), said("carl", 553, "Quux"), said("dora", 550, "User unknown")})
	r.args = []string{"--ledger", "sqlite:" + r.path}
	text, err := r.run("verdict", "unknown")
	if err != nil || !strings.HasPrefix(text, "# 4 times; addresses: 2 unknown\nrcpt@mx.example.com | 550 blorp <^>\n# "+
		"2 times") || strings.Contains(text, "anna") || strings.Contains(text, "user unknown") {
		t.Errorf("%v\n%s", err, text)
	}
	text, err = r.run("verdict", "unknown", "--limit", "1", "--json")
	effort.ErrorIf(t, err != nil || !strings.Contains(text, `"count":4`) || strings.Contains(text, "quux"),
		"%v\n%s", err, text)
}
