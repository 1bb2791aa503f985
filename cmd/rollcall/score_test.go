package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// A whole run of a small list: all that can be known is known, nothing is wrong, and
// the kept evidence gives each outcome and reason again.
func TestLabScoreOfHonestReceivers(t *testing.T) {
	t.Parallel()
	effort.OnlyNode(t)
	// What cannot be known would take the minute until it is given up. On a busy machine more
	// is unfinished; what is finished is known. What ends after the results were read is replayed too.
	r := effort.Must(score(t.Context(), "honest", 120, 20*time.Second))(t)
	if r.Wrong != 0 || r.Found != r.Knowable || r.Knowable < 20 || r.Replayed < r.Addresses-r.Unfinished ||
		r.Replayed < 20 || r.Changed != 0 || r.Manners.Data != 0 || r.Addresses != 120 {
		t.Errorf("%+v", r)
	}
}

// TestAccuracy measures accuracy and manners: `make accuracy`. A sixth of the addresses is of the bad list, so that
// even the strictest receiver takes only minutes.
func TestAccuracy(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes 13 minutes: make accuracy")
	}
	for mix, n := range map[string]int{smtplab.EverydayMix: 6000, smtplab.AllMix: 6000, mixBad: 1000} {
		t.Run(mix, func(t *testing.T) {
			r := effort.Must(score(t.Context(), mix, n, 6*time.Minute))(t)
			effort.OK(t, printScore(t.Output(), &r))
			if !r.good() {
				t.Error("see the wrong statements, the replay and the guards above")
			}
		})
	}
}

// The score is not clean when a statement is false, a guard was tripped or evidence
// says otherwise when it is judged again; what nobody knows in time is no mistake.
func TestScoreReportCounts(t *testing.T) {
	known := smtplab.Expectation{Outcome: smtp.Invalid, Knowable: true, Reasons: []smtp.Reason{smtp.MailboxNotFound}}
	nobody := smtplab.Expectation{Outcome: smtp.Unknown}
	one := func(want smtplab.Expectation, o smtp.Outcome, reason smtp.Reason) judged {
		return judged{labelled: labelled{address: "a@b.test", personality: "p", want: want}, outcome: o,
			reason: reason, blame: smtp.BlameSource}
	}
	r := newScoreReport([]part{{all: []judged{
		one(known, smtp.Invalid, smtp.MailboxNotFound), one(known, smtp.Invalid, smtp.MailboxFull),
		one(known, smtp.Unknown, smtp.Policy), one(known, smtp.Undecided, smtp.ReasonNone),
		one(nobody, smtp.Unknown, smtp.SourceBlocked),
	}}}, time.Second)
	if r.Knowable != 3 || r.Found != 2 || r.Reasoned != 1 || r.Unfinished != 1 || r.Wrong != 0 || !r.good() {
		t.Errorf("%+v", r)
	}
	if r.Unknown["source"] != 2 || r.Confusion["invalid"]["unknown"] != 1 || r.Confusion["unknown"]["unknown"] != 1 {
		t.Errorf("%+v", r)
	}
	if len(r.Worst) != 1 || r.Worst[0].Missed["unknown policy"] != 1 {
		t.Errorf("%+v", r.Worst)
	}
	wrong := newScoreReport([]part{{all: []judged{one(nobody, smtp.Invalid, smtp.MailboxNotFound)}}}, time.Second)
	if wrong.Wrong != 1 || wrong.good() || len(wrong.Statements) != 1 || wrong.Statements[0].Got != "invalid" {
		t.Errorf("%+v", wrong)
	}
	tripped := newScoreReport([]part{{sheet: smtplab.Sheet{Tripped: map[string]int{"harvest": 2}}}}, time.Second)
	if tripped.good() || tripped.Manners.tripped() != 2 {
		t.Errorf("%+v", tripped)
	}
	r.Changed = 1
	var text bytes.Buffer
	if err := printScore(&text, &r); err != nil || r.good() || !strings.Contains(text.String(), "source (us)") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// The same seed gives the same list, each address once, in no order of domains.
func TestScoreLists(t *testing.T) {
	lab := startLab(t, trialLab())
	defer func() { _ = stopLabWithin(context.Background(), lab) }()
	for _, mix := range append(smtplab.Mixes(), mixBad) {
		a, err := scoreList(lab, mix, 500, 5)
		b, again := scoreList(lab, mix, 500, 5)
		if err != nil || again != nil || len(a) != 500 {
			t.Fatalf("%s: %d addresses, %v, %v", mix, len(a), err, again)
		}
		seen := map[string]bool{}
		for i, l := range a {
			if seen[l.address] || b[i].address != l.address || l.personality == "" {
				t.Fatalf("%s: address %d is %+v, then %+v", mix, i, l, b[i])
			}
			seen[l.address] = true
			if mix == mixBad && l.want.Outcome == smtp.Valid {
				t.Errorf("%s: %s is valid", mix, l.address)
			}
		}
	}
}

func TestTheLabShowsItsSheetWhileItRuns(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	lab := c.start("lab", "--json", "--sheet", "127.0.0.1:0", "--network", "127.70.0.0/16", "--events", "10")
	var view labView
	effort.OK(t, json.Unmarshal([]byte(lab.waitFor("smtp_port")), &view))
	if len(view.AllowNetworks) != 1 || view.AllowNetworks[0] != "127.70.0.0/16" {
		t.Errorf("allow_networks: got %v, want the network asked for", view.AllowNetworks)
	}
	answer := effort.Must(http.Get(view.Sheet + "/sheet"))(t)
	defer answer.Body.Close()
	var sheet smtplab.Sheet
	if err := json.NewDecoder(answer.Body).Decode(&sheet); err != nil || sheet.Receivers == nil {
		t.Errorf("the sheet: got %+v and %v", sheet, err)
	}
	lab.terminate()
}

func TestWrongFlagsOfTheLab(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, x := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no network", []string{"--network", "here"}, exitUsage, `--network "here" is not a network`},
		{"a public network", []string{"--network", "192.0.2.0/24"}, exitUsage, "Network"},
		{"no address of DNS", []string{"--dns", "here"}, exitUsage, `--dns "here" is not an address and port`},
		{"DNS elsewhere", []string{"--dns", "192.0.2.1:53"}, exitUsage, "DNSListen"},
		{"a network that is not here", []string{"--network", "10.77.0.0/16"}, exitFailed, "ip route add local"},
		{"no place for the sheet", []string{"--sheet", "192.0.2.1:1"}, exitFailed, "--sheet"},
	} {
		t.Run(x.name, func(t *testing.T) {
			code, stdout, stderr := c.run(append([]string{"lab"}, x.args...)...)
			if code != x.code || !strings.Contains(stderr, x.want) || stdout != "" {
				t.Errorf("got code %d, %q and %q, want %d and %q", code, stdout, stderr, x.code, x.want)
			}
		})
	}
}

func TestTheLabListsItsPersonalities(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	code, stdout, stderr := c.run("lab", "--list", "--json")
	var views []personalityView
	if err := json.Unmarshal([]byte(stdout), &views); err != nil || code != exitDone || stderr != "" {
		t.Fatalf("got code %d, %v and %q", code, err, stderr)
	}
	all := smtplab.Personalities()
	effort.MustBe(t, len(views), len(all), "personalities")
	for i, p := range all {
		if v := views[i]; v.Name != p.Name || v.About == "" || v.Right == "" || v.MXSuffix != p.MXSuffix {
			t.Errorf("%s: got %+v", p.Name, v)
		}
	}
	code, stdout, _ = c.run("lab", "--list")
	if lines := strings.Count(stdout, "\n"); code != exitDone || lines != len(all)+1 {
		t.Errorf("the table has %d lines, want a heading and %d", lines, len(all))
	}
}
