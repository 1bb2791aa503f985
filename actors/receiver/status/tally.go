package status

// Spans is how many seconds or minutes Tallies sums.
const Spans = 10

// Tally counts what was asked and answered in a span of time.
type Tally struct {
	at                                 int64
	Asked, Answered, Refused, Deferred int32
}

// Tallies is a ring of the newest spans. The zero value is ready.
type Tallies [Spans + 1]Tally

// Of returns the tally of a span. A new span replaces the oldest. A span older than the ring isn't counted.
func (r *Tallies) Of(at int64) *Tally {
	t := &r[at%int64(len(r))]
	if t.at > at {
		return new(Tally)
	}
	if t.at != at {
		*t = Tally{at: at}
	}
	return t
}

// Sum adds up the ten spans up to span last.
func (r *Tallies) Sum(last int64) (all Tally) {
	for _, t := range r {
		if t.at > last-Spans && t.at <= last {
			all.Asked += t.Asked
			all.Answered += t.Answered
			all.Refused += t.Refused
			all.Deferred += t.Deferred
		}
	}
	return all
}
