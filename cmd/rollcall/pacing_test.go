package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/smtp/smtplab"
)

// The lab in these tests is a judge in another process: it counts what it lets through
// and what it puts off, and nobody tells the node its limits.

// trialRig is a node against a lab whose receiver limited-clean.test has limits.
type trialRig struct {
	*rig
	lab  *smtplab.Lab
	node *background
}

const limitedDomain = "limited-clean.test"

// wideAllowance is one that stands in nobody's way but for its rate.
const wideAllowance = `
[throttle.receivers.%q]
connections = 4
connection_rate = "60/min"
rcpt_rate = %q
rcpts_per_connection = 1000
refused_per_session = 1000
refused_per_hour = 1000000
`

func newJudged(t *testing.T, settings string) *trialRig {
	t.Helper()
	settings = "[retry]\ncontrol_waits = [\"200ms\", \"400ms\"]\n" + settings
	o := quickLab()
	o.Latency = 5 * time.Millisecond
	lab := startLab(t, o)
	r := newRig(t, rigOptions{dns: lab.DNSAddr(), smtpPort: lab.SMTPPort(), settings: settings})
	node := r.serve()
	node.waitFor("node started")
	r.open(10_000_000)
	return &trialRig{r, lab, node}
}

// submit uploads a file for the rig's tenant and gives the verification's id.
func (j *trialRig) submit(ctx context.Context, c *apiClient, file []byte) string {
	j.t.Helper()
	made, err := c.create(ctx, uuid.New(), int64(len(file)), "judged.csv")
	if err == nil {
		err = c.upload(ctx, made.Upload.URL, bytes.NewReader(file), int64(len(file)), func(int64) {})
	}
	if err != nil {
		j.t.Fatal(err)
	}
	return made.ID
}

// end waits for the end of a verification and gives how long that took.
func (j *trialRig) end(ctx context.Context, c *apiClient, id string) time.Duration {
	j.t.Helper()
	for began := time.Now(); ; {
		d, err := look(ctx, c, id)
		if err != nil {
			j.t.Fatal(err)
		}
		if d.CompletedAt != nil {
			return time.Since(began)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			j.t.Fatalf("no end in sight: %+v", d)
		}
	}
}

// goodFile has n addresses that exist at a domain, none of another prefix.
func goodFile(domain, prefix string, n int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range n {
		fmt.Fprintf(&b, "%s.%s@%s\n", prefix, letters(i), domain)
	}
	return b.Bytes()
}

// step is a limit of a trial.
type step struct {
	rcpts         int           // a second
	settle, judge time.Duration // time to find it, and time that counts
}

// TestAHiddenLimitIsFoundAndKept: the allowance is three times what the receiver takes,
// which changes while the run goes on. When there was time to find it, nine tenths of it
// are used and fewer than one in a hundred RCPTs are put off. Which rate a tempo finds is
// shown without a node in smtp/throttle and actors/receiver, in every run.
func TestAHiddenLimitIsFoundAndKept(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes minutes of true time; run with -long")
	}
	const used, putOff = 0.9, 0.01
	steps := []step{{20, 2 * time.Minute, 3 * time.Minute}, {9, 2 * time.Minute, 3 * time.Minute},
		{30, 3 * time.Minute, 3 * time.Minute}}
	type trial struct {
		name  string
		limit smtplab.Limit // per second, scaled by the steps
		slow  time.Duration // how many times as long it takes to find it
	}
	trials := []trial{
		{"sliding second", smtplab.Limit{Per: time.Second}, 1},
		{"fixed minute", smtplab.Limit{Per: time.Minute, Kind: smtplab.LimitFixed}, 5},
		{"sliding minute, all count", smtplab.Limit{Per: time.Minute, All: true}, 5},
		{"bucket", smtplab.Limit{Per: 10 * time.Second, Kind: smtplab.LimitBucket}, 1},
		{"421", smtplab.Limit{Per: 10 * time.Second, Reply: "421 4.7.0 Too many messages, try again later"}, 1},
	}
	for _, x := range trials {
		steps := slices.Clone(steps)
		for i := range steps {
			steps[i].settle *= x.slow
		}
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			for i, use := range findsAndKeeps(t, x.limit, steps) {
				if use.Share() < used || use.HeldShare() >= putOff {
					t.Errorf("%d/s: %.1f %% used, %.2f %% put off; want %.0f %% or more, and less than %.0f %%",
						steps[i].rcpts, 100*use.Share(), 100*use.HeldShare(), 100*used, 100*putOff)
				}
			}
		})
	}
}

// findsAndKeeps gives what was used of each limit when there was time to find it.
func findsAndKeeps(t *testing.T, limit smtplab.Limit, steps []step) (kept []smtplab.Use) {
	t.Helper()
	j := newJudged(t, fmt.Sprintf(wideAllowance, limitedDomain, "60/s"))
	most, lasts := 0, loadWait
	for _, s := range steps {
		most += int(float64(s.rcpts) * (s.settle + s.judge).Seconds())
		lasts += s.settle + s.judge
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	set := func(s step) {
		limit.Rcpts = int(float64(s.rcpts) * limit.Per.Seconds())
		if err := j.lab.SetLimit(limitedDomain, limit); err != nil {
			t.Fatal(err)
		}
	}
	set(steps[0])
	c := j.client()
	id := j.submit(ctx, c, goodFile(limitedDomain, "anna", 2*most+1000))
	for _, s := range steps {
		set(s)
		for _, wait := range []time.Duration{s.settle, s.judge} {
			from := time.Now()
			for left := wait; left > 0; left -= 15 * time.Second {
				at := time.Now()
				if err := sleep(ctx, min(left, 15*time.Second)); err != nil {
					t.Fatal(err)
				}
				part := j.lab.UseOf(limitedDomain, at, time.Now())
				t.Logf("... %.1f %% used, %d put off", 100*part.Share(), part.Held)
			}
			use := j.lab.UseOf(limitedDomain, from, time.Now())
			t.Logf("%d/s hidden, %v: %.1f %% used, %.2f %% put off (%d of %d)", s.rcpts, wait, 100*use.Share(),
				100*use.HeldShare(), use.Held, use.Asked)
			if wait == s.judge {
				kept = append(kept, use)
			}
		}
	}
	if d, err := look(ctx, c, id); err != nil || d.CompletedAt != nil {
		t.Errorf("the run did not last for the whole trial: %+v, %v", d, err)
	}
	if code := j.node.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d", code)
	}
	return kept
}

// TestAKnownLimitIsUsedAndNeverBroken: the allowance is exactly what the receiver takes.
// How much of it is used is held to account in a long run alone: others keep a default run's
// processors busy.
func TestAKnownLimitIsUsedAndNeverBroken(t *testing.T) {
	t.Parallel()
	const perSecond = 40
	const least = 0.95
	lasts := 5 * time.Second
	if effort.Long() {
		lasts = 25 * time.Second
	}
	j := newJudged(t, fmt.Sprintf(wideAllowance, limitedDomain, fmt.Sprintf("%d/s", perSecond)))
	ctx, cancel := context.WithTimeout(t.Context(), loadWait)
	defer cancel()
	if err := j.lab.SetLimit(limitedDomain, smtplab.Limit{Rcpts: perSecond, Per: time.Second}); err != nil {
		t.Fatal(err)
	}
	c := j.client()
	j.submit(ctx, c, goodFile(limitedDomain, "anna", 2*perSecond*int(lasts.Seconds())))
	for j.lab.UseOf(limitedDomain, time.Time{}, time.Now()).Asked == 0 {
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			t.Fatal("nothing was asked")
		}
	}
	if err := sleep(ctx, 2*time.Second); err != nil { // until chunks have grown
		t.Fatal(err)
	}
	from := time.Now()
	if err := sleep(ctx, lasts); err != nil {
		t.Fatal(err)
	}
	use := j.lab.UseOf(limitedDomain, from, time.Now())
	all := j.lab.UseOf(limitedDomain, from.Add(-time.Hour), time.Now())
	t.Logf("%.1f %% of %d/s used, %d of %d put off", 100*use.Share(), perSecond, all.Held, all.Asked)
	if all.Held > 0 {
		t.Errorf("%d of %d put off, want none", all.Held, all.Asked)
	}
	if effort.Long() && use.Share() < least {
		t.Errorf("%.1f %% used, want %.0f %% or more", 100*use.Share(), 100*least)
	}
	if code := j.node.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d", code)
	}
}

// TestASmallFileBehindABigOne: ten addresses behind a file that is asked for hours, at the
// same receiver, take at most three times as long as with nothing else to do: of the same
// workspace and of another one; also where an operator has a host for each of its customers.
func TestASmallFileBehindABigOne(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	rows := 5_000
	if effort.Long() {
		rows = 1_000_000
	}
	for _, x := range []struct {
		name, receiver string
		big            func() []byte
		small          func(prefix string) []byte
	}{
		{"one domain", limitedDomain,
			func() []byte { return goodFile(limitedDomain, "anna", rows) },
			func(prefix string) []byte { return goodFile(limitedDomain, prefix, 10) }},
		{"an operator with a host for each customer", "mail.protection.outlook.com",
			func() []byte { return tenantsFile("anna", rows/20, 20) },
			func(prefix string) []byte { return tenantsFile(prefix, 10, 1) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			smallBehindBig(t, x.receiver, x.big(), x.small)
		})
	}
}

// tenantsFile has addresses at the customers of an operator, so many at each.
func tenantsFile(prefix string, customers, each int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range customers {
		for k := range each {
			fmt.Fprintf(&b, "%s.%s@c%d-office365.test\n", prefix, letters(k), i)
		}
	}
	return b.Bytes()
}

func smallBehindBig(t *testing.T, receiver string, big []byte, small func(prefix string) []byte) {
	j := newJudged(t, fmt.Sprintf(wideAllowance, receiver, "20/s"))
	ctx, cancel := context.WithTimeout(t.Context(), loadWait)
	defer cancel()
	c := j.client()
	alone := j.end(ctx, c, j.submit(ctx, c, small("carl")))
	bigID := j.submit(ctx, c, big)
	for { // until the big one is at work
		d, err := look(ctx, c, bigID)
		if err != nil {
			t.Fatal(err)
		}
		if d.Progress.Completed > 100 {
			break
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			t.Fatalf("the big file does not begin: %+v", d)
		}
	}
	own := j.end(ctx, c, j.submit(ctx, c, small("dora")))
	if err := os.Remove(filepath.Join(j.folder, "tenant.json")); err != nil {
		t.Fatal(err)
	}
	j.open(1000) // another workspace
	other := j.end(ctx, j.client(), j.submit(ctx, j.client(), small("emil")))
	t.Logf("ten addresses took %.1f s alone, %.1f s behind %d bytes of the same workspace, %.1f s of another one",
		alone.Seconds(), own.Seconds(), len(big), other.Seconds())
	most := 3 * alone
	if !effort.Long() {
		most += 20 * time.Second // others run beside it; a turn behind the big file would take minutes
	}
	if own > most || other > most {
		t.Errorf("%v and %v behind the big file, want at most %v", own, other, most)
	}
	if code := j.node.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d", code)
	}
}
