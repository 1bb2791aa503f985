package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/smtp/smtplab"
)

// paced limits a receiver so that a small file takes some seconds.
//
//go:embed testdata/paced.toml
var paced string

// faultLasts is how long a fault around a node lasts: with -long a minute, in which leases run out, otherwise long
// enough for every retry to begin.
func faultLasts() time.Duration {
	if effort.Long() {
		return time.Minute
	}
	return 5 * time.Second
}

// faultWithin bounds a test with such a fault.
func faultWithin() time.Duration { return faultLasts() + cliWait }

// answerWithin bounds every answer while the ledger is away. The node needs ten seconds for a read, and ten more for
// a commit that nobody confirms. Clients give up after thirty, as ours does.
const answerWithin = 30 * time.Second

// away is one way in which a database server can be away.
type away struct {
	name string
	fail func(p *postgres.Proxy)
	heal func(p *postgres.Proxy)
	ask  func(b *bystander, ctx context.Context) // while it is away
	says string                                  // by the node, once its work is affected
	not  string                                  // what it must not say; "": nothing in particular
	long bool                                    // takes long: only with -long
}

// awayOnServer lists these ways. The last one costs no lease, however long it lasts. A delay of one second a
// statement costs leases: a new connection needs three statements before its first one, and the server ends a
// transaction that is silent for two seconds.
var awayOnServer = []away{
	{"silent", (*postgres.Proxy).Hush, (*postgres.Proxy).Heal, (*bystander).nothing, "leases not renewed", "", false},
	{"refused", func(p *postgres.Proxy) { p.Refuse(); p.Sever() }, (*postgres.Proxy).Heal, (*bystander).nothing,
		"settlement not committed yet", "", false},
	{"slow", func(p *postgres.Proxy) {
		p.SetPlan(postgres.Always(postgres.Act{Kind: postgres.Slow, Delay: 500 * time.Millisecond}))
	}, func(p *postgres.Proxy) { p.SetPlan(nil) }, (*bystander).answeredInTime, "ledger did not answer",
		"lease not renewed in time", true},
}

// TestTheDatabaseIsAwayAndTheWorkGoesOnAfterwards takes the database away from a node in the middle of a file, and
// checks the answer to every kind of request. Then the database comes back, and all work must finish without a
// restart.
func TestTheDatabaseIsAwayAndTheWorkGoesOnAfterwards(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	atOnce(t, awayOnServer, func(x away) string { return x.name }, func(t *testing.T, x away) {
		if x.long && !effort.Long() {
			t.Skip("takes half a minute more; run with -long")
		}
		lab, r, p := pacedServerRig(t)
		node := r.serves()
		ctx, cancel := context.WithTimeout(t.Context(), faultWithin())
		defer cancel()
		sample := pacedSample(750, 75)
		r.open(int64(len(sample)))
		other := r.bystander(ctx)
		log, before := node.listen(), r.goroutines()
		c := submitAll(ctx, t, r, []byte("email\n"+strings.Join(sample, "\n")+"\n"))
		c.reach(ctx, 100)

		x.fail(p)
		lasts := time.After(faultLasts())
		x.ask(other, ctx)
		log.wait(ctx, x.says)
		<-lasts
		x.heal(p)

		other.served(ctx)
		effort.OK(t, c.wait())
		c.check(lab, sample, 1) // addresses not settled when the lease ended are asked again
		a := other.ask(ctx, http.MethodGet, r.admin+"/readyz", nil, "")
		effort.ErrorIf(t, a.status != http.StatusOK, "/readyz after the fault: got %+v, want 200", a)
		r.audit()
		log.quiet()
		n := log.count(x.not)
		effort.ErrorIf(t, n > 0, "%d times in the log: %s", n, x.not)
		after := r.goroutines()
		effort.ErrorIf(t, after > before+goroutinesMore, "%d goroutines after the fault, %d before", after, before)
		node.terminate()
	})
}

// atOnce runs all cases beside each other, however few processors there are, because such tests mostly wait.
func atOnce[C any](t *testing.T, cases []C, name func(C) string, run func(t *testing.T, c C)) {
	t.Helper()
	var running sync.WaitGroup
	for _, c := range cases {
		running.Go(func() { t.Run(name(c), func(t *testing.T) { run(t, c) }) })
	}
	running.Wait()
}

// TestTheDatabaseIsAwayAtTheStartAndTheEnd starts a node without its database, then ends a node that has lost its
// database in the middle of a file. Both end by themselves within 30 s, and a restarted node finishes the file.
func TestTheDatabaseIsAwayAtTheStartAndTheEnd(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes half a minute; run with -long")
	}
	t.Parallel()
	atOnce(t, awayOnServer[:2], func(x away) string { return x.name }, func(t *testing.T, x away) {
		lab, r, p := pacedServerRig(t)
		x.fail(p)
		code, _, stderr := r.run("serve", "--config", "node.toml")
		line := lastLines(stderr)
		effort.ErrorIf(t, code != exitFailed || strings.Count(line, "\n") != 1 || !strings.Contains(line, "ledger"),
			"start: got code %d and %q, want one line about the ledger", code, stderr)
		x.heal(p)
		node := r.serves()
		ctx, cancel := context.WithTimeout(t.Context(), cliWait)
		defer cancel()
		sample := pacedSample(1500, 300)
		r.open(int64(len(sample)))
		c := submitAll(ctx, t, r, []byte("email\n"+strings.Join(sample, "\n")+"\n"))
		c.reach(ctx, 200)
		x.fail(p)
		node.stop(syscall.SIGTERM) // fails the test after 30 s, whatever the code
		x.heal(p)
		r.serves()
		effort.OK(t, c.wait())
		c.check(lab, sample, 1)
		r.audit()
	})
}

// goroutinesMore is how many more goroutines a node may have after its work than before: those of idle connections to
// the database, clients and receivers.
const goroutinesMore = 100

// pacedRig makes a lab and a rig, slow enough to see work under way. settings are added to its configuration.
func pacedRig(t *testing.T, settings string) (*smtplab.Lab, *rig) {
	t.Helper()
	o := smtplab.Defaults()
	o.GreylistWait, o.EventsMax = time.Second, 1_000_000
	lab := startLab(t, o)
	return lab, newRig(t, lab.DNSAddr(), lab.SMTPPort(), settings+"\n"+paced)
}

// pacedSample returns addresses of many kinds. It leaves out receivers that make clients wait longer than paced's
// [retry] waits.
func pacedSample(n, domains int) []string {
	return slices.DeleteFunc(smtplab.Sample(23, n, domains), func(address string) bool {
		return strings.HasSuffix(address, "-postscreen.test")
	})
}

// newDatabase makes a database on this run's server.
func newDatabase(t *testing.T) (name, url string) {
	t.Helper()
	name = "db" + strings.ReplaceAll(uuid.NewString(), "-", "")
	return name, postgres.Shared(t).NewDatabase(t, name, "")
}

// pacedServerRig is pacedRig with a database server behind a proxy.
func pacedServerRig(t *testing.T) (*smtplab.Lab, *rig, *postgres.Proxy) {
	t.Helper()
	database, direct := newDatabase(t)
	p := effort.Must(postgres.StartProxy(direct))(t)
	t.Cleanup(func() { effort.OK(t, p.Close()) })
	lab, r := pacedRig(t, fmt.Sprintf("[ledger]\nurl = %q\n", p.URL(database)))
	r.does("migrate", "--config", "node.toml")
	return lab, r, p
}

// sumOf adds up the series of a metric in a text of metrics, and reports whether there is a series.
func sumOf(text, name string) (sum float64, found bool) {
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if metric, _, _ := strings.Cut(series, "{"); metric == name {
			one, _ := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64)
			sum, found = sum+one, true
		}
	}
	return sum, found
}

// metric returns the sum of a metric of the node.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	sum, found := sumOf(get(r.t, r.admin+"/metrics"), name)
	effort.FatalIf(r.t, !found, "the node has no metric %s", name)
	return sum
}

// goroutines returns how many goroutines the node reports, less one for each living receiver: those answer about
// themselves while these metrics are collected.
func (r *rig) goroutines() int {
	r.t.Helper()
	text := get(r.t, r.admin+"/metrics")
	all, known := sumOf(text, "go_goroutines")
	receivers, alsoKnown := sumOf(text, "rollcall_receivers")
	effort.FatalIf(r.t, !known || !alsoKnown, "the metrics have no goroutines, or no receivers")
	return int(all - receivers)
}

// nodeLog counts the lines of a node's log by level and message.
type nodeLog struct {
	t *testing.T

	mu    sync.Mutex
	lines map[logLine]int      // guarded by mu
	at    map[string]time.Time // guarded by mu; first time of each message
}

// logLine is the level and message of a line of the log, by which lines are counted.
type logLine struct {
	Level   string `json:"level"`
	Message string `json:"msg"`
}

// listen reads the log from now to its end.
func (b *background) listen() *nodeLog {
	l := &nodeLog{t: b.t, lines: map[logLine]int{}, at: map[string]time.Time{}}
	b.t.Cleanup(func() {
		if b.t.Failed() {
			l.show()
		}
	})
	go func() {
		for text := range b.lines {
			var line struct {
				logLine
				Time time.Time `json:"time"`
			}
			if json.Unmarshal([]byte(text), &line) != nil {
				line.logLine = logLine{"ERROR", text} // not a line of our log, such as a panic
			}
			l.mu.Lock()
			l.lines[line.logLine]++
			if l.at[line.Message].IsZero() {
				l.at[line.Message] = line.Time
			}
			l.mu.Unlock()
		}
	}()
	return l
}

// first returns when a message first came.
func (l *nodeLog) first(message string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at[message]
}

// count returns how many lines have a message.
func (l *nodeLog) count(message string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line, times := range l.lines {
		if line.Message == message {
			n += times
		}
	}
	return n
}

// wait waits for a line with a message.
func (l *nodeLog) wait(ctx context.Context, message string) {
	l.t.Helper()
	await(ctx, l.t, fmt.Sprintf("the node says %q", message), func() bool { return l.count(message) > 0 })
}

// noiseMax bounds how often one message may come during a fault of a minute.
const noiseMax = 60

// quiet checks that no line is an error, and that no message comes too often. It ignores messages that are counted
// elsewhere.
func (l *nodeLog) quiet(counted ...string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line, times := range l.lines {
		effort.ErrorIf(l.t, line.Level == "ERROR" || line.Level == "WARN" && times > noiseMax && !slices.Contains(counted, line.Message),
			"%d times in the log: %s %s", times, line.Level, line.Message)
	}
}

// show logs how often each message came.
func (l *nodeLog) show() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line, times := range l.lines {
		l.t.Logf("%4d times in the log: %s %s", times, line.Level, line.Message)
	}
}

// bystander is another tenant, with one verification for each kind of request.
type bystander struct {
	t        *testing.T
	client   *client.API
	rig      *rig
	tenant   client.Tenant
	identity uuid.UUID    // of a create during the fault
	finished api.Creation // has results
	doomed   api.Creation // to be cancelled
	waiting  api.Creation // to be uploaded
}

// bystanderFile is a file whose addresses get their outcomes at once.
const bystanderFile = "email\nghost1@by-clean.test\nghost2@by-clean.test\n"

// bystander makes the other tenant. The node must run.
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

// upload sends the file and waits for the end of the verification.
func (b *bystander) upload(ctx context.Context, v api.Creation) {
	b.t.Helper()
	size := int64(len(bystanderFile))
	effort.OK(b.t, b.client.Upload(ctx, v.Upload.URL, strings.NewReader(bystanderFile), size, func(int64) {}))
	await(ctx, b.t, "the end of a small file", func() bool {
		d, err := look(ctx, b.client, v.ID)
		return err == nil && d.CompletedAt != nil
	})
}

// answered is the answer to a request.
type answered struct {
	status     int
	retryAfter int // seconds; 0: none
	code       api.Code
	took       time.Duration
}

// ask sends one request and does not repeat it.
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

// byKey returns the headers of a request to the API.
func (b *bystander) byKey() http.Header { return http.Header{"X-Api-Key": {b.tenant.Key}} }

// create repeats the same creation each time.
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

// put sends the whole file of the verification that waits for its upload.
func (b *bystander) put(ctx context.Context) answered {
	b.t.Helper()
	return b.ask(ctx, http.MethodPut, b.waiting.Upload.URL, nil, bystanderFile)
}

// readPaths are the requests that change nothing.
func (b *bystander) readPaths() []string {
	return []string{"/v1/credits", "/v1/verifications", "/v1/verifications/" + b.finished.ID,
		"/v1/verifications/" + b.finished.ID + "/results"}
}

// reads checks that every read is answered.
func (b *bystander) reads(ctx context.Context) {
	b.t.Helper()
	for _, path := range b.readPaths() {
		a := b.ask(ctx, http.MethodGet, b.rig.api+path, b.byKey(), "")
		effort.ErrorIf(b.t, a.status != http.StatusOK, "GET %s: got %+v, want 200", path, a)
	}
}

// refused checks that every write is answered with "later".
func (b *bystander) refused(ctx context.Context) {
	b.t.Helper()
	b.wantLater("create", b.create(ctx), api.ServiceUnavailable)
	b.wantLater("cancel", b.cancel(ctx), api.ServiceUnavailable)
	b.wantLater("upload", b.put(ctx), api.StorageUnavailable)
}

// requests returns all kinds of requests, and the code with which each is refused.
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

// nothing checks that every request is answered with "later".
func (b *bystander) nothing(ctx context.Context) { b.all(ctx, false) }

// answeredInTime checks that every request is either done or answered with "later".
func (b *bystander) answeredInTime(ctx context.Context) { b.all(ctx, true) }

// all sends all kinds of requests at once. If done is set, some may succeed.
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

// wantLater checks that a refusal says when to come again, and has this code if it has one.
func (b *bystander) wantLater(what string, a answered, code api.Code) {
	b.t.Helper()
	effort.ErrorIf(b.t, a.status != http.StatusServiceUnavailable || a.code != code || code != "" &&
		(a.retryAfter < 5 || a.retryAfter > 10) || a.took > answerWithin,
		"%s: got %+v, want 503 %s with Retry-After 5 to 10 within %v", what, a, code, answerWithin)
}

// served checks that the same writes, repeated by clients, succeed after the fault, and that every credit is
// accounted for.
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
