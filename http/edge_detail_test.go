package http_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	httpd "rollcall/http"
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
	a := e.send(t, call{method: "GET", path: "/v1/verifications/" + id.String()})
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
	if err := json.Unmarshal(a.body, &d); err != nil || a.status != 200 {
		t.Fatalf("detail: %d %s %v", a.status, a.body, err)
	}
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
	if d.Upload != nil && (d.Upload.Method != "PUT" || d.Upload.URL == "") {
		t.Errorf("upload %+v", d.Upload)
	}
	return s
}

// statusRow drives a verification into a status and says what its customer sees then.
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
	some []ledger.Result // four outcomes, one of each that is no error
}

func (d driver) must(v ledger.Verification, err error) ledger.Verification {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	return v
}

func (d driver) uploaded() uuid.UUID {
	id := d.create("1")
	d.upload(id, 1)
	return id
}

// prepared is a leased verification of nine addresses, the first of them settled.
func (d driver) prepared(settled []ledger.Result) (uuid.UUID, ledger.Lease) {
	id := d.uploaded()
	l := d.lease(id)
	d.must(d.book.Prepare(d.ctx, l, 9, 0, 9))
	if len(settled) > 0 {
		d.must(d.book.Settle(d.ctx, ledger.Settlement{Lease: l, Number: 1, Results: settled}))
	}
	return id, l
}

// outcomes are settled addresses with these outcomes.
func outcomes(all ...smtp.Outcome) []ledger.Result {
	rows := results(len(all))
	for i := range all {
		rows[i].Outcome = all[i]
	}
	return rows
}

// active are the statuses in which something goes on or is waited for.
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
			d.must(d.book.Wait(d.ctx, l, ledger.Outlook{Next: time.Now().Add(time.Hour), Why: "9 addresses wait."}))
			return id
		}, shown{Status: "waiting", Total: 9, Rows: 9, Issue: "receivers_wait", RetryAfter: "60"}},
		{"waiting for receivers a moment", func() uuid.UUID {
			id, l := d.prepared(nil)
			d.must(d.book.Wait(d.ctx, l, ledger.Outlook{Next: time.Now().Add(time.Second)}))
			return id
		}, shown{Status: "waiting", Total: 9, Rows: 9, RetryAfter: "1"}},
		{"cancelling", func() uuid.UUID {
			id, _ := d.prepared(d.some)
			for range 2 {
				a := d.do(call{method: "POST", path: create + "/" + id.String() + "/cancel"})
				if a.status != 202 {
					d.t.Errorf("cancel of a leased verification: %d %s", a.status, a.body)
				}
			}
			return id
		}, shown{Status: "cancelling", Total: 9, Completed: 4, Rows: 9, RetryAfter: "1"}},
	}
}

// final are the statuses that stay.
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

// TestDetailShowsEachStatus drives verifications through every status by the
// engine's methods and compares what their customer sees.
func TestDetailShowsEachStatus(t *testing.T) {
	t.Parallel()
	e := newEdge(t, nil)
	d := driver{edge: e, t: t, ctx: context.Background(),
		some: outcomes(smtp.Valid, smtp.Invalid, smtp.CatchAll, smtp.Unknown)}
	for _, c := range append(d.active(), d.final()...) {
		t.Run(c.name, func(t *testing.T) {
			if got := e.detail(t, c.drive()); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// TestDetailAges asks less often for what takes long, and hides an upload URL that has expired.
func TestDetailAges(t *testing.T) {
	t.Parallel()
	clk := newClock()
	e := newEdge(t, func(o *httpd.Options) { o.Now = clk.now })
	for _, c := range []struct {
		age  time.Duration
		want string
	}{{0, "1"}, {25 * time.Second, "2"}, {time.Hour, "30"}} {
		id := e.verified(9, nil)
		clk.nanos.Store(time.Now().Add(c.age).UnixNano())
		if got := e.detail(t, id).RetryAfter; got != c.want {
			t.Errorf("verifying for %v: Retry-After %s, want %s", c.age, got, c.want)
		}
	}
	id := e.create("5")
	clk.nanos.Store(time.Now().Add(time.Hour).UnixNano())
	if e.detail(t, id).Upload {
		t.Error("an expired upload URL is still shown")
	}
}
