package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/smtp/smtplab"
)

// These are the figures of docs/measured.md, with the lab in the test's process
// and the built binary as the node:
//
//	go test ./cmd/rollcall -run TestLoad -long -v -timeout 60m
//
// Figures that hang on the machine are told; what is promised is checked.

// loadWait bounds one verification under load.
const loadWait = 10 * time.Minute

// wideOpen is an allowance that stands in nobody's way. An address whose session
// fails is asked again soon: with the default waits one such would take 5 min.
const wideOpen = `
[retry]
greylist_waits = ["1s"]
[throttle.default]
connections = 4
connection_rate = "1000000/s"
rcpt_rate = "1000000/s"
rcpts_per_connection = 1000000
rcpts_per_transaction = 100
refused_per_session = 1000000
refused_per_hour = 1000000
`

// loadFigures are what one verification cost.
type loadFigures struct {
	took      time.Duration // from the end of the upload to completed_at
	processor time.Duration // of the node, both kinds
	memory    int64         // the node's peak, bytes
	detail    api.Detail
	sheet     smtplab.Sheet
}

// load runs a node for one file and gives what it cost. more is done with the
// node before it ends.
func load(t *testing.T, o smtplab.Options, settings string, file []byte,
	more func(r *rig, pid int, id string)) loadFigures {
	t.Helper()
	lab := startLab(t, o)
	defer stopLab(t, lab) // each host of a lab is an open file, of which there are not enough for many labs
	r := newRig(t, rigOptions{dns: lab.DNSAddr(), smtpPort: lab.SMTPPort(), settings: settings})
	node := r.serve()
	node.waitFor("node started")
	rows := int64(bytes.Count(file, []byte("\n")) - 1)
	r.open(rows)
	ctx, cancel := context.WithTimeout(t.Context(), loadWait)
	defer cancel()
	c := r.client()
	made, err := c.create(ctx, uuid.New(), int64(len(file)), "load.csv")
	if err != nil {
		t.Fatal(err)
	}
	err = c.upload(ctx, made.Upload.URL, bytes.NewReader(file), int64(len(file)), func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	pid, began, f := node.command.Process.Pid, time.Now(), loadFigures{}
	for f.detail.CompletedAt == nil {
		if f.detail, err = look(ctx, c, made.ID); err != nil {
			t.Fatal(err)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			t.Fatalf("no end in sight: %+v", f.detail)
		}
	}
	f.took, f.sheet = time.Time(*f.detail.CompletedAt).Sub(began), lab.Manners()
	if f.memory, err = memoryMost(pid); err == nil {
		f.processor, err = processorOf(pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	if f.detail.Progress.Completed != rows || r.balance().Spent != rows {
		t.Errorf("%d of %d known, balance %+v", f.detail.Progress.Completed, rows, r.balance())
	}
	if more != nil {
		more(r, pid, made.ID)
	}
	if code := node.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d", code)
	}
	return f
}

// processorOf is the processor time of a process so far (Linux).
func processorOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields, ticks := strings.Fields(rest), 0
	for _, field := range fields[11:13] { // user and system, in ticks of 10 ms
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// cleanFile makes a file of n addresses spread over domains that answer honestly
// and at once; one in five does not exist.
func cleanFile(n, domains int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range n {
		name := "anna"
		if (i+i/domains)%5 == 4 { // not all of them at the same domains
			name = "ghost"
		}
		fmt.Fprintf(&b, "%s.m%s@d%d-clean.test\n", name, letters(i/domains), i%domains)
	}
	return b.Bytes()
}

// quickLab is a lab without latency that never refuses a session: a node opens
// sessionsMax at most.
func quickLab() smtplab.Options {
	o := smtplab.Defaults()
	o.SessionsMax = 10_000
	return o
}

// resetMemoryMost makes the present memory the peak, and gives it (Linux).
func resetMemoryMost(pid int) (int64, error) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return 0, err
	}
	return memoryMost(pid)
}

// TestLoadLatency measures how much of the time that 100 ms a turn leaves is used:
// two sessions that each ask one address a turn, and then a rate.
func TestLoadLatency(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	const domains, each, turn = 10, 1500, 100 * time.Millisecond
	o := quickLab()
	o.Latency = turn
	for _, x := range []struct {
		name, settings string
		perSecond      float64 // what the allowance lets one receiver have
	}{
		{"two connections", strings.Replace(wideOpen, "connections = 4", "connections = 2", 1), 2 / turn.Seconds()},
		{"40/s, pipelining", strings.Replace(wideOpen, `rcpt_rate = "1000000/s"`,
			"rcpt_rate = \"40/s\"\npipelining = true", 1), 40},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := load(t, o, x.settings, cleanFile(domains*each, domains), nil)
			share := each / x.perSecond / f.took.Seconds()
			t.Logf("%d addresses at each of %d receivers in %.2f s: share %.3f of %.0f/s", each, domains,
				f.took.Seconds(), share, x.perSecond)
			if share < 0.95 {
				t.Errorf("share %.3f, want 0.95", share)
			}
		})
	}
}

// TestLoadLimits measures how much of fixed limits is used and that none is
// broken, as the lab counts, and how many questions and sessions it takes.
func TestLoadLimits(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	const domains, each = 20, 3000
	for _, x := range []struct {
		name, settings string
		limits         smtplab.Tally // no figure of a receiver may be above
		perSecond      float64
	}{
		{"rcpt rate", `
[throttle.default]
connections = 2
connection_rate = "30/min"
rcpt_rate = "50/s"
rcpts_per_connection = 500
rcpts_per_transaction = 10
refused_per_session = 1000
refused_per_hour = 1000000
`, smtplab.Tally{SessionsAtOnce: 2, SessionsIn1s: 30, RcptsIn1s: 50, RcptsPerSession: 500,
			RcptsPerTx: 10}, 50},
		{"connection rate", `
[throttle.default]
connections = 2
connection_rate = "2/s"
rcpt_rate = "1000/s"
rcpts_per_connection = 25
refused_per_session = 1000
refused_per_hour = 1000000
`, smtplab.Tally{SessionsAtOnce: 2, SessionsIn1s: 2, RcptsIn1s: 1000, RcptsPerSession: 25,
			RcptsPerTx: 1}, 50},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := load(t, quickLab(), x.settings, cleanFile(domains*each, domains), nil)
			broken, sessions, rcpts := 0, 0, 0
			for name, r := range f.sheet.Receivers {
				sessions, rcpts = sessions+r.Sessions, rcpts+r.Rcpts
				m := x.limits
				if r.SessionsAtOnce > m.SessionsAtOnce || r.SessionsIn1s > m.SessionsIn1s ||
					r.RcptsIn1s > m.RcptsIn1s || r.RcptsPerSession > m.RcptsPerSession ||
					r.RcptsPerTx > m.RcptsPerTx {
					broken++
					t.Errorf("%s: a limit of %+v is broken: %+v", name, x.limits, r)
				}
			}
			share := float64(rcpts) / domains / x.perSecond / f.took.Seconds()
			t.Logf("%d RCPTs at %d receivers in %.2f s: share %.3f of %.0f/s, %d limits broken, "+
				"%.1f sessions per 1,000 addresses, %.2f DNS queries per domain", rcpts, domains,
				f.took.Seconds(), share, x.perSecond, broken, float64(sessions)/domains/each*1000,
				float64(f.sheet.DNS.Queries)/float64(f.sheet.DNS.Zones))
			if share < 0.95 {
				t.Errorf("share %.3f, want 0.95", share)
			}
		})
	}
}
