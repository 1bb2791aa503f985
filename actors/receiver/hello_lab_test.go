package receiver

import (
	"testing"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// TestHostsThatBearLessThanTheyOffer asks existing and missing mailboxes, on real connections, of hosts that
// refuse EHLO, and of hosts whose sessions break as soon as they are encrypted: each is answered.
func TestHostsThatBearLessThanTheyOffer(t *testing.T) {
	for _, personality := range []string{"heloonly", "heloagain", "tlsdies", "tlsmute"} {
		t.Run(personality, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 0, personality, openedWide())
			c, _ := b.customer(1, 4, func(n int) string { return []string{"anna", "ghosta", "bert", "ghostb"}[n] })
			c.until("all answers", func() bool { return len(c.told) >= 4 })
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, a := range c.told {
				want := smtp.Valid
				if a.Ordinal%2 == 1 {
					want = smtp.Invalid
				}
				effort.Is(t, a.Outcome, want, a.Ordinal, a.Reason)
			}
		})
	}
}
