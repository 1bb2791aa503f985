package node

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/ledger/tracing"
)

func TestEndpointsAreURLs(t *testing.T) {
	for text, want := range map[string]string{
		"otel:4318":                        "http://otel:4318/v1/traces",
		"http://otel:4318/":                "http://otel:4318/v1/traces",
		"https://otel.example.com/in/here": "https://otel.example.com/in/here",
		"http://[::1":                      "",
	} {
		if got, err := endpointURL(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q and %v, want %q", text, got, err, want)
		}
	}
}

func TestACollectorThatIsAwayIsToldOfOnceInAWhile(t *testing.T) {
	var asked atomic.Int64
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer away.Close()
	var log lines
	provider := effort.Must(spansTo(t.Context(), config.Tracing{Endpoint: away.URL, Sample: 1}, uuid.New(),
		slog.New(slog.NewTextHandler(&log, nil))))(t)
	for range 3 {
		_, span := tracing.New(provider).Begin(t.Context(), tracing.Settle)
		span.End(false)
		effort.Not(t, provider.ForceFlush(t.Context()), nil, "the collector took spans that it refused")
	}
	_ = provider.Shutdown(t.Context())
	c := complaints{log: slog.New(slog.NewTextHandler(&log, nil))}
	before := log.count.Load()
	for range 100 {
		c.Handle(io.ErrUnexpectedEOF)
	}
	if got := log.count.Load() - before; got != 1 || asked.Load() < 3 {
		t.Errorf("%d lines for 100 errors, and %d requests; want one line", got, asked.Load())
	}
}

// lines counts what is logged.
type lines struct{ count atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.count.Add(1)
	return len(p), nil
}
