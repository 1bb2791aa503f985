package clerk

import (
	"cmp"
	"context"
	"slices"

	"rollcall/actors/inspect"
)

const (
	// findingsMax bounds the findings in one answer: more than a node with 50 sources and five block lists has. Guess.
	findingsMax = 500

	// sawMax bounds what a check saw, and what to do, in runes: texts of DNS may be long.
	sawMax = 300
)

// findingOrder is the order in which findings are told: what has to be seen to comes first.
var findingOrder = []string{"fail", "warn", "skipped", "ok"}

// health says what this node found of its identity.
func (c *Clerk) health() *inspect.Health {
	if c.options.Health == nil {
		return &inspect.Health{}
	}
	h := c.options.Health()
	h.Findings = slices.Clone(h.Findings)
	slices.SortStableFunc(h.Findings, func(a, b inspect.HealthFinding) int {
		return cmp.Compare(slices.Index(findingOrder, a.State), slices.Index(findingOrder, b.State))
	})
	if n := len(h.Findings); n > findingsMax {
		h.Findings, h.More = h.Findings[:findingsMax], h.More+n-findingsMax
	}
	h.Why = clip(h.Why)
	for i := range h.Findings {
		h.Findings[i].Saw, h.Findings[i].Next = clip(h.Findings[i].Saw), clip(h.Findings[i].Next)
	}
	return &h
}

// clip cuts a text that is too long.
func clip(text string) string {
	if all := []rune(text); len(all) > sawMax {
		return string(all[:sawMax]) + "…"
	}
	return text
}

// Health says what every node found of its identity: this node first, then those that take no probing work, then by name.
// The second value names those that do not answer.
func (c *Clerk) Health(ctx context.Context) ([]inspect.Health, []inspect.Silent, error) {
	all, err := c.ask(ctx, question{Kind: kindHealth})
	if err != nil {
		return nil, nil, err
	}
	own, out := c.name(), []inspect.Health{}
	for _, s := range all {
		if h := s.answer.Health; h != nil {
			h.Node, h.This = s.name, s.name == own
			out = append(out, *h)
		}
	}
	slices.SortStableFunc(out, func(a, b inspect.Health) int {
		return cmp.Or(first(b.This)-first(a.This), first(b.Known && !b.Probing)-first(a.Known && !a.Probing),
			cmp.Compare(a.Node, b.Node))
	})
	return out, silent(all), nil
}

// first is 1 for what comes first.
func first(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
