package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/smtp/smtplab"
)

// paced is a receiver's allowance with which a small file takes some seconds.
const paced = `
[retry]
greylist_waits = ["300ms", "700ms", "1500ms"]
give_up_after = "12s"
control_waits = ["200ms", "400ms"]
[throttle.default]
connections = 4
connection_rate = "1000/s"
rcpt_rate = "20/s"
rcpts_per_connection = 1000
refused_per_session = 1000
refused_per_hour = 1000000
`

// faultLasts is how long a fault of a node's surroundings lasts: with -long a
// minute, in which leases run out, otherwise long enough for every retry to begin.
func faultLasts() time.Duration {
	if effort.Long() {
		return time.Minute
	}
	return 5 * time.Second
}

// faultWithin bounds a test with such a fault.
func faultWithin() time.Duration { return faultLasts() + cliWait }

// answerWithin bounds every answer while the ledger is away. The node needs ten seconds for a read, and ten more for a
// commit that nobody confirms; clients give up after thirty, as ours does.
const answerWithin = 30 * time.Second

// away is one way in which a database can be away that is a server.
type away struct {
	name string
	fail func(p *postgres.Proxy)
	heal func(p *postgres.Proxy)
	ask  func(b *bystander, ctx context.Context) // while it is away
	says string                                  // the node, when the work has felt it
	not  string                                  // what it must not say; "": nothing in particular
	long bool                                    // takes long: only with -long
}

// awayOnServer are those ways. The last one costs no lease, however long it takes.
var awayOnServer = []away{
	{"silent", (*postgres.Proxy).Hush, (*postgres.Proxy).Heal, (*bystander).nothing, "leases not renewed", "", false},
	{"refused", func(p *postgres.Proxy) { p.Refuse(); p.Sever() }, (*postgres.Proxy).Heal, (*bystander).nothing,
		"settlement not committed yet", "", false},
	{"slow", func(p *postgres.Proxy) {
		p.SetPlan(postgres.Always(postgres.Act{Kind: postgres.Slow, Delay: 2 * time.Second}))
	}, func(p *postgres.Proxy) { p.SetPlan(nil) }, (*bystander).answeredInTime, "ledger did not answer",
		"lease not renewed in time", true},
}

// TestTheDatabaseIsAwayAndTheWorkGoesOnAfterwards takes the database away from a node in the middle of a file, looks at
// what every kind of request is answered, gives it back, and wants everything done without a restart.
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
		c.check(lab, sample, 1) // what was not settled when the lease was given up is asked again
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

// atOnce runs all cases beside each other, however few processors there are: such tests do little but wait.
func atOnce[C any](t *testing.T, cases []C, name func(C) string, run func(t *testing.T, c C)) {
	t.Helper()
	var running sync.WaitGroup
	for _, c := range cases {
		running.Go(func() { t.Run(name(c), func(t *testing.T) { run(t, c) }) })
	}
	running.Wait()
}

// TestTheDatabaseIsAwayAtTheStartAndTheEnd starts a node without its database, then ends one that has lost it in the
// middle of a file: both end by themselves within the operators' contract, and the next life finishes the file.
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

// goroutinesMore is how many goroutines a node may have more after its work than
// before: idle connections of the database, of clients and of receivers.
const goroutinesMore = 100

// pacedRig is a lab and a node's place, slow enough to see work under way, with more settings.
func pacedRig(t *testing.T, settings string) (*smtplab.Lab, *rig) {
	t.Helper()
	o := smtplab.Defaults()
	o.GreylistWait, o.EventsMax = time.Second, 1_000_000
	lab := startLab(t, o)
	return lab, newRig(t, lab.DNSAddr(), lab.SMTPPort(), settings+paced)
}

// pacedSample is addresses of many kinds, but for the receivers that want more patience than [retry] of paced has.
func pacedSample(n, domains int) []string {
	return slices.DeleteFunc(smtplab.Sample(23, n, domains), func(address string) bool {
		return strings.HasSuffix(address, "-postscreen.test")
	})
}

// newDatabase makes a database on the server of this run.
func newDatabase(t *testing.T) (name, url string) {
	t.Helper()
	name = "db" + strings.ReplaceAll(uuid.NewString(), "-", "")
	return name, postgres.Shared(t).NewDatabase(t, name, "")
}

// pacedServerRig is pacedRig with a database of a server, behind a proxy.
func pacedServerRig(t *testing.T) (*smtplab.Lab, *rig, *postgres.Proxy) {
	t.Helper()
	database, direct := newDatabase(t)
	p := effort.Must(postgres.StartProxy(direct))(t)
	t.Cleanup(func() { effort.OK(t, p.Close()) })
	lab, r := pacedRig(t, fmt.Sprintf("[ledger]\nurl = %q\n", p.URL(database)))
	r.does("migrate", "--config", "node.toml")
	return lab, r, p
}

// sumOf adds up the series of a metric in a text of metrics, and reports whether there is one.
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

// metric is the sum of a metric of the node.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	sum, found := sumOf(get(r.t, r.admin+"/metrics"), name)
	effort.FatalIf(r.t, !found, "the node has no metric %s", name)
	return sum
}

// goroutines is how many goroutines the node says it has, but for one for each living
// receiver: they answer about themselves while these metrics are gathered.
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
	at    map[string]time.Time // guarded by mu; when a message first came
}

// logLine is what the lines of one cause have in common.
type logLine struct {
	Level   string `json:"level"`
	Message string `json:"msg"`
}

// listen reads the log from here on, to its end.
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
				line.logLine = logLine{"ERROR", text} // no line of ours, such as a panic
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

// first is when a message first came.
func (l *nodeLog) first(message string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at[message]
}

// count is how many lines had a message.
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

// noiseMax is how often one message may come in a fault of a minute.
const noiseMax = 60

// quiet wants no line that asks for a person, and none too often, but for messages that are counted elsewhere.
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
