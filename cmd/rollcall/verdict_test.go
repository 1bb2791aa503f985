package main

import (
	_ "embed"
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
	d := console{t: t, toFile: true}
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
		holds(t, d.must(append([]string{"verdict", "judge"}, test.args...)...), test.want...)
	}
	var view verdictView
	d.asks(&view, "verdict", "judge", "450 4.2.0 Greylisted, come back in 5 minutes")
	effort.ErrorIf(t, view.Action != "greylist" || view.Wait != "5m0s" || view.Rule == "" || view.Meaning == "" ||
		view.Version == 0, "%+v", view)
	for _, args := range [][]string{{}, {"hello"}, {"--stage", "data", "550 no"}, {"--address", "x", "550 no"}} {
		d.misused(append([]string{"verdict", "judge"}, args...)...)
	}
}

func TestVerdictList(t *testing.T) {
	d := console{t: t, toFile: true}
	effort.Has(t, d.must("verdict", "list"), "not-found")
	var list []verdict.Info
	d.asks(&list, "verdict", "list", "--scope", "aspmx.l.google.com")
	effort.Not(t, len(list), 0)
	for _, r := range list {
		effort.ErrorIf(t, !inScope(r.Scope, "google.com") || r.Source == "" || r.Date == "", "%+v", r)
	}
	d.refused("", "verdict", "list", "--scope", "nobody.test")
}

func TestVerdictCheck(t *testing.T) {
	effort.Unraced(t, "rules are read, and text")
	t.Parallel()
	d := console{t: t, toFile: true}
	holds(t, d.must("verdict", "check", rulesFile(t, ownRules)), "is fine: 1 rules", "now again: retry")
	var view struct {
		Rules   int
		Changes []changeView
	}
	d.asks(&view, "verdict", "check", rulesFile(t, ownRules))
	effort.ErrorIf(t, view.Rules != 1 || len(view.Changes) == 0, "%+v", view)
	effort.Denied(d.said("verdict", "check", rulesFile(t, ownRules+ownRules)))(t, verdict.ErrFaults)
	effort.Denied(d.said("verdict", "check", "nowhere.toml"))(t, os.ErrNotExist)
}

// TestLoadRules: only the file of the default name may be missing; a faulty file keeps the node from starting.
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

// TestUnknownRepliesAreListed: replies that no rule matched are listed by frequency, without addresses, and can be
// judged from that list. Replies that a rule matched, and old ones, are not listed.
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
	text := r.must("verdict", "unknown")
	effort.Has(t, text, "# 4 times; addresses: 2 unknown\nrcpt@mx.example.com | 550 blorp <^>\n# 2 times")
	effort.Lacks(t, text, "anna", "an address")
	effort.Lacks(t, text, "user unknown", "what a rule took")
	text = r.must("verdict", "unknown", "--limit", "1", "--json")
	effort.Has(t, text, `"count":4`)
	effort.Lacks(t, text, "quux", "the second")
}
