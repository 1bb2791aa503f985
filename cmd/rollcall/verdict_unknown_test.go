package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

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
		"Blorp <bert@example.com>"),
		said("carl", 553, "Quux"), said("dora", 550, "User unknown")}, nil)
	r.args = []string{"--ledger", "sqlite:" + r.path}
	text, err := r.run("verdict", "unknown")
	if err != nil || !strings.HasPrefix(text, "# 4 times; addresses: 2 unknown\nrcpt@mx.example.com | 550 blorp <^>\n# "+
		"2 times") ||
		strings.Contains(text, "anna") || strings.Contains(text, "user unknown") {
		t.Errorf("%v\n%s", err, text)
	}
	name := filepath.Join(t.TempDir(), "replies.txt")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if judged, err := runRoot(t, "verdict", "judge", "--file", name); err != nil || strings.Count(judged, "retry") < 2 {
		t.Errorf("%v\n%s", err, judged)
	}
	if text, err = r.run("verdict", "unknown", "--limit", "1", "--json"); err != nil || !strings.Contains(text,
		`"count":4`) ||
		strings.Contains(text, "quux") {
		t.Errorf("%v\n%s", err, text)
	}
}
