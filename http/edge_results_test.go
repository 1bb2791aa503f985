package http_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	httpd "rollcall/http"
	"rollcall/http/listen/listentest"
	"rollcall/ledger"
	"rollcall/smtp"
)

// TestResultsAreCSV reads results with an independent reader, before, in the middle and after.
func TestResultsAreCSV(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	if a := e.do(call{method: "GET", path: "/v1/verifications/" + e.create("1").String() +
		"/results"}); string(a.body) != "email,result,message,checked_at\n" {
		t.Errorf("before the upload: %q", a.body)
	}
	rows := results(20000)
	rows[0].Email, rows[0].Outcome, rows[0].Reason = `"a,b"@example.com`, smtp.Invalid, smtp.MailboxNotFound
	rows[1].Email = "=1+1@example.com"
	id := e.verified(20001, rows).String()
	a := e.do(call{method: "GET", path: "/v1/verifications/" + id + "/results"})
	for name, want := range map[string]string{
		"Content-Type": "text/csv", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Content-Disposition": `attachment; filename="results-` + id + `.csv"`,
	} {
		if a.header.Get(name) != want {
			t.Errorf("%s %q, want %q", name, a.header.Get(name), want)
		}
	}
	records, err := csv.NewReader(bytes.NewReader(a.body)).ReadAll()
	if err != nil || len(records) != len(rows)+1 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, r := range rows {
		want := []string{r.Email, r.Outcome.String(), r.Reason.Message(), "2026-01-02T03:04:05.678Z"}
		if strings.Join(records[i+1], "|") != strings.Join(want, "|") {
			t.Fatalf("row %d: %q, want %q", i, records[i+1], want)
		}
	}
}

// TestResultsFault cuts the connection when the ledger fails in the middle, so
// that no client takes half a file for a whole one; a fault before the first
// byte is an answer.
func TestResultsFault(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	id := e.verified(20000, results(20000)).String()
	e.book.cut.Store(10000)
	c := call{method: "GET", path: "/v1/verifications/" + id + "/results"}
	a, err := e.try(c)
	if a.status != 200 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut in the middle: %d, %d bytes, %v; want an unexpected end", a.status, len(a.body), err)
	}
	e.book.cut.Store(5)
	if a := e.do(c); a.status != 503 || a.code() != "service_unavailable" {
		t.Errorf("cut before the first byte: %d %s", a.status, a.body)
	}
	e.book.cut.Store(0)
	if a := e.do(c); a.status != 200 || bytes.Count(a.body, []byte("\n")) != 20001 {
		t.Errorf("afterwards: %d, %d lines", a.status, bytes.Count(a.body, []byte("\n")))
	}
}

// TestResultsExpire after their retention, and the verification stays readable.
func TestResultsExpire(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	id := e.verified(2, results(2)).String()
	listentest.Within(t, "the results to expire", func() bool {
		if _, err := e.book.Sweep(context.Background(), ledger.Retention{Uploads: time.Hour,
			Results: time.Millisecond, Funding: time.Hour}); err != nil {
			t.Fatal(err)
		}
		return e.do(call{method: "GET", path: "/v1/verifications/" + id + "/results"}).status == 404
	})
	for _, method := range []string{"GET", "HEAD"} {
		a := e.do(call{method: method, path: "/v1/verifications/" + id + "/results"})
		if a.status != 404 || method == "GET" && a.code() != "results_expired" {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
	}
	if a := e.do(call{method: "GET", path: "/v1/verifications/" + id}); a.status != 200 {
		t.Errorf("detail: %d", a.status)
	}
}

// TestDrain answers new requests with 503 while a download runs, lets the
// download end whole, and then stops; a second Stop is fine.
func TestDrain(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	id := e.verified(60000, results(60000)).String()
	req, _ := http.NewRequest("GET", e.url+"/v1/verifications/"+id+"/results", nil)
	req.Header.Set("X-API-Key", e.key)
	slow, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Body.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- e.server.Stop(ctx) }()
	var a answer
	listentest.Within(t, "the drain to begin", func() bool {
		a = e.do(call{method: "GET", path: "/v1/credits"})
		return a.status != http.StatusOK
	})
	if a.status != 503 || a.code() != "service_unavailable" || a.header.Get("Retry-After") != "1" {
		t.Errorf("while draining: %d %s, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
	}
	body, err := io.ReadAll(slow.Body)
	if err != nil || bytes.Count(body, []byte("\n")) != 60001 {
		t.Errorf("the running download ended with %v after %d lines", err, bytes.Count(body, []byte("\n")))
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := net.Dial("tcp", e.server.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}

// TestStopAtOnce stops servers that may not have begun to accept, and one that never started.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for i := range 100 {
		s, err := httpd.New(e.options(func(o *httpd.Options) { o.Registerer = prometheus.NewRegistry() }))
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Stop(ctx); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}

// TestStopCutsWhatDoesNotEnd when its time is over.
func TestStopCutsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	id := e.verified(60000, results(60000)).String()
	req, _ := http.NewRequest("GET", e.url+"/v1/verifications/"+id+"/results", nil)
	req.Header.Set("X-API-Key", e.key)
	slow, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Body.Close()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.server.Stop(over); !errors.Is(err, context.Canceled) {
		t.Errorf("stop: %v", err)
	}
	if n, err := io.Copy(io.Discard, slow.Body); err == nil {
		t.Errorf("the download ended as if it were whole after %d bytes", n)
	}
}
