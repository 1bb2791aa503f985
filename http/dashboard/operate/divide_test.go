package operate

import (
	"testing"

	waiting "rollcall/actors/inspect"
)

// TestChecksThatFailAreShownFirst gives two nodes more checks than the page has room for.
func TestChecksThatFailAreShownFirst(t *testing.T) {
	of := func(states ...string) (n nodeHealth) {
		for _, s := range states {
			n.Findings = append(n.Findings, waiting.HealthFinding{State: s})
		}
		return n
	}
	nodes := []nodeHealth{of("ok", "ok", "skipped", "fail"), of("warn", "ok", "ok")}
	divideChecks(nodes, 4)
	one, two := nodes[0], nodes[1]
	if len(one.Bad) != 1 || len(two.Bad) != 1 || len(one.Rest) != 2 || len(two.Rest) != 0 || one.More != 1 || two.More != 2 {
		t.Errorf("%+v %+v", one, two)
	}
}
