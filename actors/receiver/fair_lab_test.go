package receiver

import (
	"strings"
	"testing"
	"time"

	"rollcall/actors/wire"
)

// TestSmallBesideTransactions: ten addresses that come while transactions of a hundred are on their way do not wait for
// all of these, and the receiver sees no limit broken. What it waited is counted in RCPTs of the others that the lab
// saw before the first of its own, so that it says the same on a slow machine.
func TestSmallBesideTransactions(t *testing.T) {
	t.Parallel()
	a := openedWide()
	a.Connections, a.RcptsPerTransaction = 2, 100
	b := newBench(t, 10*time.Millisecond, "clean", a)
	big, _ := b.customer(1, 4*wire.AddressesMax, known)
	big.until("some answers", func() bool { return len(big.answers) > 150 })
	came := len(b.times("rcpt"))
	eventually(t, "transactions under way", func() bool { return len(b.times("rcpt")) >= came+10 })
	came = len(b.times("rcpt"))
	small, _ := b.customer(2, 10, func(n int) string { return "small." + letters(n) })
	small.until("all answers", func() bool { return len(small.answers) == 10 })
	others := -came
	for _, e := range b.lab.Events() {
		if e.Kind == "rcpt" {
			if strings.HasPrefix(e.Address, "small.") {
				break
			}
			others++
		}
	}
	t.Logf("%d RCPTs of others came before", others)
	if others > othersBefore {
		t.Errorf("ten addresses waited for %d RCPTs of others, in transactions of a hundred", others)
	}
	b.checkManners(b.lab.Manners().Receivers[b.domain], a)
}

// othersBefore is how many addresses two sessions may have been given before.
const othersBefore = 2 * 64
