package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"rollcall/config"
	"rollcall/config/effort"
	spans "rollcall/ledger/tracing"
)

// otlp is a collector of spans that keeps what it gets.
type otlp struct {
	*httptest.Server
	mu    sync.Mutex
	bytes []byte
	spans []*trace.Span
}

func newOTLP(t *testing.T) *otlp {
	t.Helper()
	o := &otlp{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		effort.ErrorIf(t, err != nil || r.URL.Path != "/v1/traces", "%s: %v", r.URL.Path, err)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.bytes = append(o.bytes, body...)
		for _, resource := range sent.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				o.spans = append(o.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(o.Close)
	return o
}

// about gives the value that a span has for a key.
func about(s *trace.Span, key spans.Key) *common.AnyValue {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == string(key) {
			return a.GetValue()
		}
	}
	return nil
}

// TestTracesTellWhatTookTimeAndNoAddress sends a file through a node that traces
// everything, from create to download, and looks at every byte that the collector got.
func TestTracesTellWhatTookTimeAndNoAddress(t *testing.T) {
	t.Parallel()
	o, folder := newOTLP(t), filepath.Join(t.TempDir(), "data")
	n := labNode(t, folder, func(c *config.Config) {
		openedWide(t, c, false)
		c.Tracing = config.Tracing{Endpoint: strings.TrimPrefix(o.URL, "http://"), Sample: 1}
	})
	var file strings.Builder
	var secret []string
	for i, box := range []string{"zqanna", "zqgone-unknown", "zqbert", "zqcarl"} {
		secret = append(secret, box) // fewer bytes would be in some number of a span by chance
		for j := range 5 {
			local := fmt.Sprintf("%s.%d%d", box, i, j)
			secret = append(secret, local)
			fmt.Fprintf(&file, "%s@traced-%s.test\n", local, []string{"clean", "onercpt"}[j%2])
		}
	}
	addresses := int64(strings.Count(file.String(), "@"))
	customer, text := customerOf(t, n, folder, "traced", addresses), "email\n"+file.String()
	made := effort.Must(customer.Create(t.Context(), uuid.New(), int64(len(text)), "a.csv"))(t)
	target, reader := made.Upload.URL, strings.NewReader(text)
	effort.OK(t, customer.Upload(t.Context(), target, reader, reader.Size(), func(int64) {}))
	end(t.Context(), customer, made.ID)
	effort.OK(t, writeResults(t.Context(), customer, made.ID, io.Discard))
	secret = append(secret, customer.Key, target[strings.LastIndex(target, "/")+1:])
	if err := n.Stop(t.Context()); err != nil { // sessions end, and then the last spans are sent
		t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range secret {
		effort.ErrorIf(t, bytes.Contains(o.bytes, []byte(s)), "the collector was told %q", s)
	}
	o.check(t, made.ID, addresses)
}

// check looks for each kind of span, what it tells, and what stands below it.
func (o *otlp) check(t *testing.T, id string, addresses int64) {
	t.Helper()
	byName, byID, settled, asked := map[string]int{}, map[string]string{}, int64(0), int64(0)
	for _, s := range o.spans {
		byName[s.GetName()]++
		byID[string(s.GetSpanId())] = s.GetName()
	}
	parents := map[string]bool{}
	for _, s := range o.spans {
		parents[byID[string(s.GetParentSpanId())]+" > "+s.GetName()] = true
		verification := about(s, spans.Verification).GetStringValue()
		switch spans.Name(s.GetName()) {
		case spans.Settle:
			settled += about(s, spans.Addresses).GetIntValue()
		case spans.Session:
			asked += about(s, spans.Rcpts).GetIntValue()
			if about(s, spans.Receiver).GetStringValue() == "" || about(s, spans.Host).GetStringValue() == "" {
				t.Errorf("a session's span has no receiver or host: %v", s.GetAttributes())
			}
		}
		if verification != "" && verification != id {
			t.Errorf("%s is about the verification %q, want %q", s.GetName(), verification, id)
		}
	}
	effort.ErrorIf(t, settled != addresses || asked < addresses,
		"spans tell of %d addresses settled and %d RCPTs, want %d and at least that", settled, asked, addresses)
	for _, name := range []spans.Name{spans.Request, spans.Upload, spans.Append, spans.Lease, spans.Intake,
		spans.Settle, spans.Session, spans.LedgerWrite, spans.LedgerRead} {
		effort.Not(t, byName[string(name)], 0, "spans of", name, byName)
	}
	for _, wanted := range []string{"http.request > ledger.write", "http.request > ledger.read",
		"upload.request > upload.append", "upload.append > ledger.write", "settle > ledger.write"} {
		effort.ErrorIf(t, !parents[wanted], "nothing is %s; there are %v", wanted, parents)
	}
}
