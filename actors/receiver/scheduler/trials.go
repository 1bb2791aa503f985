package scheduler

import (
	"time"

	"rollcall/actors/view"
	"rollcall/smtp/throttle"
)

// keepTrials lets each of our sources keep a log of its trials, once one was bad.
func (ps *paths) keepTrials() {
	for _, o := range ps.all {
		o.causes.KeepTrials(ps.allowance.handle.Trials(), func(at time.Time) float64 {
			rate, _ := o.rate.Permits(at)
			return rate.PerSecond()
		})
	}
}

// dropTrials ends these logs.
func (ps *paths) dropTrials() {
	for _, o := range ps.all {
		o.causes.DropTrials()
	}
}

// trials gives the logs of all sources, one behind the other.
func (ps *paths) trials() (out []throttle.TrialLine) {
	for _, o := range ps.all {
		if lines := o.causes.Trials(); len(lines) > 0 {
			lines[0].Receiver, lines[0].Source = ps.key, view.SourceName(o.name)
			out = append(out, lines...)
		}
	}
	return out
}
