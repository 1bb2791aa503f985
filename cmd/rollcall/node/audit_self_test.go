package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// auditScript is a ledger with prepared audits; the last one is repeated.
type auditScript struct {
	steps []auditStep
	at    []time.Time
}

type auditStep struct {
	report ledger.AuditReport
	err    error
	takes  time.Duration
}

// selfAuditRig runs a self-audit of a script in the bubble for a time. It returns the log, and the metrics without
// the common part of their names.
func selfAuditRig(t *testing.T, file string, script *auditScript, runs time.Duration) (map[string]float64, string) {
	t.Helper()
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	s := newSelfAudit(script, time.Hour, file, engineOptions{registry: registry,
		log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithTimeout(t.Context(), runs)
	defer cancel()
	s.run(ctx)
	families := effort.Must(registry.Gather())(t)
	metrics := map[string]float64{}
	for _, f := range families {
		metrics[strings.TrimPrefix(f.GetName(), "rollcall_audit_")] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return metrics, log.String()
}

// TestSelfAuditRunsSoonAndThenEveryHour: after an audit that fails or takes too long, the next one still runs, and
// the metric keeps the time of the last success.
func TestSelfAuditRunsSoonAndThenEveryHour(t *testing.T) {
	file := filepath.Join(t.TempDir(), auditFile)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		script := &auditScript{steps: []auditStep{
			{report: ledger.AuditReport{Entries: 7}, takes: 30 * time.Second},
			{takes: 100 * time.Hour}, // ended after an hour
			{err: errors.New("database away")},
		}}
		metrics, log := selfAuditRig(t, file, script, 5*time.Hour)
		effort.FatalIf(t, len(script.at) < 4 || len(script.at) > 6, "%d audits in 5 h: %v", len(script.at), script.at)
		first := script.at[0].Sub(start)
		effort.ErrorIf(t, first > auditFirst, "the first audit after %v", first)
		for i, wait := range []time.Duration{30 * time.Second, time.Hour} {
			gap := script.at[i+1].Sub(script.at[i]) - wait
			effort.ErrorIf(t, gap < 57*time.Minute || gap > 63*time.Minute,
				"audit %d begins %v after the end of the one before", i+1, gap)
		}
		want := float64(script.at[0].Add(30*time.Second).UnixMilli()) / 1000
		effort.Is(t, metrics["last_success_timestamp_seconds"], want, "last success at")
		effort.Is(t, metrics["duration_seconds"], 30, "took s")
		effort.ErrorIf(t, strings.Count(log, "self-audit failed") < 2 || strings.Contains(log, "ERROR"),
			"log:\n%s", log)
	})
}

// TestSelfAuditTellsViolations: the log lines have ids but no details, and their number is bounded.
func TestSelfAuditTellsViolations(t *testing.T) {
	file := filepath.Join(t.TempDir(), auditFile)
	synctest.Test(t, func(t *testing.T) {
		report := ledger.AuditReport{Found: 2000}
		for range ledger.ViolationsMax {
			report.Violations = append(report.Violations, ledger.Violation{Invariant: "I4", Subject: "abc", Detail: "secret"})
		}
		metrics, log := selfAuditRig(t, file, &auditScript{steps: []auditStep{{report: report}}}, 10*time.Minute)
		n := strings.Count(log, `"the books do not add up" invariant=I4 subject=abc`)
		effort.ErrorIf(t, n != violationsLogged || strings.Contains(log, "secret") ||
			!strings.Contains(log, "violations=2000"), "%d lines in\n%s", n, log)
		effort.Is(t, metrics["violations"], 2000, "metric")
	})
}

// TestSelfAuditTellsAnOlderLedger: an older ledger is logged once, also after a restart.
func TestSelfAuditTellsAnOlderLedger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data", auditFile)
	for _, c := range []struct {
		name    string
		entries int64
		older   bool
	}{
		{"first", 100, false}, {"same", 100, false}, {"restored", 60, true}, {"restored still", 61, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			script := &auditScript{steps: []auditStep{{report: ledger.AuditReport{Entries: c.entries}}}}
			_, log := selfAuditRig(t, file, script, 10*time.Minute)
			effort.Is(t, strings.Contains(log, `level=ERROR msg="the ledger is older`), c.older, c.name, "told", log)
		})
	}
}

func (a *auditScript) Audit(ctx context.Context) (ledger.AuditReport, error) {
	step := a.steps[min(len(a.at), len(a.steps)-1)]
	a.at = append(a.at, time.Now())
	select {
	case <-time.After(step.takes):
		return step.report, step.err
	case <-ctx.Done():
		return ledger.AuditReport{}, ctx.Err()
	}
}
