package http_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp"
)

// shown is what a detail shows, without its times.
type shown struct {
	Status                       string
	Total                        int64 // -1: null
	Completed, Errors, Cancelled int64
	Rows                         int64 // 0: input is null
	Issue                        string
	Row                          int64
	Upload, Ended                bool
	RetryAfter                   string
}

// detail reads one verification as a customer does.
func (e *edge) detail(t *testing.T, id uuid.UUID) shown {
	t.Helper()
	a := e.send(t, get("/v1/verifications/"+id.String()))
	var d struct {
		Status      string
		CompletedAt *time.Time `json:"completed_at"`
		Progress    struct {
			Total                        *int64
			Completed, Errors, Cancelled int64
		}
		Input *struct{ Rows, Duplicates int64 }
		Issue *struct {
			Code string
			Row  *int64
		}
		Upload *struct{ Method, URL string }
	}
	err := json.Unmarshal(a.body, &d)
	effort.FatalIf(t, err != nil || a.status != 200, "detail: %d %s %v", a.status, a.body, err)
	s := shown{
		Status: d.Status, Total: -1, Completed: d.Progress.Completed, Errors: d.Progress.Errors,
		Cancelled: d.Progress.Cancelled, Upload: d.Upload != nil, Ended: d.CompletedAt != nil,
		RetryAfter: a.header.Get("Retry-After"),
	}
	if d.Progress.Total != nil {
		s.Total = *d.Progress.Total
	}
	if d.Input != nil {
		s.Rows = d.Input.Rows
	}
	if d.Issue != nil {
		s.Issue = d.Issue.Code
		if d.Issue.Row != nil {
			s.Row = *d.Issue.Row
		}
	}
	effort.ErrorIf(t, d.Upload != nil && (d.Upload.Method != "PUT" || d.Upload.URL == ""), "upload %+v", d.Upload)
	return s
}

// statusRow brings a verification into a status, and has what its customer then sees.
type statusRow struct {
	name  string
	drive func() uuid.UUID
	want  shown
}

// driver drives verifications as the engine does.
type driver struct {
	*edge
	t    *testing.T
	ctx  context.Context
	some []ledger.Result // four results, one of each outcome except error
}

func (d driver) must(v ledger.Verification, err error) ledger.Verification {
	d.t.Helper()
	effort.OK(d.t, err)
	return v
}

func (d driver) uploaded() uuid.UUID {
	id := d.create("1")
	d.upload(id, 1)
	return id
}

// prepared returns a leased verification of nine addresses, of which the first few are settled.
func (d driver) prepared(settled []ledger.Result) (uuid.UUID, ledger.Lease) {
	id := d.uploaded()
	l := d.lease(id)
	d.must(d.book.Prepare(d.ctx, l, 9, 0, 9))
	if len(settled) > 0 {
		d.must(d.book.Settle(d.ctx, ledger.Settlement{Lease: l, Number: 1, Results: settled}))
	}
	return id, l
}

// outcomes returns settled addresses with these outcomes.
func outcomes(all ...smtp.Outcome) []ledger.Result {
	rows := results(len(all))
	for i := range all {
		rows[i].Outcome = all[i]
	}
	return rows
}

// active returns the statuses that are not final.
func (d driver) active() []statusRow {
	return []statusRow{
		{"uploading", func() uuid.UUID { return d.create("5") },
			shown{Status: "uploading", Total: -1, Upload: true, RetryAfter: "1"}},
		{"preparing", d.uploaded, shown{Status: "preparing", Total: -1, RetryAfter: "1"}},
		{"waiting for credits", func() uuid.UUID {
			id := d.uploaded()
			d.must(d.book.Prepare(d.ctx, d.lease(id), edgeCredits+5, 2, edgeCredits+3))
			return id
		}, shown{Status: "waiting", Total: edgeCredits + 3, Rows: edgeCredits + 5,
			Issue: "credits_required", RetryAfter: "1"}},
		{"verifying", func() uuid.UUID { return d.verified(9, d.some) },
			shown{Status: "verifying", Total: 9, Completed: 4, Rows: 10, RetryAfter: "1"}},
		{"waiting for receivers", func() uuid.UUID {
			id, l := d.prepared(nil)
			d.must(d.book.Wait(d.ctx, l, ledger.Estimate{Next: time.Now().Add(time.Hour), Why: "9 addresses wait."}))
			return id
		}, shown{Status: "waiting", Total: 9, Rows: 9, Issue: "receivers_wait", RetryAfter: "60"}},
		{"waiting for receivers a moment", func() uuid.UUID {
			id, l := d.prepared(nil)
			d.must(d.book.Wait(d.ctx, l, ledger.Estimate{Next: time.Now().Add(time.Second)}))
			return id
		}, shown{Status: "waiting", Total: 9, Rows: 9, RetryAfter: "1"}},
		{"cancelling", func() uuid.UUID {
			id, _ := d.prepared(d.some)
			for range 2 {
				a := d.do(post(create+"/"+id.String()+"/cancel", nil))
				effort.Is(d.t, a.status, 202, "cancel of a leased verification", a.body)
			}
			return id
		}, shown{Status: "cancelling", Total: 9, Completed: 4, Rows: 9, RetryAfter: "1"}},
	}
}

// final returns the final statuses.
func (d driver) final() []statusRow {
	return []statusRow{
		{"failed", func() uuid.UUID {
			id := d.uploaded()
			d.must(d.book.Refuse(d.ctx, d.lease(id), ledger.Issue{
				Code: "csv_blank_record", Message: "Row 3 is blank.", Row: 3}))
			return id
		}, shown{Status: "failed", Total: -1, Issue: "csv_blank_record", Row: 3, Ended: true}},
		{"cancelled", func() uuid.UUID {
			id, l := d.prepared(d.some)
			d.must(d.book.Cancel(d.ctx, d.workspace, id))
			d.must(d.book.FinishCancel(d.ctx, l))
			return id
		}, shown{Status: "cancelled", Total: 9, Completed: 4, Cancelled: 5, Rows: 9, Ended: true}},
		{"cancelled before reading", func() uuid.UUID {
			id := d.create("5")
			d.must(d.book.Cancel(d.ctx, d.workspace, id))
			return id
		}, shown{Status: "cancelled", Total: -1, Ended: true}},
		{"completed", func() uuid.UUID { return d.verified(4, d.some) },
			shown{Status: "completed", Total: 4, Completed: 4, Rows: 5, Ended: true}},
		{"completed with errors", func() uuid.UUID { return d.verified(2, outcomes(smtp.Valid, smtp.Error)) },
			shown{Status: "completed_with_errors", Total: 2, Completed: 1, Errors: 1, Rows: 3, Ended: true}},
	}
}

// TestDetailShowsEachStatus brings verifications into every status by the engine's methods, and compares what their
// customer sees.
func TestDetailShowsEachStatus(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	d := driver{edge: e, t: t, ctx: context.Background(),
		some: outcomes(smtp.Valid, smtp.Invalid, smtp.CatchAll, smtp.Unknown)}
	for _, c := range append(d.active(), d.final()...) {
		t.Run(c.name, func(t *testing.T) {
			effort.Is(t, e.detail(t, c.drive()), c.want)
		})
	}
}

func TestAnExpiredUploadURLIsHidden(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := newEdge(t, func(o *httpd.Options) { o.Now = clk.now })
	id := e.create("5")
	clk.nanos.Store(time.Now().Add(time.Hour).UnixNano())
	effort.ErrorIf(t, e.detail(t, id).Upload, "an expired upload URL is still shown")
}

// TestResultsAreCSV reads results with an independent reader before the first settlement, between settlements and at
// the end.
func TestResultsAreCSV(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	if a := e.do(get("/v1/verifications/" + e.create("1").String() + "/results")); string(a.body) != "email,result,message,checked_at\n" {
		t.Errorf("before the upload: %q", a.body)
	}
	rows := results(20000)
	rows[0].Email, rows[0].Outcome, rows[0].Reason = `"a,b"@example.com`, smtp.Invalid, smtp.MailboxNotFound
	rows[1].Email = "=1+1@example.com"
	id := e.verified(20001, rows).String()
	a := e.do(get("/v1/verifications/" + id + "/results"))
	for name, want := range map[string]string{
		"Content-Type": "text/csv", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Content-Disposition": `attachment; filename="results-` + id + `.csv"`,
	} {
		effort.Is(t, a.header.Get(name), want, name)
	}
	records := effort.Must(csv.NewReader(bytes.NewReader(a.body)).ReadAll())(t)
	effort.MustBe(t, len(records), len(rows)+1, "records")
	for i, r := range rows {
		want := []string{r.Email, r.Outcome.String(), r.Reason.Message(), "2026-01-02T03:04:05.678Z"}
		effort.MustBe(t, strings.Join(records[i+1], "|"), strings.Join(want, "|"), "row", i, records[i+1], want)
	}
}

// TestResultsFault: if the ledger fails in the middle of results, the connection is cut, so that no client takes half
// a file for a whole one. A fault before the first byte gets an answer.
func TestResultsFault(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	id := e.verified(20000, results(20000)).String()
	e.book.cut.Store(10000)
	c := get("/v1/verifications/" + id + "/results")
	a, err := e.try(c)
	effort.Is(t, a.status, 200, "cut in the middle", len(a.body))
	effort.ErrIs(t, err, io.ErrUnexpectedEOF, "cut in the middle")
	e.book.cut.Store(5)
	e.do(c).says(t, 503, "service_unavailable", "cut before the first byte")
	e.book.cut.Store(0)
	if a := e.do(c); a.status != 200 || bytes.Count(a.body, []byte("\n")) != 20001 {
		t.Errorf("afterwards: %d, %d lines", a.status, bytes.Count(a.body, []byte("\n")))
	}
}

// TestResultsExpire: results end after their retention, and the verification stays readable.
func TestResultsExpire(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	id := e.verified(2, results(2)).String()
	effort.Within(t, "the results to expire", func() bool {
		effort.Must(e.book.Sweep(context.Background(), ledger.Retention{Uploads: time.Hour,
			Results: time.Millisecond, Funding: time.Hour}))(t)
		return e.do(get("/v1/verifications/"+id+"/results")).status == 404
	})
	for _, method := range []string{"GET", "HEAD"} {
		a := e.do(call{method: method, path: "/v1/verifications/" + id + "/results"})
		effort.ErrorIf(t, a.status != 404 || method == "GET" && a.code() != "results_expired",
			"%s: %d %s", method, a.status, a.body)
	}
	effort.Is(t, e.do(get("/v1/verifications/"+id)).status, 200, "detail")
}

// startDownload begins a download of 60,000 results. It ends with the test at the latest.
func (e *edge) startDownload() io.Reader {
	e.t.Helper()
	id := e.verified(60000, results(60000)).String()
	req, _ := http.NewRequest("GET", e.url+"/v1/verifications/"+id+"/results", nil)
	req.Header.Set("X-API-Key", e.key)
	slow := effort.Must(http.DefaultTransport.RoundTrip(req))(e.t)
	e.t.Cleanup(func() { _ = slow.Body.Close() })
	return slow.Body
}

// TestDrain: while a download runs, new requests get 503. The download ends completely, and then the server stops. A
// second Stop does nothing.
func TestDrain(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	slow := e.startDownload()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- e.server.Stop(ctx) }()
	var a answer
	effort.Within(t, "the drain to begin", func() bool {
		a = e.do(get("/v1/credits"))
		return a.status != http.StatusOK
	})
	effort.ErrorIf(t, a.status != 503 || a.code() != "service_unavailable" || a.header.Get("Retry-After") != "1",
		"while draining: %d %s, Retry-After %q", a.status, a.body, a.header.Get("Retry-After"))
	body := effort.Must(io.ReadAll(slow))(t)
	effort.Is(t, bytes.Count(body, []byte("\n")), 60001, "lines of the running download")
	effort.ErrIs(t, <-stopped, nil, "stop")
	_, err := net.Dial("tcp", e.server.Addr().String())
	effort.ErrorIf(t, err == nil, "the listener is still open")
}

// TestStopAtOnce: a server can be stopped before its first accept, and even before its start.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for i := range 100 {
		s := httpd.New(e.options(func(o *httpd.Options) { o.Registerer = prometheus.NewRegistry() }))
		if i > 0 {
			effort.OK(t, s.Start())
		}
		effort.OK(t, s.Stop(ctx), "round", i)
	}
}

// TestStopCutsWhatDoesNotEnd: requests that don't end within the time of a stop are cut.
func TestStopCutsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	slow := e.startDownload()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	effort.ErrIs(t, e.server.Stop(over), context.Canceled, "stop")
	n, err := io.Copy(io.Discard, slow)
	effort.ErrorIf(t, err == nil, "the download ended as if it were whole after %d bytes", n)
}

// TestReadersSeeWhatWasWritten: while others write and read the same data, an answer contains everything written
// before its request.
func TestReadersSeeWhatWasWritten(t *testing.T) {
	turns, customers := max(3, effort.Cases(30)), 4
	e := newEdge(t, nil)
	var granted atomic.Int64
	read := func(path string, into any) error {
		a, err := e.try(get(path))
		if err == nil && a.status != 200 {
			err = fmt.Errorf("%s is answered %d %s", path, a.status, a.body)
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(a.body, into)
	}
	turn := func() error {
		var credits struct{ Credits int64 }
		if _, err := e.book.Grant(t.Context(), uuid.New(), e.workspace, 1, "test"); err != nil {
			return err
		}
		least := edgeCredits + granted.Add(1)
		if err := read("/v1/credits", &credits); err != nil || credits.Credits < least {
			return fmt.Errorf("%d credits after %d were granted, %v", credits.Credits, least, err)
		}
		made, err := e.try(post("/v1/verifications", creation(uuid.NewString(), "1")))
		var created api.Creation
		if err != nil || json.Unmarshal(made.body, &created) != nil {
			return fmt.Errorf("create is answered %d %s, %v", made.status, made.body, err)
		}
		id := created.ID
		var detail api.Detail
		for _, want := range []string{"uploading", "cancelled"} {
			if err := read("/v1/verifications/"+id, &detail); err != nil || detail.Status != want {
				return fmt.Errorf("detail says %q, want %q, %v", detail.Status, want, err)
			}
			var page api.History
			if err := read("/v1/verifications?limit=100", &page); err != nil {
				return err
			}
			shown := ""
			for _, v := range page.Verifications {
				if v.ID == id {
					shown = v.Status
				}
			}
			if shown != want {
				return fmt.Errorf("history says %q, want %q", shown, want)
			}
			if a, err := e.try(post("/v1/verifications/"+id+"/cancel", nil)); err != nil || a.status != 200 {
				return fmt.Errorf("cancel is answered %d %s, %v", a.status, a.body, err)
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for range customers {
		wg.Go(func() {
			for range turns {
				if err := turn(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// benchConns are the connections of a benchmark, each with one request at a time.
const benchConns = 64

// hammer sends raw on benchConns connections until it has n answers with status 200. It returns the number of answers
// a second.
func hammer(b *testing.B, address string, raw []byte, n int) float64 {
	b.Helper()
	conns := make([]net.Conn, benchConns)
	for i := range conns {
		c := effort.Must(net.Dial("tcp", address))(b)
		defer c.Close()
		conns[i] = c
	}
	began := time.Now()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			r := bufio.NewReader(c)
			var res fasthttp.Response
			for range n / benchConns {
				if _, err := c.Write(raw); err != nil {
					b.Error(err)
					return
				}
				if err := res.Read(r); err != nil || res.StatusCode() != 200 {
					b.Errorf("answer %d, %v", res.StatusCode(), err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(began).Seconds()
}

// bareServer is the smallest server that the library can make: a map of keys to answers. It returns its address.
func bareServer(b *testing.B, key string) string {
	known := map[string]string{key: `{"credits":1000000}`}
	l := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(b)
	s := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		answer, ok := known[string(ctx.Request.Header.Peek("X-API-Key"))]
		if !ok {
			ctx.SetStatusCode(fasthttp.StatusUnauthorized)
			return
		}
		ctx.SetContentType("application/json")
		ctx.SetBodyString(answer)
	}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	b.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// BenchmarkCreditsDetailHistory measures frequent reads of customers with a real key and ledger, in turn with a bare
// server. It measures while nothing is written and while the ledger is written 50 times a second, and prints medians.
func BenchmarkCreditsDetailHistory(b *testing.B) {
	const each = 20_000 // requests
	for _, written := range []bool{false, true} {
		b.Run(fmt.Sprintf("written=%t", written), func(b *testing.B) {
			e := newEdge(b, func(o *httpd.Options) {
				o.Limits.Reads = httpd.Rate{PerSecond: 1e9, Burst: 1e9}
				o.Log = slog.New(slog.NewJSONHandler(io.Discard, nil)) // at level info, as in production
			})
			var last uuid.UUID
			for range 25 {
				last = e.verified(1, results(1))
			}
			if written {
				defer e.writeOften()()
			}
			reads := []struct{ name, address, path string }{{"bare", bareServer(b, e.key), "/v1/credits"},
				{"credits", e.server.Addr().String(), "/v1/credits"},
				{"detail", e.server.Addr().String(), "/v1/verifications/" + last.String()},
				{"history", e.server.Addr().String(), "/v1/verifications"}}
			rates := make([][]float64, len(reads))
			for b.Loop() {
				for i, r := range reads {
					raw := "GET " + r.path + " HTTP/1.1\r\nHost: a\r\nX-API-Key: " + e.key + "\r\n\r\n"
					rates[i] = append(rates[i], hammer(b, r.address, []byte(raw), each))
				}
			}
			for i, r := range reads {
				slices.Sort(rates[i])
				b.ReportMetric(rates[i][len(rates[i])/2], r.name+"/s")
				b.ReportMetric(rates[i][len(rates[i])/2]/rates[0][len(rates[0])/2], r.name+"/bare")
			}
		})
	}
}

// writeOften writes to the ledger 50 times a second until the returned function is called.
func (e *edge) writeOften() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.Tick(20 * time.Millisecond)
		for ctx.Err() == nil {
			<-tick
			if _, err := e.book.Grant(context.Background(), uuid.New(), e.workspace, 1, "test"); err != nil {
				e.t.Errorf("write: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
