package domain

import (
	"time"

	"rollcall/smtp"
)

// pending is what is kept of one address from its first answer to its outcome. There
// may be as many as a file has rows: 40 bytes each, and 16 for each attempt, which
// the attempt log holds. Its times count from the start of the planner.
type pending struct {
	since   time.Duration // the first answer, from which the time to give up counts
	due     time.Duration // the next attempt
	grey    time.Duration // put off itself for the first time, at the source that from names
	ordinal uint32
	newest  uint32      // note of the newest attempt; 0: there is none
	omitted uint16      // attempts that are not kept
	from    uint16      // number of a source; 0: not put off itself
	reason  smtp.Reason // why it was put off last
	waits   uint8       // how many of the configured waits are used up, at most waitsMax
	kept    uint8       // notes
	marks   uint8
}

// waitsMax is where the count of waits stops: no configuration has as many.
const waitsMax = 1<<8 - 1

// Bits of pending.marks.
const (
	markNamed = 1 << iota // the receiver named the wait
	markEarly             // asked again before the configured wait was over
	markHeld              // waited for longer than it had to, because our ledger stalled
	markAsked             // a RCPT was sent for it
)

// deferrals is a heap of the addresses that wait for their next attempt, soonest first.
type deferrals []pending

func (d deferrals) Len() int           { return len(d) }
func (d deferrals) Less(i, j int) bool { return d[i].due < d[j].due }
func (d deferrals) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *deferrals) Push(x any) { *d = append(*d, x.(pending)) }

// Pop implements heap.Interface.
func (d *deferrals) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// due calls do for each address whose time has come, until it returns false: those lie together at the top of the heap.
func (d deferrals) due(since time.Duration, do func(p *pending) bool) {
	var below func(i int) bool
	below = func(i int) bool {
		if i >= len(d) || d[i].due > since {
			return true
		}
		return do(&d[i]) && below(2*i+1) && below(2*i+2)
	}
	below(0)
}
