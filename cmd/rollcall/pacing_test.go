package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

// wideAllowance is one that stands in nobody's way but for its rate.
const wideAllowance = `
[retry]
control_waits = ["200ms", "400ms"]
[throttle.receivers.%q]
connections = 4
connection_rate = "60/min"
rcpt_rate = "20/s"
rcpts_per_connection = 1000
refused_per_session = 1000
refused_per_hour = 1000000
`

// goodFile has addresses that exist, none of another prefix: so many at each domain, whose name has its number for a #.
func goodFile(prefix, domain string, domains, each int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range domains {
		for k := range each {
			fmt.Fprintf(&b, "%s.%s@%s\n", prefix, letters(k), strings.ReplaceAll(domain, "#", fmt.Sprint(i)))
		}
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
		name, receiver, domain string
		domains, few           int // in the big file and in a small one
	}{
		{"one domain", limitedDomain, limitedDomain, 1, 1},
		{"an operator with a host for each customer", "mail.protection.outlook.com", "c#-office365.test", rows / 20, 10},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			smallBehindBig(t, x.receiver, goodFile("anna", x.domain, x.domains, rows/x.domains), func(prefix string) []byte {
				return goodFile(prefix, x.domain, x.few, 10/x.few)
			})
		})
	}
}

func smallBehindBig(t *testing.T, receiver string, big []byte, small func(prefix string) []byte) {
	o := quickLab()
	o.Latency = 5 * time.Millisecond
	lab := startLab(t, o)
	r := newRig(t, lab.DNSAddr(), lab.SMTPPort(), fmt.Sprintf(wideAllowance, receiver))
	node := r.serves()
	r.open(10_000_000)
	ctx, cancel := context.WithTimeout(t.Context(), loadWait)
	defer cancel()
	c := r.client()
	takes := func(prefix string) time.Duration {
		return awaitEnd(ctx, t, r.client(), mustHandIn(ctx, t, r.client(), small(prefix)))
	}
	alone := takes("carl")
	bigID := mustHandIn(ctx, t, c, big)
	await(ctx, t, "the big file to be at work", func() bool {
		return effort.Must(look(ctx, c, bigID))(t).Progress.Completed > 100
	})
	own := takes("dora")
	r.tenant = r.tenantOf("another", 1000)
	other := takes("emil")
	t.Logf("ten addresses took %.1f s alone, %.1f s behind %d bytes of the same workspace, %.1f s of another one",
		alone.Seconds(), own.Seconds(), len(big), other.Seconds())
	most := 3 * alone
	if !effort.Long() {
		most += 20 * time.Second // others run beside it; a turn behind the big file would take minutes
	}
	effort.ErrorIf(t, own > most || other > most, "%v and %v behind the big file, want at most %v", own, other, most)
	node.terminate()
}
