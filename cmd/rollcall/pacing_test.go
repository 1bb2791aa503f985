package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

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
	r := newRig(t, lab.DNSAddr(), lab.SMTPPort(), settings)
	node := r.serves()
	r.open(10_000_000)
	return &trialRig{r, lab, node}
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
		{"one domain", limitedDomain, func() []byte { return goodFile(limitedDomain, "anna", rows) },
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
	alone := awaitEnd(ctx, t, c, mustHandIn(ctx, t, c, small("carl")))
	bigID := mustHandIn(ctx, t, c, big)
	await(ctx, t, "the big file to be at work", func() bool {
		return effort.Must(look(ctx, c, bigID))(t).Progress.Completed > 100
	})
	own := awaitEnd(ctx, t, c, mustHandIn(ctx, t, c, small("dora")))
	j.tenant = j.tenantOf("another", 1000)
	other := awaitEnd(ctx, t, j.client(), mustHandIn(ctx, t, j.client(), small("emil")))
	t.Logf("ten addresses took %.1f s alone, %.1f s behind %d bytes of the same workspace, %.1f s of another one",
		alone.Seconds(), own.Seconds(), len(big), other.Seconds())
	most := 3 * alone
	if !effort.Long() {
		most += 20 * time.Second // others run beside it; a turn behind the big file would take minutes
	}
	effort.ErrorIf(t, own > most || other > most, "%v and %v behind the big file, want at most %v", own, other, most)
	j.node.terminate()
}
