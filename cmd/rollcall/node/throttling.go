package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/actors/process"
	"rollcall/actors/receiver"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp/mx"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// noteWithin bounds writing one line of the operator log about a change of the throttle file.
const noteWithin = 10 * time.Second

// throttling holds a node's limits of receivers: the rules, their origin, and the inspector that answers questions
// about them.
type throttling struct {
	table     *throttle.Table
	file      *config.ThrottleFile // with the reason if the file is not used
	shown     *throttleMetrics
	settings  *settingsFollower
	inspector *inspect.Inspector
}

// startThrottling loads the rules and follows changes of the file and of operators. It runs before the first probe.
func (n *Node) startThrottling(ctx context.Context, c config.Config, book *sqlstore.Store, o engineOptions) error {
	t := &throttling{}
	var err error
	if t.file, err = config.OpenThrottle(c.Throttle); err != nil {
		return err
	}
	if t.table, err = throttle.NewTable(t.file.State().Rules); err != nil {
		return err
	}
	t.shown = newThrottleMetrics(o.registry, t.table)
	t.settings = &settingsFollower{from: book.Settings, table: t.table, clock: n.clock,
		replan: n.work.receivers.Replan, log: o.log}
	stop, err := followSettings(ctx, t.settings)
	if err != nil {
		return err
	}
	n.throttling = t
	n.add("overrides", stop)
	n.watchThrottle(ctx, book, o.log)
	return nil
}

func (n *Node) watchThrottle(ctx context.Context, book ledger.Operators, log *slog.Logger) {
	t := n.throttling
	n.add("throttle", process.Background(ctx, func(ctx context.Context) {
		t.file.Watch(ctx, log, func(s config.ThrottleState) {
			err := s.Err
			if err == nil {
				if err = t.table.Replace(throttle.LayerFile, s.Rules); err != nil {
					log.Error("throttle file refused", "err", err)
				}
			}
			t.shown.file(err)
			if err == nil {
				n.work.receivers.Replan()
				n.noteChanges(ctx, book, log, s.Changes)
			}
		})
	}))
}

// noteChanges writes the changes that a new throttle file makes into the operator log. The file's author is unknown.
func (n *Node) noteChanges(ctx context.Context, book ledger.Operators, log *slog.Logger, changes []throttle.Change) {
	within, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	for i, c := range changes {
		line := ledger.LogLine{Action: "throttle file", Subject: cmp.Or(c.Name, "default"), Old: change(c.Field, c.Old),
			New: change(c.Field, c.New), Reason: c.Where}
		if i == notesMax {
			line = ledger.LogLine{Action: "throttle file", Subject: "more",
				New: fmt.Sprintf("%d more fields changed", len(changes)-i)}
		}
		if err := book.Note(within, line); err != nil {
			log.Warn("change of the throttle file not noted in the operator log", "err", err)
			return
		}
		if i == notesMax {
			return
		}
	}
}

// notesMax bounds the lines of the operator log about one throttle file. Guess: larger changes come from a program,
// which has its own records.
const notesMax = 100

// change returns the old or new value of a field, for people, or "" for no value.
func change(f throttle.Field, text string) string {
	if text == "" {
		return ""
	}
	return f.String() + "=" + text
}

func (n *Node) receivers(c config.Config, o engineOptions) (receiver.Options, error) {
	r, err := receiverOptions(c, n.table, o)
	if err != nil {
		return receiver.Options{}, err
	}
	r.Most = c.SMTP.ReceiversAtOnce
	r.Tracer, r.Guard, r.Pauses = n.tracer, o.guard, n.watchdog.Pauses
	r.Busy = func() bool { return n.window.Busy() }
	r.Registry, r.Fenced, r.Late = n.work.receivers, n.Cluster.Fenced, n.Cluster.Late
	r.Facts, r.Clock = o.facts, n.clock
	r.Stated = func(key string) bool { return n.table.Stated(key, throttle.FieldRcptRate) }
	r.SourceOf, r.Said, r.Weight = n.table.Source, n.table.Said, n.settings.Weight
	return r, nil
}

// openInspector makes the inspector. It answers operators' questions about this node and asks the other nodes.
func (n *Node) openInspector(r receiver.Options, resolver *mx.Resolver) {
	sources := func(ctx context.Context) []inspect.Source { return r.Registry.CollectSources(ctx, r.Sources) }
	n.inspector = inspect.New(inspect.Options{Receivers: r.Registry, Sources: sources, Table: n.table,
		Route: resolver.Lookup, Clock: n.clock, Guard: r.Guard, Lookup: n.work.lookup,
		Health: func() inspect.Health { return admin.HealthOf(n.self.view()) },
		Fault:  func() string { return throttleFileView(n.file.State()).Fault }})
	n.inspector.Join(n.Cluster)
}

// replay tries a throttle file on the record of all nodes, with the present overrides.
func (n *Node) replay(ctx context.Context, base config.Throttle, text string) (inspect.Replayed, error) {
	candidate, findings := config.CheckThrottleText("candidate", []byte(text), base)
	var warnings []string
	for _, f := range findings {
		if f.Severity == config.SeverityError {
			return inspect.Replayed{}, fmt.Errorf("%w: %s", admin.ErrCandidate, f)
		}
		warnings = append(warnings, f.String())
	}
	return n.replayRecord(ctx, candidate, n.table.Rules(throttle.LayerOverride), warnings)
}

// replayOverride tries the present rules and one more override on the record of all nodes.
func (n *Node) replayOverride(ctx context.Context, name string, set throttle.Override) (inspect.Replayed, error) {
	// Until does not matter: a replay is about the past.
	more := throttle.Rule{Name: name, Set: set, Until: time.Now().Add(time.Hour)}
	return n.replayRecord(ctx, n.table.Rules(throttle.LayerFile),
		append(slices.Clone(n.table.Rules(throttle.LayerOverride)), more), nil)
}

// replayRecord collects the records of all nodes and tries the rules of a file and overrides on them.
func (n *Node) replayRecord(ctx context.Context, file, overrides []throttle.Rule,
	warnings []string) (inspect.Replayed, error) {
	candidate, err := throttle.NewTable(file)
	if err == nil {
		err = candidate.Replace(throttle.LayerOverride, overrides)
	}
	if err != nil {
		return inspect.Replayed{}, fmt.Errorf("%w: %w", admin.ErrCandidate, err)
	}
	records, silent, err := n.inspector.Record(ctx)
	if err != nil {
		return inspect.Replayed{}, err
	}
	out := inspect.Replay(records, n.table, candidate)
	out.Warnings, out.Silent = append(warnings, out.Warnings...), silent
	return out, nil
}

func throttleFileView(s config.ThrottleState) admin.ThrottleFile {
	out := admin.ThrottleFile{File: s.File}
	if s.Found {
		out.Loaded = new(api.Time(s.At))
	}
	if s.Err != nil {
		out.Fault = s.Err.Error()
	}
	return out
}

type throttleMetrics struct {
	fileUsed prometheus.Gauge
	loaded   prometheus.Gauge
	says     prometheus.Gauge
	table    *throttle.Table
}

// newThrottleMetrics registers the metrics. They read the table at each scrape.
func newThrottleMetrics(r prometheus.Registerer, table *throttle.Table) *throttleMetrics {
	m := &throttleMetrics{table: table,
		fileUsed: process.NewGauge(r, "throttle_file_used", "1: the present throttle file is in use, or there is none. "+
			"0: it has a fault, and the rules before it are in force."),
		loaded: process.NewGauge(r, "throttle_file_loaded_timestamp_seconds",
			"When the throttle rules in force were read; at first the start of the node."),
		says: process.NewGauge(r, "throttle_rules_fingerprint",
			"A hash of the rules: nodes with different rules have different values."),
	}
	process.NewGaugeFunc(r, "throttle_rules", "Rules of the configuration and the throttle file that are in force.",
		func() float64 { return float64(len(table.Rules(throttle.LayerFile))) })
	process.NewGaugeFunc(r, "throttle_overrides", "Overrides of operators that are in force.",
		func() float64 { return float64(len(table.Rules(throttle.LayerOverride))) })
	process.NewGaugeFunc(r, "throttle_override_ends_timestamp_seconds",
		"When the first of the overrides in force ends; 0 when there is none.",
		func() float64 { return firstEnd(table.Rules(throttle.LayerOverride)) })
	m.file(nil)
	return m
}

func (m *throttleMetrics) file(err error) {
	if err != nil {
		m.fileUsed.Set(0)
		return
	}
	m.fileUsed.Set(1)
	m.says.Set(fingerprint(m.table.Rules(throttle.LayerFile)))
	m.loaded.SetToCurrentTime()
}

// fingerprint returns throttle.Fingerprint as a number that a float64 holds exactly.
func fingerprint(rules []throttle.Rule) float64 {
	n, err := strconv.ParseUint(throttle.Fingerprint(rules)[:fingerprintDigits], 16, 64)
	if err != nil {
		panic(err) // a fingerprint has only hexadecimal digits
	}
	return float64(n)
}

// fingerprintDigits are 48 bits: two different files share them once in 2^48 times.
const fingerprintDigits = 12

// firstEnd returns when the first override ends, in Unix seconds.
func firstEnd(overrides []throttle.Rule) float64 {
	if len(overrides) == 0 {
		return 0
	}
	first := slices.MinFunc(overrides, func(a, b throttle.Rule) int { return a.Until.Compare(b.Until) })
	return float64(first.Until.UnixMilli()) / 1e3
}

// LoadRules returns the rules in effect: first those of the operator's file, then the program's own. Only the file of
// the default name may be missing.
func LoadRules(c config.Verdict) (*verdict.Rules, error) {
	if c.File == "" {
		return verdict.Builtin(), nil
	}
	rules, err := verdict.LoadFile(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		if c.File == config.Default().Verdict.File {
			return verdict.Builtin(), nil
		}
		return nil, fmt.Errorf("there is no file %s: check verdict.file: %w", c.File, err)
	}
	return rules, err
}

// liveRules are the rules that judge replies. They follow the operator's file while the node runs. A faulty file is
// logged, with its line, and changes nothing.
type liveRules struct {
	config config.Verdict
	watch  *config.FileWatch
	rules  atomic.Pointer[verdict.Rules]

	fileUsed, loaded, own prometheus.Gauge
}

// openRules loads what LoadRules does, with its errors.
func openRules(c config.Verdict, r prometheus.Registerer) (*liveRules, error) {
	l := &liveRules{config: c, watch: config.WatchFiles(c.File),
		fileUsed: process.NewGauge(r, "verdict_file_used", "1: the present file of verdict rules is in use, or there is "+
			"none. 0: it has a fault, and the rules before it are in force."),
		loaded: process.NewGauge(r, "verdict_file_loaded_timestamp_seconds",
			"When the verdict rules in force were read; at first the start of the node."),
		own: process.NewGauge(r, "verdict_own_rules", "Verdict rules of the operator's file that are in force."),
	}
	return l, l.load()
}

// Now returns the rules in use.
func (l *liveRules) Now() *verdict.Rules { return l.rules.Load() }

func (l *liveRules) load() error {
	rules, err := LoadRules(l.config)
	if err != nil {
		l.fileUsed.Set(0)
		return err
	}
	l.rules.Store(rules)
	l.fileUsed.Set(1)
	l.own.Set(float64(rules.Own()))
	l.loaded.SetToCurrentTime()
	return nil
}

// follow loads the file each time it has changed, until ctx ends.
func (l *liveRules) follow(ctx context.Context, log *slog.Logger) {
	l.watch.Each(ctx, func() {
		if err := l.load(); err != nil {
			log.Error("verdict file not used", "err", err)
			return
		}
		log.Info("verdict file loaded", "file", l.config.File, "rules", l.Now().Own(), "changes", len(l.Now().Changes()))
	})
}

func (n *Node) startRules(ctx context.Context, c config.Config, o Options) (err error) {
	if n.rules, err = openRules(c.Verdict, n.Registry); err != nil {
		return err
	}
	n.add("verdict rules", process.Background(ctx, func(ctx context.Context) { n.rules.follow(ctx, o.Log) }))
	return nil
}
