package sqlstore

import (
	"fmt"
	"testing"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// TestABreakdownForgetsTheDomainsWithFewUnknown: memory is bounded, and the breakdown says that counts may be too low.
func TestABreakdownForgetsTheDomainsWithFewUnknown(t *testing.T) {
	t.Parallel()
	c := tally{reasons: map[ledger.ReasonCount]int64{}, domains: map[string]*unknowns{}, most: 4}
	ask := func(domain string, times int) {
		for range times {
			results := []ledger.Result{{Email: "a@" + domain, Outcome: smtp.Unknown, Reason: smtp.Greylisted}}
			p := effort.Must(ledger.EncodeResults(results))(t)
			var b ledger.Batch
			effort.OK(t, b.Decode(p.Bytes))
			c.add(&b)
		}
	}
	ask("worst.test", 5)
	ask("bad.test", 3)
	for i := range 2 {
		ask(fmt.Sprintf("d%d.test", i), 1)
	}
	if down := c.breakdown(); down.AtLeast || len(down.Worst) != 4 {
		t.Errorf("with room for all: %+v", down)
	}
	for i := range 20 {
		ask(fmt.Sprintf("e%d.test", i), 1)
		effort.FatalIf(t, len(c.domains) > c.most, "%d domains in memory", len(c.domains))
	}
	ask("bad.test", 1)
	down := c.breakdown()
	want := []ledger.DomainCount{{Domain: "worst.test", Unknown: 5, Reason: smtp.Greylisted}, {Domain: "bad.test", Unknown: 4, Reason: smtp.Greylisted}}
	effort.ErrorIf(t, !down.AtLeast || len(down.Worst) < 2 || down.Worst[0] != want[0] || down.Worst[1] != want[1] ||
		down.Reasons[0].Count != 31, "got %+v", down)
}
