package receiver

import (
	"context"

	"rollcall/actors/receiver/scheduler"
	"rollcall/smtp/throttle"
)

// trialLinesMost bounds the lines of one answer: the logs of some sources, or shards.
const trialLinesMost = 20_000

// Trials gives the logs of trials of the receivers that a key, or the name of a rule, stands for, one behind
// the other, and how many receivers live here that it stands for. It ends with ctx, as Survey does.
func (l *Registry) Trials(ctx context.Context, key string) (out []throttle.TrialLine, receivers int) {
	all := inquire(ctx, l, standsFor(key), (*scheduler.Scheduler).Trials)
	for _, lines := range all {
		if len(out)+len(lines) <= trialLinesMost {
			out = append(out, lines...)
		}
	}
	return out, len(all)
}
