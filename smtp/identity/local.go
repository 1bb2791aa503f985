package identity

import (
	"fmt"
	"time"
)

// clockOff is how far the machine's clock may be from the ledger's before somebody is
// told.
const clockOff = 2 * time.Second

// CheckClock compares the machine's clock with the ledger's; ok says that the offset is
// known. A wrong clock is a warning and never a failure: no receiver sees it, waits and
// shares are by the ledger's clock or are lengths of time (docs/operators/cluster.md), and when it
// is the ledger's that is wrong, a failure would stop every node at once.
func CheckClock(offset time.Duration, ok bool, now time.Time) Finding {
	f := Finding{Check: Clock, At: now}
	switch {
	case !ok:
		f.State, f.Saw = Skipped, "the ledger is on this machine, or has not answered yet"
	case offset.Abs() > clockOff:
		f.State, f.Saw = Warn, fmt.Sprintf("the ledger's clock is %s %s", offset.Abs().Round(time.Second/10),
			map[bool]string{true: "ahead", false: "behind"}[offset > 0])
		f.Next = "Mend the time service of this machine or of the database: times of evidence and logs are wrong."
	default:
		f.State, f.Saw = OK, "within 2s of the ledger's"
	}
	return f
}

// Resting is how receivers take one source.
type Resting struct {
	Source string    // address; "": the one that the system chooses
	Until  time.Time // it is rested altogether until then; zero: it is not
	Why    string
	Blocks int // receivers at which it is rested
}

// CheckRest judges the sources by what receivers said: one that many refuse is rested,
// and a node whose every source is rested can ask nobody.
func CheckRest(list []Resting, now time.Time) []Finding {
	resting := 0
	for _, s := range list {
		if s.Until.After(now) {
			resting++
		}
	}
	var out []Finding
	for _, s := range list {
		f := Finding{Check: Rest, Source: s.Source, State: OK, At: now, Saw: "receivers take us"}
		switch {
		case s.Until.After(now):
			f.State = Warn
			if resting == len(list) {
				f.State = Fail
			}
			f.Saw = fmt.Sprintf("paused until %s: %s", s.Until.UTC().Format("15:04:05Z"), s.Why)
			f.Next = "Look in `rollcall evidence` for what receivers say; the source is tried again by itself."
		case s.Blocks > 0:
			f.Saw = fmt.Sprintf("paused at receivers: %d", s.Blocks)
		}
		out = append(out, f)
	}
	return out
}
