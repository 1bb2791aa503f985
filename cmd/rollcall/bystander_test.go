package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/config/effort"
	"rollcall/http/api"
)

// bystander is another tenant, with one verification for each kind of request.
type bystander struct {
	t        *testing.T
	client   *client.API
	rig      *rig
	tenant   client.Tenant
	identity uuid.UUID    // of a create that comes in the fault
	finished api.Creation // has results
	doomed   api.Creation // to be cancelled
	waiting  api.Creation // to be uploaded
}

// bystanderFile has an outcome for each address at once.
const bystanderFile = "email\nghost1@by-clean.test\nghost2@by-clean.test\n"

// bystander makes the other tenant; the node must run.
func (r *rig) bystander(ctx context.Context) *bystander {
	r.t.Helper()
	b := &bystander{t: r.t, rig: r, tenant: r.tenantOf("bystander", 100), identity: uuid.New()}
	b.client = client.NewAPI(r.api, b.tenant.Key, func(string) {})
	for _, made := range []*api.Creation{&b.finished, &b.doomed, &b.waiting} {
		*made = effort.Must(b.client.Create(ctx, uuid.New(), int64(len(bystanderFile)), "by.csv"))(r.t)
	}
	b.upload(ctx, b.finished)
	return b
}

// upload sends the file and waits for its end.
func (b *bystander) upload(ctx context.Context, v api.Creation) {
	b.t.Helper()
	size := int64(len(bystanderFile))
	effort.OK(b.t, b.client.Upload(ctx, v.Upload.URL, strings.NewReader(bystanderFile), size, func(int64) {}))
	await(ctx, b.t, "the end of a small file", func() bool {
		d, err := look(ctx, b.client, v.ID)
		return err == nil && d.CompletedAt != nil
	})
}

// answered is what a request was answered.
type answered struct {
	status     int
	retryAfter int // seconds; 0: none
	code       api.Code
	took       time.Duration
}

// ask sends one request without patience.
func (b *bystander) ask(ctx context.Context, method, url string, header http.Header, body string) answered {
	b.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		b.t.Error(err)
		return answered{}
	}
	if header != nil {
		request.Header = header
	}
	began := time.Now()
	answer, err := (&http.Client{Timeout: 2 * answerWithin}).Do(request)
	if err != nil {
		b.t.Errorf("%s %s: %v", method, request.URL.Path, err)
		return answered{took: time.Since(began)}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	effort.ErrIs(b.t, err, nil, method, request.URL.Path)
	a := answered{status: answer.StatusCode, took: time.Since(began)}
	a.retryAfter, _ = strconv.Atoi(answer.Header.Get("Retry-After")) // none is 0
	var refusal api.Error
	if json.Unmarshal(text, &refusal) == nil {
		a.code = refusal.Issue.Code
	}
	return a
}

// byKey is the headers of a request to the API.
func (b *bystander) byKey() http.Header { return http.Header{"X-Api-Key": {b.tenant.Key}} }

// create asks for the same creation each time.
func (b *bystander) create(ctx context.Context) answered {
	b.t.Helper()
	header := b.byKey()
	header.Set("Idempotency-Key", b.identity.String())
	header.Set("X-Upload-Content-Length", strconv.Itoa(len(bystanderFile)))
	return b.ask(ctx, http.MethodPost, b.rig.api+"/v1/verifications", header, "")
}

func (b *bystander) cancel(ctx context.Context) answered {
	b.t.Helper()
	return b.ask(ctx, http.MethodPost, b.rig.api+"/v1/verifications/"+b.doomed.ID+"/cancel", b.byKey(), "")
}

// put sends the whole file of the one that waits.
func (b *bystander) put(ctx context.Context) answered {
	b.t.Helper()
	return b.ask(ctx, http.MethodPut, b.waiting.Upload.URL, nil, bystanderFile)
}

// readPaths are the requests that change nothing.
func (b *bystander) readPaths() []string {
	return []string{"/v1/credits", "/v1/verifications", "/v1/verifications/" + b.finished.ID,
		"/v1/verifications/" + b.finished.ID + "/results"}
}

// reads wants every read answered.
func (b *bystander) reads(ctx context.Context) {
	b.t.Helper()
	for _, path := range b.readPaths() {
		a := b.ask(ctx, http.MethodGet, b.rig.api+path, b.byKey(), "")
		effort.ErrorIf(b.t, a.status != http.StatusOK, "GET %s: got %+v, want 200", path, a)
	}
}

// refused wants every write answered with "later".
func (b *bystander) refused(ctx context.Context) {
	b.t.Helper()
	b.wantLater("create", b.create(ctx), api.ServiceUnavailable)
	b.wantLater("cancel", b.cancel(ctx), api.ServiceUnavailable)
	b.wantLater("upload", b.put(ctx), api.StorageUnavailable)
}

// requests are all kinds of requests, and the code of their refusal.
func (b *bystander) requests() []request {
	all := []request{{"create", b.create, api.ServiceUnavailable}, {"cancel", b.cancel, api.ServiceUnavailable},
		{"upload", b.put, api.StorageUnavailable}, {"/readyz", b.ready, ""}}
	for _, path := range b.readPaths() {
		all = append(all, request{"GET " + path, func(ctx context.Context) answered {
			return b.ask(ctx, http.MethodGet, b.rig.api+path, b.byKey(), "")
		}, api.ServiceUnavailable})
	}
	return all
}

type request struct {
	name string
	ask  func(ctx context.Context) answered
	code api.Code
}

// nothing wants every request answered with "later".
func (b *bystander) nothing(ctx context.Context) { b.all(ctx, false) }

// answeredInTime wants every request done or answered with "later".
func (b *bystander) answeredInTime(ctx context.Context) { b.all(ctx, true) }

// all sends all kinds of requests at once; done: some may be done.
func (b *bystander) all(ctx context.Context, done bool) {
	b.t.Helper()
	var asked sync.WaitGroup
	for _, r := range b.requests() {
		asked.Go(func() {
			a := r.ask(ctx)
			effort.ErrorIf(b.t, a.took > answerWithin, "%s: answered after %v", r.name, a.took)
			if !done || a.status/100 != 2 {
				b.wantLater(r.name, a, r.code)
			}
			b.t.Logf("%s: %d after %v", r.name, a.status, a.took)
		})
	}
	asked.Wait()
}

func (b *bystander) ready(ctx context.Context) answered {
	return b.ask(ctx, http.MethodGet, b.rig.admin+"/readyz", nil, "")
}

// wantLater wants a refusal that says when to come again; one without a code says nothing.
func (b *bystander) wantLater(what string, a answered, code api.Code) {
	b.t.Helper()
	effort.ErrorIf(b.t, a.status != http.StatusServiceUnavailable || a.code != code || code != "" &&
		(a.retryAfter < 5 || a.retryAfter > 10) || a.took > answerWithin,
		"%s: got %+v, want 503 %s with Retry-After 5 to 10 within %v", what, a, code, answerWithin)
}

// served wants the same writes done after the fault, by clients that repeat them, and every credit accounted for.
func (b *bystander) served(ctx context.Context) {
	b.t.Helper()
	made := effort.Must(b.client.Create(ctx, b.identity, int64(len(bystanderFile)), ""))(b.t)
	b.upload(ctx, made)
	b.upload(ctx, b.waiting)
	var cancelled api.Detail
	path := "/v1/verifications/" + b.doomed.ID + "/cancel"
	if _, err := b.client.AskJSON(ctx, http.MethodPost, path, nil, &cancelled); err != nil ||
		cancelled.Status != "cancelled" {
		b.t.Errorf("cancel after the fault: %+v, %v", cancelled, err)
	}
	var credits api.Credits
	_, err := b.client.AskJSON(ctx, http.MethodGet, "/v1/credits", nil, &credits)
	if want := int64(100 - 3*strings.Count(bystanderFile, "@")); err != nil || credits.Credits != want {
		b.t.Errorf("got %d credits and %v, want %d", credits.Credits, err, want)
	}
}
