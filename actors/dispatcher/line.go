package dispatcher

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// waiter is a leased verification that is not begun yet.
type waiter struct {
	state ledger.Verification
	since time.Time
}

// line holds leased verifications until there is memory for their files. It is
// plain Go. Mailbox only.
type line struct {
	waiters []waiter // oldest first
	bytes   int64    // of the files that are begun
	begun   int
	max     int64
}

// join puts a verification at the end of the line.
func (l *line) join(now time.Time, v ledger.Verification) {
	l.waiters = append(l.waiters, waiter{v, now})
}

// next takes the first whose file fits. A small one may overtake a large one
// for a while only, so that the large one gets its turn.
func (l *line) next(now time.Time) (ledger.Verification, bool) {
	for i, w := range l.waiters {
		if l.begun == 0 || l.bytes+w.state.Bytes <= l.max {
			l.waiters = slices.Delete(l.waiters, i, i+1)
			l.begun++
			l.bytes += w.state.Bytes
			return w.state, true
		}
		if now.Sub(w.since) > overtakeMax {
			break
		}
	}
	return ledger.Verification{}, false
}

// leave takes a verification out of the line.
func (l *line) leave(id uuid.UUID) {
	l.waiters = slices.DeleteFunc(l.waiters, func(w waiter) bool { return w.state.ID == id })
}

// ended frees the memory of a verification that was begun.
func (l *line) ended(bytes int64) {
	l.begun--
	l.bytes -= bytes
}
