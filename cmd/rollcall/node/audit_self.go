package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/process"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/ledger"
)

const (
	// auditFirst bounds the wait for the first audit of a node: soon, since a
	// start may follow a crash or a restore, and not at once with the other nodes.
	auditFirst = 2 * time.Minute
	// auditWithin bounds one audit unless the time between two is longer. A
	// ledger with 1,000,000 outcomes takes a fraction of a second. Guess.
	auditWithin = 10 * time.Minute
	// violationsLogged bounds the error lines of one audit; the rest is counted.
	// `rollcall audit` lists more.
	violationsLogged = 20
	// auditFile remembers, in the data folder, what the last audit saw.
	auditFile = "audit.json"
)

// auditor is what the self-audit needs of the ledger.
type auditor interface {
	Audit(ctx context.Context) (ledger.AuditReport, error)
}

// auditMark is what the last audit saw. No entry is ever deleted, so that fewer
// of them mean an older copy of the ledger.
type auditMark struct {
	Entries int64     `json:"entries"`
	Newest  time.Time `json:"newest_entry,omitzero"`
}

// selfAudit audits the ledger again and again. It only reads.
type selfAudit struct {
	book  auditor
	every time.Duration
	file  string // of the mark
	log   *slog.Logger

	violations, last, took prometheus.Gauge
}

// startSelfAudit starts the audits that [audit] every asks for.
func (n *Node) startSelfAudit(ctx context.Context, c config.Config, o engineOptions) {
	if c.Audit.Every.Duration == 0 {
		return
	}
	s := newSelfAudit(n.Book, c.Audit.Every.Duration, filepath.Join(c.DataDir, auditFile), o)
	n.add("self-audit", process.Background(ctx, s.run))
}

func newSelfAudit(book auditor, every time.Duration, file string, o engineOptions) *selfAudit {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_audit_" + name, Help: help})
		o.registry.MustRegister(g)
		return g
	}
	return &selfAudit{book: book, every: every, file: file, log: o.log,
		violations: gauge("violations", "Violations that the last self-audit of the ledger found; 0 is right."),
		last: gauge("last_success_timestamp_seconds",
			"When a self-audit of the ledger last came to its end, whatever it found; 0 before the first."),
		took: gauge("duration_seconds", "How long the last self-audit of the ledger took."),
	}
}

// run audits until ctx ends. The waits are drawn, so that nodes do not march in step.
func (s *selfAudit) run(ctx context.Context) {
	first := min(s.every, auditFirst)
	for wait := rand.N(first); term.Sleep(ctx, wait) == nil; wait = s.every - s.every/20 + rand.N(s.every/10) {
		s.once(ctx)
	}
}

// once audits and tells.
func (s *selfAudit) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(s.every, auditWithin))
	defer cancel()
	began := time.Now()
	report, err := s.book.Audit(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) { // the node stops
			s.log.Warn("self-audit failed", "err", err)
		}
		return
	}
	took := time.Since(began)
	s.violations.Set(float64(report.Found))
	s.last.Set(float64(time.Now().UnixMilli()) / 1000)
	s.took.Set(took.Seconds())
	for i, v := range report.Violations {
		if i == violationsLogged {
			break
		}
		s.log.Error("the books do not add up", "invariant", v.Invariant, "subject", v.Subject)
	}
	if report.Found > violationsLogged {
		s.log.Error("more of the books does not add up: run rollcall audit", "violations", report.Found)
	}
	s.compare(report)
	s.log.Info("ledger audited", "violations", report.Found, "verifications", report.Verifications,
		"entries", report.Entries, "took", took)
}

// compare tells when the ledger is an older one than before, and remembers this one.
func (s *selfAudit) compare(report ledger.AuditReport) {
	var before auditMark
	if text, err := os.ReadFile(s.file); err == nil && json.Unmarshal(text, &before) == nil &&
		report.Entries < before.Entries {
		s.log.Error("the ledger is older than it was: a backup was restored, or another file is in its place",
			"entries", report.Entries, "newest", report.Newest, "before", before.Entries,
			"newest_before", before.Newest)
	}
	if err := term.WriteJSON(s.file, auditMark{Entries: report.Entries, Newest: report.Newest}); err != nil {
		s.log.Warn("self-audit not remembered", "err", err)
	}
}
