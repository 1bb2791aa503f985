package receiver

import (
	"testing"
	"time"

	"rollcall/actors/wire"
)

// TestSmallInterruptsTransactions: ten addresses that come while transactions of a hundred
// are on their way do not wait for their ends. One is interrupted between two RCPTs, and
// the receiver sees no limit broken.
func TestSmallInterruptsTransactions(t *testing.T) {
	a := openedWide()
	a.Connections, a.RcptsPerTransaction = 2, 100
	took := func(behind int) time.Duration {
		b := newBench(t, 50*time.Millisecond, "clean", a)
		if behind > 0 {
			big, _ := b.customer(1, behind, known)
			big.until("some answers", func() bool { return len(big.answers) > 150 })
		}
		came := time.Now()
		small, _ := b.customer(2, 10, known)
		small.until("all answers", func() bool { return len(small.answers) == 10 })
		b.checkManners(b.lab.Manners().Receivers[b.domain], a)
		return time.Since(came)
	}
	alone, behind := took(0), took(4*wire.AddressesMax)
	t.Logf("alone %s, behind %s: %.2f times", alone, behind, behind.Seconds()/alone.Seconds())
	if behind > 8*time.Second { // a transaction of the others takes five seconds, and more follow
		t.Errorf("ten addresses take %s, %s alone", behind, alone)
	}
}
