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
	// auditFirst bounds the wait for the first audit of a node. It is short, because a start may follow a crash or a
	// restore, but random, so that not all nodes audit at the same time.
	auditFirst = 2 * time.Minute
	// auditWithin bounds one audit, unless the interval of audits is longer. A ledger with 1,000,000 outcomes takes a
	// fraction of a second. Guess.
	auditWithin = 10 * time.Minute
	// violationsLogged bounds the error lines of one audit; further violations are only counted. `rollcall audit` lists
	// more.
	violationsLogged = 20
	// auditFile is the file in the data folder with the auditMark of the last audit.
	auditFile = "audit.json"
)

type auditor interface {
	Audit(ctx context.Context) (ledger.AuditReport, error)
}

// auditMark is the state of the ledger at the last audit. Entries are never deleted, so fewer of them mean an older
// copy of the ledger.
type auditMark struct {
	Entries int64     `json:"entries"`
	Newest  time.Time `json:"newest_entry,omitzero"`
}

// selfAudit audits the ledger regularly. It only reads.
type selfAudit struct {
	book  auditor
	every time.Duration
	file  string // of the mark
	log   *slog.Logger

	violations, last, took prometheus.Gauge
}

func (n *Node) startSelfAudit(ctx context.Context, c config.Config, o engineOptions) {
	if c.Audit.Every.Duration == 0 {
		return
	}
	s := newSelfAudit(n.Book, c.Audit.Every.Duration, filepath.Join(c.DataDir, auditFile), o)
	n.add("self-audit", process.Background(ctx, s.run))
}

func newSelfAudit(book auditor, every time.Duration, file string, o engineOptions) *selfAudit {
	gauge := func(name, help string) prometheus.Gauge {
		return process.NewGauge(o.registry, "audit_"+name, help)
	}
	return &selfAudit{book: book, every: every, file: file, log: o.log,
		violations: gauge("violations", "Violations that the last self-audit of the ledger found; 0 is right."),
		last: gauge("last_success_timestamp_seconds",
			"When the last self-audit of the ledger ended, whatever it found; 0 before the first."),
		took: gauge("duration_seconds", "How long the last self-audit of the ledger took."),
	}
}

// run audits until ctx ends. The waits are random, so that nodes do not audit at the same time.
func (s *selfAudit) run(ctx context.Context) {
	first := min(s.every, auditFirst)
	for wait := rand.N(first); term.Sleep(ctx, wait) == nil; wait = s.every - s.every/20 + rand.N(s.every/10) {
		s.once(ctx)
	}
}

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
	for _, v := range report.Violations[:min(len(report.Violations), violationsLogged)] {
		s.log.Error("the books do not add up", "invariant", v.Invariant, "subject", v.Subject)
	}
	if report.Found > violationsLogged {
		s.log.Error("further violations are not logged: run rollcall audit", "violations", report.Found)
	}
	s.compare(report)
	s.log.Info("ledger audited", "violations", report.Found, "verifications", report.Verifications,
		"entries", report.Entries, "took", took)
}

// compare logs if the ledger is older than at the last audit, and stores the present state.
func (s *selfAudit) compare(report ledger.AuditReport) {
	var before auditMark
	if text, err := os.ReadFile(s.file); err == nil && json.Unmarshal(text, &before) == nil &&
		report.Entries < before.Entries {
		s.log.Error("the ledger is older than it was: a backup was restored, or another file is in its place",
			"entries", report.Entries, "newest", report.Newest, "before", before.Entries, "newest_before", before.Newest)
	}
	if err := term.WriteJSON(s.file, auditMark{Entries: report.Entries, Newest: report.Newest}); err != nil {
		s.log.Warn("self-audit result not saved", "err", err)
	}
}
