package operate

import (
	"slices"
	"testing"

	waiting "rollcall/actors/inspect"
)

func TestHeldFields(t *testing.T) {
	field := func(name, layer string) waiting.ExplainedField {
		return waiting.ExplainedField{Field: name, Said: waiting.Said{Layer: layer}}
	}
	fields := []waiting.ExplainedField{field("connections", "learned"), field("rcpt_rate", "penalty"), field("pause", "override"),
		field("connection_rate", "default")}
	for cause, want := range map[string][]string{"penalty": {"connections", "rcpt_rate"}, "allowance": {"rcpt_rate"}, "paused": {"pause"},
		"connections": {"connections", "connection_rate"}, "free": nil, "no healthy source": nil, "a new one": nil} {
		if got := heldFields(cause, fields); !slices.Equal(got, want) {
			t.Errorf("%s is held back by %v, want %v", cause, got, want)
		}
	}
	if got := heldFields("penalty", fields[2:]); got != nil {
		t.Errorf("a receiver that taught us nothing is held back by %v", got)
	}
}
