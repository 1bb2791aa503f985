package http_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/api"
	"rollcall/http/listen/listentest"
	"rollcall/http/upload"
	"rollcall/ledger"
	"rollcall/smtp"
)

// flow is a whole outside of a node, API and storage on real sockets over one
// ledger, and a customer who knows nothing but the interface. The engine's
// part is played by hand through the ledger.
type flow struct {
	*testing.T
	edge *edge
	node uuid.UUID
}

func newFlow(t *testing.T) *flow {
	t.Helper()
	var tokens *upload.Tokens
	var storageURL string
	e := newEdge(t, func(o *httpd.Options) {
		o.PublicUpload = func(id uuid.UUID) string { return tokens.URL(storageURL, id) }
	})
	key := effort.Must(e.book.Secret(context.Background(), "upload-url", upload.TokenKeyBytes))(t)
	tokens = effort.Must(upload.NewTokens(key))(t)
	o := upload.DefaultOptions()
	o.Listen, o.Book, o.Tokens = "127.0.0.1:0", e.book, tokens
	o.Wake, o.Log, o.Registerer = func() {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	storage := effort.Must(upload.New(o))(t)
	effort.OK(t, storage.Start())
	storageURL = "http://" + storage.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), listentest.Patience)
		defer cancel()
		effort.OK(t, storage.Stop(ctx))
	})
	return &flow{T: t, edge: e, node: uuid.New()}
}

// The customer's own picture of the answers; unknown properties are refused.
type (
	flowIssue struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Row     *int64 `json:"row"`
	}
	flowUpload struct {
		Method    string    `json:"method"`
		URL       string    `json:"url"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	flowProgress struct {
		Total                        *int64 `json:"total"`
		Completed, Errors, Cancelled int64
	}
	flowDetail struct {
		ID             uuid.UUID    `json:"id"`
		Filename       *string      `json:"filename"`
		SubmissionKind string       `json:"submission_kind"`
		SingleEmail    *string      `json:"single_email"`
		Outcome        *string      `json:"outcome"`
		CreatedAt      time.Time    `json:"created_at"`
		CompletedAt    *time.Time   `json:"completed_at"`
		Status         string       `json:"status"`
		Progress       flowProgress `json:"progress"`
		Input          *struct{ Rows, Duplicates int64 }
		Issue          *flowIssue  `json:"issue"`
		Upload         *flowUpload `json:"upload"`
	}
	flowHistory struct {
		Verifications []flowDetail `json:"verifications"`
		NextCursor    *string      `json:"next_cursor"`
		Limits        struct {
			MaxFileBytes int64 `json:"max_file_bytes"`
			MaxRows      int64 `json:"max_rows"`
		} `json:"limits"`
	}
)

// ask sends one API request and reads the answer into into, if the status is one of want.
func (f *flow) ask(method, path string, headers map[string]string, into any, want ...int) (int, error) {
	req, err := http.NewRequest(method, f.edge.url+path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-API-Key", f.edge.key)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	status, _, body, err := send(req)
	if err != nil {
		return 0, err
	}
	if !slices.Contains(want, status) {
		return status, fmt.Errorf("%s %s: %d %s, want %v", method, path, status, body, want)
	}
	if text, ok := into.(*string); ok {
		*text = string(body)
		return status, nil
	}
	reader := json.NewDecoder(bytes.NewReader(body))
	reader.DisallowUnknownFields()
	return status, reader.Decode(into)
}

func send(req *http.Request) (int, http.Header, []byte, error) {
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, body, err
}

func (f *flow) must(method, path string, headers map[string]string, into any, want ...int) int {
	f.Helper()
	return effort.Must(f.ask(method, path, headers, into, want...))(f)
}

func (f *flow) credits() int64 {
	f.Helper()
	var c struct{ Credits int64 }
	f.must("GET", "/v1/credits", nil, &c, 200)
	return c.Credits
}

func (f *flow) detail(id uuid.UUID) flowDetail {
	f.Helper()
	var d flowDetail
	f.must("GET", "/v1/verifications/"+id.String(), nil, &d, 200)
	return d
}

// create makes a verification, twice: the second time it is the same one with the same URL.
func (f *flow) create(file string) (uuid.UUID, string) {
	f.Helper()
	headers := map[string]string{
		"Idempotency-Key": uuid.NewString(), "X-Upload-Content-Length": fmt.Sprint(len(file)),
		"X-Upload-Filename": "list%20one.csv",
	}
	type creation struct {
		ID     uuid.UUID   `json:"id"`
		Status string      `json:"status"`
		Upload *flowUpload `json:"upload"`
	}
	var first, again creation
	f.must("POST", "/v1/verifications", headers, &first, 201)
	f.must("POST", "/v1/verifications", headers, &again, 200)
	if first.Upload == nil || again.Upload == nil || *first.Upload != *again.Upload || first.ID != again.ID ||
		first.Status != "uploading" || first.Upload.Method != "PUT" {
		f.Fatalf("created %+v %+v, recovered %+v %+v", first, first.Upload, again, again.Upload)
	}
	return first.ID, first.Upload.URL
}

// put sends bytes to storage without any key, and gives status and Range.
func (f *flow) put(url, contentRange, body string) (int, string) {
	f.Helper()
	req := effort.Must(http.NewRequest("PUT", url, strings.NewReader(body)))(f)
	req.Header.Set("Content-Type", "text/csv")
	req.Header.Set("Content-Range", contentRange)
	status, header, _, err := send(req)
	effort.OK(f, err)
	return status, header.Get("Range")
}

// uploadInPieces sends a file as a client with a bad line does: a piece, a
// question, a piece that overlaps, the rest, and the question once more.
func (f *flow) uploadInPieces(url, file string) {
	f.Helper()
	n := len(file)
	third := n / 3
	steps := []struct {
		contentRange, body string
		status             int
		durable            string
	}{
		{fmt.Sprintf("bytes */%d", n), "", 308, ""},
		{fmt.Sprintf("bytes 0-%d/%d", third-1, n), file[:third], 308, fmt.Sprintf("bytes=0-%d", third-1)},
		{fmt.Sprintf("bytes */%d", n), "", 308, fmt.Sprintf("bytes=0-%d", third-1)},
		{fmt.Sprintf("bytes 1-%d/%d", 2*third-1, n), file[1 : 2*third], 308, fmt.Sprintf("bytes=0-%d", 2*third-1)},
		{fmt.Sprintf("bytes %d-%d/%d", 2*third, n-1, n), file[2*third:], 200, ""},
		{fmt.Sprintf("bytes */%d", n), "", 200, ""},
	}
	for _, s := range steps {
		if status, durable := f.put(url, s.contentRange, s.body); status != s.status || durable != s.durable {
			f.Fatalf("%s: %d Range %q, want %d %q", s.contentRange, status, durable, s.status, s.durable)
		}
	}
}

// submit creates and uploads, and gives the id.
func (f *flow) submit(file string) uuid.UUID {
	f.Helper()
	id, url := f.create(file)
	if d := f.detail(id); d.Upload == nil || d.Upload.URL != url || d.Status != "uploading" || d.Input != nil {
		f.Fatalf("before the upload: %+v", d)
	}
	f.uploadInPieces(url, file)
	if d := f.detail(id); d.Upload != nil || d.Status != "preparing" || d.Progress.Total != nil {
		f.Fatalf("after the upload: %+v", d)
	}
	return id
}

// results downloads what is final, by address.
func (f *flow) results(id uuid.UUID) map[string]string {
	f.Helper()
	var text string
	f.must("GET", "/v1/verifications/"+id.String()+"/results", nil, &text, 200)
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || strings.Join(records[0], ",") != "email,result,message,checked_at" {
		f.Fatalf("results %q, %v", text, err)
	}
	found := make(map[string]string)
	for _, r := range records[1:] {
		if _, twice := found[r[0]]; twice {
			f.Errorf("%s is twice in the results", r[0])
		}
		found[r[0]] = r[1]
	}
	return found
}

// The engine's part, by hand.

// lease takes the one verification that has something to do.
func (f *flow) lease(id uuid.UUID) ledger.Lease {
	f.Helper()
	got, err := f.edge.book.Lease(context.Background(), f.node, 10, time.Minute)
	if err != nil || len(got) != 1 || got[0].ID != id {
		f.Fatalf("leased %v, %v; want %v", got, err, id)
	}
	return ledger.Lease{Verification: id, Node: f.node, Epoch: got[0].Epoch}
}

// prepare reads the stored file, as it arrived, and holds its credits.
func (f *flow) prepare(l ledger.Lease, file string, duplicates int64) {
	f.Helper()
	ctx := context.Background()
	stored := effort.Must(f.edge.book.OpenFile(ctx, l.Verification))(f)
	defer stored.Close()
	if b, err := io.ReadAll(stored); err != nil || string(b) != file {
		f.Fatalf("stored %d bytes, %v; sent %d", len(b), err, len(file))
	}
	rows := int64(strings.Count(file, "\n"))
	effort.Must(f.edge.book.Prepare(ctx, l, rows, duplicates, rows-duplicates))(f)
}

// settle commits the next outcomes in order.
func (f *flow) settle(l ledger.Lease, number int, first int64, outcomes ...smtp.Outcome) {
	f.Helper()
	s := ledger.Settlement{Lease: l, Number: int64(number)}
	for i, o := range outcomes {
		ordinal := first + int64(i)
		s.Results = append(s.Results, ledger.Result{
			Ordinal: ordinal, Email: flowAddress(ordinal), Outcome: o, Reason: flowReason(o), At: time.Now(),
		})
	}
	effort.Must(f.edge.book.Settle(context.Background(), s))(f)
}

func flowAddress(ordinal int64) string { return fmt.Sprintf("user%d@example.test", ordinal) }

// flowFile is a file of n distinct addresses.
func flowFile(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(flowAddress(int64(i)) + "\n")
	}
	return b.String()
}

func flowReason(o smtp.Outcome) smtp.Reason {
	return map[smtp.Outcome]smtp.Reason{
		smtp.Valid: smtp.MailboxExists, smtp.Invalid: smtp.MailboxNotFound, smtp.CatchAll: smtp.AcceptAll,
		smtp.Unknown: smtp.TimedOut, smtp.Error: smtp.Internal,
	}[o]
}

// TestFileIsVerifiedFromCreateToHistory walks one file through, with a poller beside it.
func TestFileIsVerifiedFromCreateToHistory(t *testing.T) {
	t.Parallel()
	f := newFlow(t)
	file := flowFile(60) + flowAddress(0) + "\n" // one twice
	id, url := f.create(file)
	p := f.watch(id)
	f.uploadInPieces(url, file)
	l := f.lease(id)
	f.prepare(l, file, 1)
	effort.Is(t, f.credits(), edgeCredits-60, "credits while 60 are held")
	if got := f.results(id); len(got) != 0 {
		t.Errorf("results before any outcome: %v", got)
	}
	earlier := map[string]string{}
	for i := range 12 {
		f.settle(l, i+1, int64(5*i), smtp.Valid, smtp.Invalid, smtp.CatchAll, smtp.Unknown, smtp.Valid)
		now := f.results(id)
		for address, outcome := range earlier {
			effort.Is(t, now[address], outcome, fmt.Sprintf("%s was %s and is", address, outcome))
		}
		if len(now) != 5*(i+1) {
			t.Errorf("%d results after %d outcomes", len(now), 5*(i+1))
		}
		earlier = now
		if i == 5 {
			f.wait(l, time.Now().Add(time.Minute))
			if d := f.detail(id); d.Status != "waiting" || d.Issue != nil {
				t.Errorf("waiting for receivers: %s, issue %v", d.Status, d.Issue)
			}
			f.wait(l, time.Time{})
		}
	}
	p.finish("completed", edgeCredits-48) // 12 unknown came back
	effort.Is(t, f.credits(), edgeCredits-48)
	d := f.detail(id)
	if d.Progress.Completed != 60 || d.Input.Rows != 61 || d.Input.Duplicates != 1 ||
		*d.Filename != "list one.csv" || d.SubmissionKind != "bulk" || d.CompletedAt.Before(d.CreatedAt) {
		t.Errorf("detail at the end: %+v", d)
	}
	if status, _ := f.put(url, "bytes 0-2/3", "abc"); status != 200 {
		t.Errorf("other bytes to the finished upload: %d, want 200", status)
	}
	var h flowHistory
	f.must("GET", "/v1/verifications?kind=bulk&limit=1", nil, &h, 200)
	if len(h.Verifications) != 1 || h.Verifications[0].ID != id || h.NextCursor != nil ||
		h.Limits.MaxFileBytes != edgeFileBytes || h.Verifications[0].Progress.Completed != 60 {
		t.Errorf("history %+v", h)
	}
}

// wait marks the verification as waiting for receivers, or as verifying again.
func (f *flow) wait(l ledger.Lease, next time.Time) {
	f.Helper()
	effort.Must(f.edge.book.Wait(context.Background(), l, ledger.Outlook{Next: next}))(f)
}

// TestCancelGivesBackWhatIsUnchecked cancels under way: 202, then the engine
// lets go; a second cancel answers the truth.
func TestCancelGivesBackWhatIsUnchecked(t *testing.T) {
	t.Parallel()
	f := newFlow(t)
	file := flowFile(20)
	id := f.submit(file)
	p := f.watch(id)
	l := f.lease(id)
	f.prepare(l, file, 0)
	f.settle(l, 1, 0, smtp.Valid, smtp.Unknown, smtp.Invalid)
	cancel := "/v1/verifications/" + id.String() + "/cancel"
	for range 2 {
		var c struct{ ID, Status string }
		if f.must("POST", cancel, nil, &c, 202); c.Status != "cancelling" || c.ID != id.String() {
			t.Errorf("cancel: %+v", c)
		}
	}
	f.settle(l, 2, 3, smtp.CatchAll) // was in flight
	effort.Must(f.edge.book.FinishCancel(context.Background(), l))(t)
	p.finish("cancelled", edgeCredits-3)
	d := f.detail(id)
	if d.Progress.Completed != 4 || d.Progress.Cancelled != 16 || len(f.results(id)) != 4 {
		t.Errorf("progress %+v, %d results", d.Progress, len(f.results(id)))
	}
	var c struct{ ID, Status string }
	if f.must("POST", cancel, nil, &c, 200); c.Status != "cancelled" {
		t.Errorf("cancel after the end: %+v", c)
	}
}

// TestUnderfundedFileResumesByItself needs more credits than there are; a
// grant lets it go on without another upload.
func TestUnderfundedFileResumesByItself(t *testing.T) {
	t.Parallel()
	f := newFlow(t)
	f.edge.workspace, f.edge.key, f.edge.keyID = f.poorCustomer(5)
	file := flowFile(8)
	id := f.submit(file)
	p := f.watch(id)
	f.prepare(f.lease(id), file, 0)
	d := f.detail(id)
	if d.Status != "waiting" || d.Issue == nil || d.Issue.Code != "credits_required" || f.credits() != 5 {
		t.Fatalf("underfunded: %+v, issue %+v, %d credits", d, d.Issue, f.credits())
	}
	effort.Must(f.edge.book.Grant(context.Background(), uuid.New(), f.edge.workspace, 3, "top up"))(t)
	if d = f.detail(id); d.Status != "verifying" || d.Issue != nil || f.credits() != 0 {
		t.Fatalf("funded: %+v, issue %+v, %d credits", d, d.Issue, f.credits())
	}
	l := f.lease(id)
	f.settle(l, 1, 0, slices.Repeat([]smtp.Outcome{smtp.Valid}, 7)...)
	f.settle(l, 2, 7, smtp.Unknown)
	p.finish("completed", 1)
}

// poorCustomer is one with so many credits.
func (f *flow) poorCustomer(credits ledger.Credits) (workspace uuid.UUID, key, keyID string) {
	f.Helper()
	ctx := context.Background()
	w := effort.Must(f.edge.book.CreateWorkspace(ctx, uuid.New(), "poor"))(f)
	text, k := api.NewKey()
	made := ledger.Key{ID: k.ID, Workspace: w.ID, SecretSHA256: k.SHA256}
	effort.Must(f.edge.book.CreateKey(ctx, made))(f)
	effort.Must(f.edge.book.Grant(ctx, uuid.New(), w.ID, credits, "start"))(f)
	return w.ID, text, k.ID
}
