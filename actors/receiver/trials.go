package receiver

import (
	"context"
	"time"

	"rollcall/actors/view"
	"rollcall/smtp/throttle"
)

// keepTrials lets each of our sources keep a log of its trials, once one was bad.
func (d *desk) keepTrials() {
	for _, o := range d.outlets {
		o.causes.KeepTrials(&d.seat.living.trials, func(at time.Time) float64 {
			rate, _ := o.tempo.Permits(at)
			return rate.PerSecond()
		})
	}
}

// dropTrials ends these logs.
func (d *desk) dropTrials() {
	for _, o := range d.outlets {
		o.causes.DropTrials()
	}
}

// trialsOf gives the logs of the desk, one behind the other.
func (d *desk) trialsOf(time.Time) (out []throttle.TrialLine) {
	for _, o := range d.outlets {
		if lines := o.causes.Trials(); len(lines) > 0 {
			lines[0].Receiver, lines[0].Source = d.key, view.SourceName(o.name)
			out = append(out, lines...)
		}
	}
	return out
}

// trialLinesMost bounds the lines of one answer: the logs of some sources, or shards.
const trialLinesMost = 20_000

// Trials gives the logs of trials of the receivers that a key, or the name of a rule, stands for, one behind
// the other, and how many receivers live here that it stands for. It ends with ctx, as Survey does.
func (l *Living) Trials(ctx context.Context, key string) (out []throttle.TrialLine, receivers int) {
	all := inquire(ctx, l, standsFor(key), (*desk).trialsOf)
	for _, lines := range all {
		if len(out)+len(lines) <= trialLinesMost {
			out = append(out, lines...)
		}
	}
	return out, len(all)
}
