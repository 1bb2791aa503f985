package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/smtp/throttle"
)

// shownTrials is the log of a source that is believed to be refused after some good answers.
func shownTrials() []throttle.TrialLine {
	c, at := throttle.NewCauses(), receiversNow
	c.KeepTrials(&throttle.TrialRoom{}, func(time.Time) float64 { return 12.5 })
	for i := range 60 {
		at = at.Add(time.Second)
		t := throttle.Trial{Sent: at, At: at.Add(30 * time.Millisecond), Domain: fmt.Sprintf("a-rather-long-domain-%d.example.test", i%3),
			Tenant: fmt.Sprintf("secret %d", i%2), Said: "250"}
		if i < 2 || i > 55 {
			t.Result, t.Said = throttle.RefusedUs, "550 5.7.1"
		}
		c.Note(t, throttle.Waiting{OtherDomain: true, OtherTenant: true})
		switch {
		case t.Result == throttle.Answered:
			c.Fine(t)
		case i < 2:
			c.Settle(t, true)
		}
	}
	lines := c.Trials()
	lines[0].Receiver, lines[0].Node, lines[0].Source = "example.test", "node-1", "192.0.2.1"
	return lines
}

// TestTrialsAreShownAndReplayed: as a table of 80 columns, as JSON, and from that anew; a file that was
// changed is noticed.
func TestTrialsAreShownAndReplayed(t *testing.T) {
	b := newThrottleBench(t)
	holds(t, b.must("receivers", "trials", "example.test"), "there are no trials to show")
	b.survey.trials = shownTrials()
	holds(t, b.must("receivers", "trials", "example.test"), "example.test on node-1, from 192.0.2.1: the newest 40 of 62",
		"CAME TO\n", "12.5/s  refused us 550 5.7.1\n",
		"\nbelieved\n  12:00:59.030 receiver refuses us: 3 of the last 3 new addresses, of 3")
	if out := b.must("receivers", "trials", "example.test", "--limit", "3"); strings.Count(out, "12.5/s") != 3 ||
		strings.Contains(out, "secret") {
		t.Errorf("--limit 3:\n%s", out)
	}
	text := b.must("receivers", "trials", "example.test", "--json")
	if strings.Count(text, "\n") != 63 || strings.Contains(text, "secret") {
		t.Errorf("JSON:\n%s", text)
	}
	file := filepath.Join(t.TempDir(), "trials.jsonl")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text + text)
	out := b.must("throttle", "replay", "--trials", file)
	holds(t, out, "example.test on node-1, from 192.0.2.1: 62 events since 2030-01-02 12:00:01\n",
		"12:01:00.030 receiver refuses us: 1 of the last 1 new addresses")
	if strings.Count(out, "These are the beliefs that were recorded") != 2 {
		t.Errorf("two logs in one file:\n%s", out)
	}
	holds(t, b.must("throttle", "replay", "--trials", file, "--json"), `"same":true`, `"trials":62`)
	write(strings.Replace(text, `"result":"refused_us","said":"550 5.7.1","pace":12.5`, `"result":"answered","said":"250","pace":12.5`, 9))
	out, _, err := b.run(t.Context(), "throttle", "replay", "--trials", file)
	holds(t, out, "These are not the ")
	if !errors.Is(err, errTrialsDiffer) {
		t.Errorf("a changed file: %v", err)
	}
	for _, bad := range []string{"", "{}\n", "x\n", `{"kind":"state","state":{}}` + "\n" + `{"kind":"y"}` + "\n"} {
		write(bad)
		if _, _, err := b.run(t.Context(), "throttle", "replay", "--trials", file); err == nil || isUsage(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, wrong := range [][]string{{"receivers", "trials"}, {"receivers", "trials", "a", "--limit", "0"},
		{"throttle", "replay", "x", "--trials", "y"}} {
		if _, _, err := b.run(t.Context(), wrong...); !isUsage(err) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, _, err := b.run(t.Context(), "receivers", "trials", "none.test"); err == nil || isUsage(err) {
		t.Errorf("nobody knows it: %v", err)
	}
}
