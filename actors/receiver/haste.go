package receiver

import (
	"fmt"
	"math"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// shortRest is up to how long a source rests without a word to those who wait; what
	// takes longer is told to them, and sessions end. Guess: below it telling them and
	// having their probes again is more work than waiting.
	shortRest = time.Minute
)

// tune gives every source a tempo of its own.
func (d *desk) tune(now time.Time, whole throttle.Limits) {
	for _, o := range d.outlets {
		o.tempo = throttle.NewAdaptiveRate(d.bounds(whole), now)
		rate, _ := o.tempo.Permits(now)
		o.rcpts = throttle.NewWindow(rate, now)
	}
}

// conduct keeps the tempo of every source, and its Window, to what is allowed now.
func (d *desk) conduct(now time.Time, whole throttle.Limits) {
	b := d.bounds(whole)
	d.at(d.opening.conduct(b, whole.ConnectionRate, d.allowance.ConnectionRate, now))
	for _, o := range d.outlets {
		o.tempo.Set(b, now)
		rate, _ := o.tempo.Permits(now)
		o.rcpts.Set(rate)
		d.at(o.tempo.Next(now))
	}
}

// bounds are those of every tempo: what the receiver as a whole allows, and our share.
func (d *desk) bounds(whole throttle.Limits) throttle.RateBounds {
	waits := d.waits()
	b := throttle.RateBounds{Ceiling: whole.RcptRate, Stated: d.options.stated(d.key), Rest: waits[len(waits)-1]}
	if !d.share.none() {
		b.Share = float64(d.share.k) / float64(d.share.n)
	}
	return b
}

// stated says whether somebody has said how fast a receiver may be asked.
func (o *Options) stated(key string) bool { return o.Stated == nil || o.Stated(key) }

// waits are those of a penalty that names no time.
func (d *desk) waits() []time.Duration {
	if own := d.allowance.Waits.List(); len(own) > 0 {
		return own
	}
	return d.options.Waits
}

// goes is how many probes the tempo of a source lets go at a time of sending, and when it
// lets none go the time to ask again; zero: when an open probe is answered.
func (o *outlet) goes(at time.Time) (int, time.Time) {
	if !o.tempo.Limits(at) {
		return math.MaxInt, time.Time{}
	}
	if _, until := o.tempo.Permits(at); at.Before(until) {
		return 0, until
	}
	return o.rcpts.Ready(at)
}

// undone takes back n RCPTs that were permitted and not sent.
func (d *desk) undone(s *session, n int) {
	d.rcpts.Undo(n)
	s.outlet.rcpts.Undo(n)
}

// done notes that the receiver saw n RCPTs, no later than at.
func (d *desk) done(s *session, at time.Time, n int) {
	d.rcpts.Done(at, n)
	s.outlet.rcpts.Done(at, n)
}

// heard tells a source's tempo about an answer that says nothing against it.
func (d *desk) heard(now time.Time, s *session, a *answered) {
	if a.told.verdict.Outcome == smtp.Undecided && a.told.verdict.Action != verdict.ActNextMX {
		s.outlet.tempo.OnOther(a.sent)
		return
	}
	s.outlet.tempo.OnSuccess(a.sent, now)
	if a.told.accepted() && !s.slow { // refusals may be held back on purpose
		s.outlet.tempo.OnLatency(a.at.Sub(a.sent), now)
	}
}

// hasty says whether a verdict says that we ask too fast.
func hasty(v verdict.Verdict) bool {
	return (v.Action == verdict.ActSlow || v.Action == verdict.ActPause) && v.Reason == smtp.ReceiverRateLimited
}

// tooFast follows a word about haste, about what was sent at a time. The source goes
// slower, and rests for some seconds. The whole receiver rests when a time was named, when
// the verdict is to pause, and when short rests did not help; then those who wait are told.
// Soon says whether the probe can be asked again here within a short while.
func (d *desk) tooFast(now time.Time, o *outlet, told verdictOf, sent time.Time) (soon bool) {
	d.dirty = true
	if o.tempo.OnThrottled(sent, now, words(told.attempt)) {
		e := o.tempo.Explain(now)
		d.options.Log.Info("receiver wants less", "receiver", d.key, "source", o.name, "rate", e.Rate, "why", e.Why)
	}
	rest := o.tempo.Explain(now).Until.Sub(now)
	switch {
	case told.verdict.Wait > 0 && told.verdict.Reason != smtp.Greylisted: // which waits for its address
		d.pause(now, told)
		return false
	case rest > shortRest:
		told.verdict.Wait = rest
		d.pause(now, told)
		return false
	}
	d.halt(func(s *session) bool { return s.outlet == o })
	return true
}

// rested tells the tempo of every source that the receiver rests: after that nothing goes
// at the full rate at once.
func (d *desk) rested(now time.Time) {
	for _, o := range d.outlets {
		o.tempo.Rested(d.paused, now)
	}
}

// words are those of an attempt for people: its code, or why there was none.
func words(a evidence.Attempt) string {
	switch {
	case a.Code == 0:
		return a.Trouble.String()
	case a.Enhanced != (smtp.EnhancedCode{}):
		return fmt.Sprintf("%d %s", a.Code, a.Enhanced)
	}
	return fmt.Sprint(a.Code)
}
