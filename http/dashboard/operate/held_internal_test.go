package operate

import (
	"testing"

	waiting "rollcall/actors/inspect"
)

// TestOneLimitHolds: the page of a receiver marks one limit and no other.
func TestOneLimitHolds(t *testing.T) {
	t.Parallel()
	field := func(name, layer, value string) waiting.ExplainedField {
		return waiting.ExplainedField{Field: name, Value: value, Said: waiting.Said{Layer: layer}}
	}
	fields := []waiting.ExplainedField{field("connections", "learned", "2"), field("rcpt_rate", "penalty", "1/s"),
		field("pause", "override", "yes"), field("refused_share", "default", "0.3")}
	for _, c := range []struct {
		r    waiting.Receiver
		want string
	}{
		{waiting.Receiver{Cause: "penalty"}, "connections"}, {waiting.Receiver{Cause: "allowance"}, "rcpt_rate"},
		{waiting.Receiver{Cause: "paused"}, "pause"}, {waiting.Receiver{Cause: "connections", Sessions: 2, Most: 2}, "connections"},
		{waiting.Receiver{Cause: "connections", Sessions: 1, Most: 2}, "connection_rate"},
		{waiting.Receiver{Cause: "budget"}, "refused_per_hour"}, {waiting.Receiver{Cause: "budget", Budget: 3}, "refused_share"},
		{waiting.Receiver{Cause: "free"}, ""}, {waiting.Receiver{Cause: "no healthy source"}, ""},
	} {
		if got := heldField(c.r, fields); got != c.want {
			t.Errorf("%+v is held back by %q, want %q", c.r, got, c.want)
		}
	}
	if got := heldField(waiting.Receiver{Cause: "penalty"}, fields[2:]); got != "" {
		t.Errorf("a receiver that taught us nothing is held back by %q", got)
	}
	for _, cause := range waiting.Causes {
		if heldBy[cause] == "" {
			t.Errorf("no sentence says what %q is", cause)
		}
	}
}
