package config

import (
	"strings"
	"testing"
)

func TestTracingIsCheckedAndReadFromTheEnvironment(t *testing.T) {
	for _, c := range []struct{ endpoint, sample, fault string }{
		{"", "0.01", ""},
		{"otel:4318", "1", ""},
		{"https://otel.example.com/v1/traces", "0", ""},
		{"otel", "0.5", "tracing.endpoint"},
		{"https://user:hunter2@otel.example.com", "0.5", "tracing.endpoint"},
		{"ftp://otel.example.com", "0.5", "tracing.endpoint"},
		{"otel:4318", "1.5", "tracing.sample"},
		{"otel:4318", "NaN", "tracing.sample"},
		{"otel:4318", "half", "tracing.sample"},
	} {
		got, err := Load("", []string{"ROLLCALL_TRACING_ENDPOINT=" + c.endpoint, "ROLLCALL_TRACING_SAMPLE=" + c.sample})
		switch {
		case c.fault == "" && (err != nil || got.Tracing.Endpoint != c.endpoint):
			t.Errorf("%s and %s: got %+v and %v", c.endpoint, c.sample, got.Tracing, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s and %s: got %v, want a fault of %s", c.endpoint, c.sample, err, c.fault)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("a password is repeated: %v", err)
		}
	}
}
