package receiver

import (
	"math"
	"time"
)

// refusalWeight returns as how many RCPTs a refusal by way of a source counts; 1: refusals are
// not scarce there.
func (d *desk) refusalWeight(o *outlet) float64 {
	return o.budget.WeighRefusal(min(d.allowance.RcptRate.PerSecond(), o.tempo.Lasting()))
}

// chargeRefusal lets a refusal count for whose address was refused, as far as refusals are scarce:
// so customers, and the files of one, share them by weight.
func (d *desk) chargeRefusal(now time.Time, s *session, p *probe) {
	if w := d.refusalWeight(s.outlet); w > 1 && !p.chunk.gone() {
		s.lane.ChargeScarce(now, d.tasks.flow(p.chunk.task), w-1, w*float64(s.outlet.budget.CountAllowed()))
	}
}

// perHourByRefusals is how many addresses can be asked in an hour where such a part of them is refused.
// What is allowed comes in steps of an hour, so it depends on how many wait.
func (d *desk) perHourByRefusals(now time.Time, part float64) float64 {
	wait := d.tasks.queue.Queued() + d.tasks.behind
	for _, o := range d.outlets {
		if now.Before(o.until) || wait == 0 || d.allowance.RefusedShare > 0 {
			continue
		}
		if t := o.budget.TimeFor(int(math.Ceil(float64(wait)*part)), now); t > 0 {
			return float64(wait) / t.Hours()
		}
		return math.Inf(1)
	}
	return float64(d.allowance.RefusedPerHour) / part / d.options.Sources.Hour.Of(time.Hour).Hours()
}

// refusalsFor returns how many probes of a lane may begin now by the budget of a source, and when
// none may, when to ask again. A lane whose customers have used up more than those who wait in
// another one, which has a session, leaves them their part of what is left.
func (d *desk) refusalsFor(now time.Time, l *lane, o *outlet) (n int, next time.Time) {
	n, next = o.budget.Ready(now)
	weight := d.refusalWeight(o)
	if n <= 0 || weight <= 1 || l.Queued() == 0 {
		return n, next
	}
	rank := l.Rank()
	for _, s := range d.sessions {
		if s.lane == l || s.outlet != o || s.closing || s.lane.Queued() == 0 || !rank.Ahead(s.lane.Rank(), weight) {
			continue
		}
		part := 1 - d.tasks.queue.Fraction(l.First())
		if n -= int(math.Ceil(part * float64(o.budget.CountAllowed()))); n <= 0 {
			return 0, now.Add(asideFor)
		}
		return n, next
	}
	return n, next
}
