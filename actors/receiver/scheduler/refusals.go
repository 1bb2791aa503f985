package scheduler

import (
	"math"
	"time"
)

// refusalWeight returns how many RCPTs one refusal of a source costs everybody; 1: refusals are not
// scarce there.
func (ps *paths) refusalWeight(o *egressPath) float64 {
	return o.refusals.WeighRefusal(min(ps.limits.RcptRate.PerSecond(), o.pace.Lasting()))
}

// chargeRefusal charges a refusal to the flow and the tenant whose address was refused, where refusals are
// scarce: so tenants, and the files of one, share them by weight.
func (qs *queues) chargeRefusal(now time.Time, l *hostQueue, o *egressPath, p *Probe) {
	if w := qs.paths.refusalWeight(o); w > 1 && !p.chunk.gone() {
		l.ChargeScarce(now, qs.flowOf(p.chunk.task), w-1, w*float64(o.refusals.CountAllowed()))
	}
}

// perHourByRefusals is how many addresses can be asked in an hour where such a part of them is refused.
// What is allowed comes in steps of an hour, so it depends on how many wait.
func (ps *paths) perHourByRefusals(now time.Time, part float64, wait int) float64 {
	for _, o := range ps.all {
		if now.Before(o.until) || wait == 0 || ps.limits.RefusedShare > 0 {
			continue
		}
		if t := o.refusals.TimeFor(int(math.Ceil(float64(wait)*part)), now); t > 0 {
			return float64(wait) / t.Hours()
		}
		return math.Inf(1)
	}
	return float64(ps.limits.RefusedPerHour) / part / ps.options.Sources.Hour.Of(time.Hour).Hours()
}
