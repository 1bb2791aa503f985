package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/api"
	"rollcall/ledger"
)

// neighbours are two customers of one node, which has the limits of customers as shipped but
// for how often they may ask.
type neighbours struct {
	t      *testing.T
	node   *node.Node
	a, b   *client.API
	spaceA uuid.UUID
}

func newNeighbours(t *testing.T, change func(c *config.Config)) *neighbours {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "data")
	n := labNode(t, folder, io.Discard, func(c *config.Config) {
		c.HTTP.ReadsPerSecond, c.HTTP.Burst, c.HTTP.CreatesPerSecond, c.HTTP.CreatesBurst = 1e6, 1e6, 1e6, 1e6
		openedWide(t, c, false) // what receivers allow is not the subject
		change(c)
	})
	w := &neighbours{t: t, node: n}
	token, err := client.ReadToken(folder)
	if err != nil {
		t.Fatal(err)
	}
	customer := func(name string, credits int64) (*client.API, uuid.UUID) {
		tenant, err := client.OpenTenant(t.Context(), client.NewAdmin(n.AdminURL, token), client.TenantOptions{
			File: filepath.Join(folder, name+".json"), Workspace: name, Credits: credits})
		if err != nil {
			t.Fatal(err)
		}
		return client.NewAPI(n.APIURL, tenant.Key, func(string) {}), uuid.MustParse(tenant.Workspace)
	}
	w.a, w.spaceA = customer("a", 0)
	w.b, _ = customer("b", 2*10*smallFiles)
	return w
}

// smallFiles are verified one after the other for one figure: one takes some 60 ms alone, in
// which a single sync of the disk weighs much.
const smallFiles = 20

// verifies takes the time of files of ten addresses of b, at domains that nobody has asked about.
func (w *neighbours) verifies(ctx context.Context, domain string) time.Duration {
	w.t.Helper()
	began := time.Now()
	for n := range smallFiles {
		var file strings.Builder
		for i := range 10 {
			fmt.Fprintf(&file, "ghost%d@%s%s-clean.test\n", i, domain, letters(n))
		}
		if d := w.ends(ctx, w.b, w.sends(ctx, w.b, file.String())); d.Status != "completed" {
			w.t.Errorf("a small file is %s", d.Status)
		}
	}
	return time.Since(began)
}

// sends creates and uploads a file.
func (w *neighbours) sends(ctx context.Context, c *client.API, file string) string {
	w.t.Helper()
	made, err := c.Create(ctx, uuid.New(), int64(len(file)), "list.csv")
	if err == nil {
		err = c.Upload(ctx, made.Upload.URL, strings.NewReader(file), int64(len(file)), func(int64) {})
	}
	if err != nil && ctx.Err() == nil {
		w.t.Errorf("send a file: %v", err)
	}
	return made.ID
}

// ends waits for the end of a verification.
func (w *neighbours) ends(ctx context.Context, c *client.API, id string) (d api.Detail) {
	w.t.Helper()
	for {
		d, err := look(ctx, c, id)
		if err == nil && d.CompletedAt != nil {
			return d
		}
		if term.Sleep(ctx, 20*time.Millisecond) != nil {
			w.t.Errorf("no end of %s in sight: %+v, %v", id, d, err)
			return d
		}
	}
}

// besides runs what a does again and again, by so many at once, while b verifies: all files of b end,
// before ctx does. How long they took alone and beside a is logged: both customers, the lab and the node
// are one process, so that a bound on the time would be one on the machine.
func (w *neighbours) besides(ctx context.Context, many int, does func(ctx context.Context)) {
	w.t.Helper()
	idle := w.verifies(ctx, "idle")
	var all sync.WaitGroup
	var done atomic.Int64
	begun := make(chan struct{}, many)
	stop, end := context.WithCancel(ctx)
	for range cap(begun) {
		all.Go(func() {
			for stop.Err() == nil {
				if does(ctx); done.Add(1) <= int64(cap(begun)) {
					begun <- struct{}{}
				}
			}
		})
	}
	<-begun
	before := done.Load()
	busy := w.verifies(ctx, "busy")
	during := done.Load() - before
	end()
	all.Wait()
	w.t.Logf("%d files of ten addresses took %v alone and %v beside %d turns of a neighbour", smallFiles, idle, busy,
		during)
}

// used is what a workspace has.
func (w *neighbours) used(workspace uuid.UUID) ledger.Limits {
	w.t.Helper()
	u, err := w.node.Book.Usage(w.t.Context(), workspace)
	if err != nil {
		w.t.Fatal(err)
	}
	return u.Used
}

// audited looks at the whole ledger.
func (w *neighbours) audited() ledger.AuditReport {
	w.t.Helper()
	report, err := w.node.Book.Audit(w.t.Context())
	if err != nil || report.Found != 0 {
		w.t.Fatalf("audit: %+v, %v", report.Violations, err)
	}
	return report
}

// TestRefusedFilesStopNobody: a, without a credit, sends files with a defect in their last record,
// again and again. Their bytes are gone with the refusal, and b notices nothing.
func TestRefusedFilesStopNobody(t *testing.T) {
	t.Parallel()
	w := newNeighbours(t, func(*config.Config) {})
	ctx, cancel := context.WithTimeout(t.Context(), faultWithin())
	defer cancel()
	file := strings.Repeat("somebody@refused-clean.test\n", 3<<20/28) + "no address\n"
	var sent atomic.Int64
	refuse := func(ctx context.Context) {
		if d := w.ends(ctx, w.a, w.sends(ctx, w.a, file)); d.Status != "failed" {
			t.Errorf("a file with a defect is %s", d.Status)
		}
		sent.Add(1)
	}
	w.besides(ctx, 1, refuse)
	for sent.Load() < 10 {
		refuse(ctx)
	}
	if had := w.used(w.spaceA); had != (ledger.Limits{Unpaid: sent.Load()}) {
		t.Errorf("after %d refused files a has %s", sent.Load(), had)
	}
	// The small files of b are kept for their time, each in one chunk.
	if report := w.audited(); report.Chunks != 2*smallFiles {
		t.Errorf("%d chunks are stored", report.Chunks)
	}
	t.Logf("%d files of %d bytes were refused", sent.Load(), len(file))
}

// TestCreatesWithoutAnUploadStopNobody: a, without a credit, creates and cancels as fast as it can.
// Its limit of a day ends that, b notices nothing, and after its retention no row is left.
func TestCreatesWithoutAnUploadStopNobody(t *testing.T) {
	t.Parallel()
	const unpaid = 200
	w := newNeighbours(t, func(c *config.Config) { c.Limits.UnpaidPerDay = unpaid })
	ctx, cancel := context.WithTimeout(t.Context(), faultWithin())
	defer cancel()
	var made, refused atomic.Int64
	create := func(ctx context.Context) {
		answer := w.createOnce(ctx)
		switch {
		case answer.status == http.StatusCreated:
			made.Add(1)
			mine := *w.a // a client is one goroutine's
			if _, err := mine.AskJSON(ctx, http.MethodPost, "/v1/verifications/"+answer.id+"/cancel", nil,
				&api.Detail{}); err != nil {
				t.Errorf("cancel: %v", err)
			}
		case answer.status != http.StatusTooManyRequests || answer.code != "too_many_unpaid_verifications" ||
			answer.retryAfter != "3600":
			t.Errorf("create: %+v", answer)
		default:
			refused.Add(1)
		}
	}
	w.besides(ctx, 3, create)
	for refused.Load() == 0 {
		create(ctx)
	}
	if made.Load() != unpaid {
		t.Errorf("%d were created, %d are allowed", made.Load(), unpaid)
	}
	if had := w.used(w.spaceA); had != (ledger.Limits{Unpaid: unpaid}) {
		t.Errorf("a has %s", had)
	}
	if report := w.audited(); report.Verifications != unpaid+2*smallFiles {
		t.Errorf("%d rows", report.Verifications)
	}
	// What the node's own sweep does after 30 days, 100 at a time.
	for {
		n, err := w.node.Book.Sweep(ctx, ledger.Retention{Results: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	if report := w.audited(); report.Verifications != 2*smallFiles || w.used(w.spaceA) != (ledger.Limits{}) {
		t.Errorf("%d rows are left", report.Verifications)
	}
	t.Logf("%d were created and cancelled, %d refused", made.Load(), refused.Load())
}

// createdOnce is the answer to one create.
type createdOnce struct {
	status               int
	id, code, retryAfter string
}

// createOnce asks once for a new verification of a, without patience.
func (w *neighbours) createOnce(ctx context.Context) (a createdOnce) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.a.Base+"/v1/verifications", nil)
	if err != nil {
		w.t.Error(err)
		return a
	}
	request.Header.Set("X-API-Key", w.a.Key)
	request.Header.Set("Idempotency-Key", uuid.NewString())
	request.Header.Set("X-Upload-Content-Length", "1000")
	answer, err := w.a.HTTP.Do(request)
	if err != nil {
		w.t.Error(err)
		return a
	}
	defer answer.Body.Close()
	var body struct {
		ID    string    `json:"id"`
		Issue api.Issue `json:"issue"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		w.t.Error(err)
	}
	return createdOnce{answer.StatusCode, body.ID, string(body.Issue.Code), answer.Header.Get("Retry-After")}
}
