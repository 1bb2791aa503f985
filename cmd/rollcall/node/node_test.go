package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/receiver"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/identity"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

func TestWhatSaysThatPort25IsBlocked(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want identity.State
	}{
		{"time-outs", &smtp.Failure{Stage: smtp.StageConnect, Err: os.ErrDeadlineExceeded}, identity.Fail},
		{"greetings", nil, identity.OK},
		{"refusals in the greeting", &smtp.Failure{Stage: smtp.StageGreeting, Err: io.EOF}, identity.OK},
		{"a fault of ours", &smtp.Failure{Stage: smtp.StageConnect, Err: errors.New("too many open files")},
			identity.Skipped},
		{"our own end", &smtp.Failure{Stage: smtp.StageConnect, Err: context.Canceled}, identity.Skipped},
		{"the guard", &smtp.Failure{Stage: smtp.StageConnect, Err: smtp.ErrForbiddenAddress}, identity.Skipped},
	} {
		s := &selfCheck{reach: &identity.Reach{}}
		for i := range 9 {
			s.note(fmt.Sprintf("r%d.test", i), c.err)
		}
		effort.Is(t, identity.CheckReach(s.reach, time.Now()).State, c.want, c.name)
	}
}

// TestTheLabIsNotTakenForAnEarlierOne: facts about the lab's receivers count only if this process learned them.
func TestTheLabIsNotTakenForAnEarlierOne(t *testing.T) {
	book := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	t.Cleanup(func() { _ = book.Close() })
	fact := func(key string) ledger.Fact {
		return ledger.Fact{Key: key, Data: []byte("x"), Expires: time.Now().Add(time.Hour)}
	}
	effort.OK(t, book.Learn(t.Context(), []ledger.Fact{fact("a.test"), fact("b.test")}))
	fresh := factsOf(book, true)
	knows := func(facts ledger.Facts, want int) {
		t.Helper()
		effort.Is(t, len(effort.Must(facts.Known(t.Context(), []string{"a.test", "b.test"}))(t)), want, "it knows")
	}
	knows(factsOf(book, false), 2)
	knows(fresh, 0)
	effort.OK(t, fresh.Learn(t.Context(), []ledger.Fact{fact("b.test")}))
	knows(fresh, 1)
	knows(book, 2)
}

// TestWhatTheNodeKeepsIsItsOwn: the process's user must own folder and token, and nobody else may write to them. The
// error has the command that repairs it.
func TestWhatTheNodeKeepsIsItsOwn(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	token := filepath.Join(folder, admin.TokenFile)
	effort.ErrIs(t, checkOwned(folder), nil, "a folder that is not there yet")
	effort.OK(t, os.Mkdir(folder, 0o700))
	effort.ErrIs(t, checkOwned(folder), nil, "a folder without a token")
	effort.OK(t, os.WriteFile(token, []byte("secret"), 0o600))
	for _, c := range []struct {
		path string
		mode os.FileMode
		ok   bool
	}{
		{folder, 0o700, true}, {folder, 0o755, true}, {folder, 0o770, false}, {folder, 0o702, false}, {folder, 0o700, true},
		{token, 0o400, true}, {token, 0o620, false}, {token, 0o602, false}, {token, 0o600, true},
	} {
		effort.OK(t, os.Chmod(c.path, c.mode))
		err := checkOwned(folder)
		effort.ErrorIf(t, c.ok != (err == nil) || !c.ok &&
			(!errors.Is(err, errNotOurs) || !strings.Contains(err.Error(), "run: chmod go-w "+c.path)),
			"%s with mode %04o: %v", c.path, c.mode, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	for _, path := range []string{token, folder} {
		effort.OK(t, os.Chown(path, 12345, -1))
		if err := checkOwned(folder); !errors.Is(err, errNotOurs) || !strings.Contains(err.Error(), "run: chown 0 "+path) {
			t.Errorf("%s of another user: %v", path, err)
		}
	}
}

func TestTracingIsOffByDefault(t *testing.T) {
	n := &Node{}
	effort.OK(t, n.startTracing(t.Context(), config.Default().Tracing, uuid.New(), slog.New(slog.DiscardHandler)))
	effort.ErrorIf(t, n.tracer != nil || len(n.stops) != 0, "something is traced")
}

// TestCertificatesAreFollowed: a new certificate is served without a restart. An unusable one is logged, and the
// certificate before it stays in use.
func TestCertificatesAreFollowed(t *testing.T) { synctest.Test(t, certificatesAreFollowed) }

func certificatesAreFollowed(t *testing.T) {
	const endsMetric = "rollcall_tls_certificate_not_after_timestamp_seconds"
	folder, registry, logged := t.TempDir(), prometheus.NewRegistry(), make(chan string, 100)
	first, second := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	certFile, keyFile, _ := nettest.WriteCertificate(t, folder, first)
	certs := newCertificates(registry, slog.New(slog.NewTextHandler(eachLine(logged), nil)))
	settings, stop, err := certs.follow(t.Context(), "admin", certFile, keyFile)
	effort.OK(t, err)
	served := func() time.Time {
		ours, theirs := net.Pipe()
		defer ours.Close()
		server, client := tls.Server(theirs, settings), tls.Client(ours, &tls.Config{InsecureSkipVerify: true})
		go func() {
			_ = server.Handshake()
			_ = theirs.Close()
		}()
		effort.OK(t, client.Handshake())
		return client.ConnectionState().PeerCertificates[0].NotAfter
	}
	want := func(what string, end time.Time, used float64) {
		t.Helper()
		effort.Is(t, served().Unix(), end.Unix(), what, "served until")
		got := nettest.Metric(t, registry, endsMetric, "listener=admin")
		effort.ErrorIf(t, got != float64(end.Unix()), "%s: the metric says %v, want %v", what, got, end.Unix())
		effort.Is(t, nettest.Metric(t, registry, "rollcall_tls_certificate_used", "listener=admin"), used, what, "used")
	}
	waitFor := func(text string) {
		t.Helper()
		for line := range logged {
			if strings.Contains(line, text) {
				return
			}
		}
	}
	want("at start", first, 1)
	effort.OK(t, os.WriteFile(certFile, []byte("nonsense"), 0o600))
	waitFor("new certificate refused")
	want("nonsense", first, 0)
	nettest.WriteCertificate(t, folder, second)
	waitFor("new certificate in force")
	want("a good one", second, 1)
	nettest.WriteCertificate(t, folder, time.Now().Add(-time.Hour))
	waitFor("not valid now")
	want("one that has ended", second, 0)
	effort.ErrIs(t, stop(context.Background()), nil)
}

// TestTheWarmUpOfTheDocs puts the guide's example unchanged into a configuration and, under its other name, into a
// throttle file. Then it asks the node's sources what they may ask on each day.
func TestTheWarmUpOfTheDocs(t *testing.T) {
	text := effort.Must(os.ReadFile(filepath.Join("..", "..", "..", "docs", "operators", "receivers.md")))(t)
	_, printed, begun := strings.Cut(string(text), "<!-- warm-up:")
	printed, _, ended := strings.Cut(printed, "<!-- warm-up end -->")
	_, printed, fenced := strings.Cut(printed, "```toml\n")
	printed, _, closed := strings.Cut(printed, "```")
	effort.FatalIf(t, !begun || !ended || !fenced || !closed, "docs/operators/receivers.md has no example of a warm-up")
	folder := t.TempDir()
	for file, lines := range map[string]string{"rollcall.toml": printed,
		"throttle.toml": strings.ReplaceAll(printed, "[throttle.sources.", "[sources.")} {
		effort.OK(t, os.WriteFile(filepath.Join(folder, file), []byte(lines), 0o600))
	}
	for name, of := range map[string]struct{ file, variable string }{
		"the configuration": {filepath.Join(folder, "rollcall.toml"), "ROLLCALL_THROTTLE_FILE="},
		"the throttle file": {"", "ROLLCALL_THROTTLE_FILE=" + filepath.Join(folder, "throttle.toml")},
	} {
		warmedUp(t, name, of.file, of.variable)
	}
}

// warmedUp checks what the source of the example may ask on its first days.
func warmedUp(t *testing.T, name, file, variable string) {
	t.Helper()
	c, err := config.Load(file, []string{variable, "ROLLCALL_SMTP_SOURCE_ADDRESSES=192.0.2.7",
		"ROLLCALL_SMTP_HELLO_NAME=rollcall.example"})
	effort.OK(t, err, name)
	followed, err := config.OpenThrottle(c.Throttle)
	effort.OK(t, err, name)
	table, err := throttle.NewTable(followed.State().Rules)
	effort.OK(t, err, name)
	r, err := receiverOptions(c, table, engineOptions{rules: verdict.Builtin, log: slog.New(slog.DiscardHandler),
		registry: prometheus.NewRegistry(), opened: func(open openFunc) openFunc { return open }})
	effort.OK(t, err, name)
	day := time.Date(2026, 11, 21, 0, 0, 1, 0, time.UTC)
	r.Registry, r.Fenced, r.SourceOf = receiver.NewRegistry(), func() bool { return false }, table.Source
	r.Clock = func() time.Time { return day }
	receiver.Kinds(r) // as a node does
	for i, want := range []int{500, 1000, 2000, 4000} {
		found := r.Sources.State(day)
		effort.ErrorIf(t, len(found) != 1 || found[0].Source != "192.0.2.7" || found[0].PerDay != want,
			"%s: on day %d: %+v, want %d", name, i+1, found, want)
		day = day.AddDate(0, 0, 1)
	}
}

// TestRulesFollowTheirFile: a running node uses a changed file; a faulty file changes nothing.
func TestRulesFollowTheirFile(t *testing.T) {
	own := string(effort.Must(os.ReadFile("../testdata/own.toml"))(t))
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) { rulesFollowTheirFile(t, own) })
}

func rulesFollowTheirFile(t *testing.T, own string) {
	metrics := prometheus.NewRegistry()
	l, err := openRules(config.Default().Verdict, metrics)
	effort.FatalIf(t, err != nil || l.Now() != verdict.Builtin(), "%v", err)
	logged := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { l.follow(ctx, slog.New(slog.NewTextHandler(eachLine(logged), nil))) })
	defer done.Wait()
	defer cancel()
	for _, c := range []struct{ text, want string }{
		{own, "verdict file loaded"}, {"x", "verdict.toml:1"}, {"", "title is missing"}, {own + "\n", "rules=1"},
	} {
		effort.OK(t, os.WriteFile("new.toml", []byte(c.text), 0o600))
		effort.OK(t, os.Rename("new.toml", config.Default().Verdict.File))
		effort.Has(t, <-logged, c.want, c.text, "logged")
		_, ok := l.Now().Rule("ours")
		effort.ErrorIf(t, !ok, "%q: the rule is not in force", c.text)
		used := float64(1)
		if c.text == "x" || c.text == "" {
			used = 0
		}
		effort.Is(t, nettest.Metric(t, metrics, "rollcall_verdict_file_used"), used, fmt.Sprintf("%q: file used is", c.text))
	}
	effort.OK(t, os.Remove(config.Default().Verdict.File))
	<-logged
	effort.Is(t, l.Now(), verdict.Builtin(), "the rules of a file that is gone are in force")
}

// eachLine is a writer that sends each write to a channel.
type eachLine chan<- string

func (l eachLine) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestThrottleMetricsFollowTheTable(t *testing.T) {
	table := effort.Must(throttle.NewTable(nil))(t)
	registry, began := prometheus.NewRegistry(), time.Now()
	m := newThrottleMetrics(registry, table)
	read := func() map[string]float64 {
		values := map[string]float64{}
		gathered := effort.Must(registry.Gather())(t)
		for _, g := range gathered {
			values[g.GetName()] = g.GetMetric()[0].GetGauge().GetValue()
		}
		return values
	}
	const prefix = "rollcall_throttle_"
	at := read()
	effort.ErrorIf(t, at[prefix+"file_used"] != 1 || at[prefix+"overrides"] != 0 ||
		at[prefix+"override_ends_timestamp_seconds"] != 0, "at first: %v", at)
	loaded := at[prefix+"file_loaded_timestamp_seconds"]
	effort.ErrorIf(t, loaded < float64(began.Unix()), "loaded at %v, want now", loaded)
	var set throttle.Override
	effort.OK(t, set.Set(throttle.Fields()[0], throttle.DefaultLimits().Text(throttle.Fields()[0])))
	later, soon := time.Unix(2_000_000_000, 0), time.Unix(1_900_000_000, 0)
	err := table.Replace(throttle.LayerOverride, []throttle.Rule{{Name: "a.test", Set: set, Until: later},
		{Name: "b.test", Set: set, Until: soon}})
	if err == nil {
		err = table.Replace(throttle.LayerFile, []throttle.Rule{{Name: "c.test", Set: set}})
	}
	effort.OK(t, err)
	if m.file(nil); read()[prefix+"rules_fingerprint"] == at[prefix+"rules_fingerprint"] {
		t.Error("one more rule did not change the fingerprint")
	}
	one := read()[prefix+"rules_fingerprint"]
	var other throttle.Override // the same number of rules with another content
	effort.OK(t, errors.Join(other.Set(throttle.FieldConnections, "7"),
		table.Replace(throttle.LayerFile, []throttle.Rule{{Name: "c.test", Set: other}})))
	if m.file(nil); read()[prefix+"rules_fingerprint"] == one {
		t.Error("another rule of the same name did not change the fingerprint")
	}
	m.file(errors.New("line 3"))
	at = read()
	effort.ErrorIf(t, at[prefix+"file_used"] != 0 || at[prefix+"overrides"] != 2 || at[prefix+"rules"] != 1 ||
		at[prefix+"override_ends_timestamp_seconds"] != 1_900_000_000, "with a fault, a rule and two overrides: %v", at)
	m.file(nil)
	effort.ErrorIf(t, read()[prefix+"file_used"] != 1, "the file is used again, and the metric does not say so")
}

// TestOverridesHoldToTheirEnd: an override holds from the reading that finds it to its end, also if the ledger no
// longer answers. An unreadable override does not affect others.
func TestOverridesHoldToTheirEnd(t *testing.T) {
	table := effort.Must(throttle.NewTable(nil))(t)
	now, replans := time.Now(), 0
	customer := uuid.New()
	found := ledger.Settings{Weights: map[uuid.UUID]int{customer: 7}, Overrides: []ledger.ThrottleOverride{
		{ID: uuid.New(), Key: "slow.example", Fields: map[string]string{"rcpt_rate": "1/s"},
			Author: "sre", Reason: "it asked", Expires: now.Add(time.Hour)},
		{ID: uuid.New(), Key: "odd.example", Fields: map[string]string{"colour": "red"}, Expires: now.Add(time.Hour)},
		{ID: uuid.New(), Key: "no name", Fields: map[string]string{"pause": "yes"}, Expires: now.Add(time.Hour)},
		{ID: uuid.New(), Key: "slow.example", Fields: map[string]string{"connections": "1"}, Expires: now.Add(time.Minute)},
	}}
	var failure error
	follower := &settingsFollower{table: table, clock: func() time.Time { return now }, replan: func() { replans++ },
		log:  slog.New(slog.DiscardHandler),
		from: func(context.Context) (ledger.Settings, error) { return found, failure }}
	check := func(when string, rate string, connections, replanned int) {
		t.Helper()
		err := follower.read(t.Context())
		effort.FatalIf(t, !errors.Is(err, failure), "%v", err)
		a := table.For("slow.example")
		effort.ErrorIf(t, a.RcptRate.String() != rate || a.Connections != connections || replans != replanned,
			"%s: %s, %d connections, %d replans; want %s, %d, %d", when, a.RcptRate, a.Connections, replans, rate,
			connections, replanned)
	}
	check("at first", "1/s", 1, 1)
	check("again", "1/s", 1, 1)
	w, other := follower.Weight(customer), follower.Weight(uuid.New())
	effort.ErrorIf(t, w != 7 || other != 1, "weights %d and %d, want 7 and 1", w, other)
	now, failure = now.Add(2*time.Minute), errors.New("no ledger")
	check("when the second is over and the ledger silent", "1/s", 2, 2)
	now = now.Add(time.Hour)
	check("when all are over", "5/s", 2, 3)
	now, failure, found.Overrides = now.Add(-time.Hour), nil, found.Overrides[:0]
	check("when they are cleared", "5/s", 2, 3)
	effort.Is(t, len(table.Rules(throttle.LayerOverride)), 0, "overrides in force")
	for _, e := range table.Explain("slow.example") {
		effort.ErrorIf(t, len(e.Said) > 1 && e.Said[len(e.Said)-1].Layer == throttle.LayerOverride,
			"%s is still overridden", e.Field)
	}
}

// TestTheEndOfAnOverrideIsLogged: the end is logged once, with the values and the author. Later readings and the end
// of a cleared override are not logged.
func TestTheEndOfAnOverrideIsLogged(t *testing.T) {
	table := effort.Must(throttle.NewTable(nil))(t)
	now := time.Now()
	ends := ledger.ThrottleOverride{ID: uuid.New(), Key: "slow.example", Fields: map[string]string{"rcpt_rate": "1/s"},
		Author: "anna@desk", Reason: "it asked", Created: now.Add(-time.Hour), Expires: now.Add(time.Minute)}
	cleared := ends
	cleared.ID, cleared.Key, cleared.Expires = uuid.New(), "other.example", now.Add(time.Hour)
	found := ledger.Settings{Overrides: []ledger.ThrottleOverride{ends, cleared}}
	var out bytes.Buffer
	follower := &settingsFollower{table: table, clock: func() time.Time { return now }, replan: func() {},
		log:  slog.New(slog.NewTextHandler(&out, nil)),
		from: func(context.Context) (ledger.Settings, error) { return found, nil }}
	follow := func() {
		t.Helper()
		effort.OK(t, follower.read(t.Context()))
	}
	follow()
	found.Overrides = found.Overrides[:1]
	follow()
	effort.Lacks(t, out.String(), "throttle ended", "one that was cleared has ended")
	now, found.Overrides = now.Add(time.Minute), nil // the ledger no longer returns it
	follow()
	follow()
	text := out.String()
	effort.Is(t, strings.Count(text, "throttle ended"), 1, "the end is logged", text)
	for _, want := range []string{"key=slow.example", "rcpt_rate:1/s", "author=anna@desk", "since=",
		"reason=\"it asked\"", ends.ID.String()} {
		effort.Has(t, text, want)
	}
}
