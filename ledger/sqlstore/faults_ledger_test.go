package sqlstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
	"rollcall/ledger/sqlstore/engine"
)

// callsMax bounds how often a call is made until it succeeds.
const callsMax = 4

// faulty is a ledger on a server that is reached in two ways: by way of a
// proxy that loses things, and past it. It is used by one goroutine.
type faulty struct {
	t             *testing.T
	proxy         *postgres.Proxy
	through       *sqlstore.Store
	past          *sqlstore.Store
	conn          *pgx.Conn      // past it as well
	at            int            // the number of the move at hand
	calm          map[int64]calm // of it, by size
	runs          int            // so far
	tried, faults int            // runs of the moves, and faults in them
}

// calm is what a move does without faults.
type calm struct {
	scene                 *scene
	before, after, answer string
	statements            int // of its transaction, with BEGIN and COMMIT
}

// imitation makes a PostgreSQL call itself CockroachDB, so that the ledger speaks
// to it in that way: with a savepoint, whose RELEASE commits.
const imitation = `
	CREATE FUNCTION public.version() RETURNS TEXT LANGUAGE SQL AS $$ SELECT 'CockroachDB, imitated'::TEXT $$;
	DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database());
	END $$`

// newFaulty makes an empty ledger that ends with the test, on PostgreSQL or on its imitation of CockroachDB.
func newFaulty(t *testing.T, cockroach bool) *faulty {
	t.Helper()
	url := sqlstore.NewLedger(t)
	if cockroach {
		changeAt(t, url, imitation)
	}
	proxy := effort.Must(postgres.StartProxy(url))(t)
	t.Cleanup(func() { effort.OK(t, proxy.Close()) })
	f := &faulty{t: t, proxy: proxy, past: openAt(t, url), calm: map[int64]calm{}}
	f.conn = effort.Must(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = f.conn.Close(context.WithoutCancel(t.Context())) })
	f.through = openWith(t, proxy.URL(f.conn.Config().Database), sqlstore.Options{RetryWait: time.Millisecond})
	return f
}

// stored names the tables of the ledger, those that others refer to first.
var stored = []string{"workspaces", "verifications", "upload_chunks", "settlements", "evidence", "parked_work", "entries", "credit_days",
	"operator_log", "nodes", "cluster_turn", "receiver_facts", "throttle_overrides", "workspace_weights",
	"users", "memberships", "user_sessions", "links", "sign_in_attempts", "workspace_log"}

// sets empties the ledger, prepares a move, and keeps a copy of what it made.
func (f *faulty) sets(m move, n int64) *scene {
	f.t.Helper()
	f.sql(emptied() + `INSERT INTO cluster_turn (one, turn) VALUES (1, 0);
		UPDATE ledger_clock SET swept = CAST(extract(epoch FROM statement_timestamp()) * 1000 AS BIGINT)`) // a sweep has none to note
	s := &scene{Fixture: ledgertest.NewFixture(f.t, f.past, m.credits(n)), n: n, ids: map[uuid.UUID]string{}}
	s.names(s.Workspace, "workspace")
	s.names(s.Node, "node")
	s.late = func() { f.sql(`UPDATE verifications SET waiting_since = waiting_since - 3600000`) }
	m.prepare(s)
	statements := ""
	for _, table := range stored {
		statements += fmt.Sprintf(`CREATE TABLE IF NOT EXISTS kept_%d_%s (LIKE %[2]s); DELETE FROM kept_%[1]d_%[2]s;
			INSERT INTO kept_%[1]d_%[2]s SELECT * FROM %[2]s;`, n, table)
	}
	f.sql(fmt.Sprintf(`%s CREATE OR REPLACE FUNCTION public.resets_%d() RETURNS VOID LANGUAGE plpgsql AS
		$$ BEGIN %s%s END $$`, statements, n, emptied(), copied(n)))
	return s
}

// copied are the statements that copy into the ledger what was kept for n.
func copied(n int64) string {
	statements := ""
	for _, table := range stored {
		statements += fmt.Sprintf(`INSERT INTO %s SELECT * FROM kept_%d_%[1]s;`, table, n)
	}
	return statements
}

// vacuumEvery is the number of runs after which what they deleted is cleared
// away, so that the last of thousands is as fast as the first. Guess.
const vacuumEvery = 200

// resets puts the ledger back to what sets made for n.
func (f *faulty) resets(n int64) {
	f.t.Helper()
	f.sql(fmt.Sprintf(`SELECT public.resets_%d()`, n))
	if f.runs++; f.runs%vacuumEvery == 0 {
		f.sql(`VACUUM ` + strings.Join(stored, ", "))
	}
}

// emptied are the statements that empty the ledger.
func emptied() string {
	statements := ""
	for _, table := range slices.Backward(stored) {
		statements += `DELETE FROM ` + table + `;`
	}
	return statements
}

// sql runs statements past the proxy.
func (f *faulty) sql(statements string) {
	f.t.Helper()
	effort.Must(f.conn.PgConn().Exec(f.t.Context(), statements).ReadAll())(f.t)
}

// without runs a move without faults, once for each size.
func (f *faulty) without(m move, n int64) calm {
	f.t.Helper()
	if known, ok := f.calm[n]; ok {
		return known
	}
	s := f.sets(m, n)
	c := calm{scene: s, before: f.reads(s)}
	var sees script
	f.proxy.SetPlan(sees.plan)
	s.calls++
	answer, err := m.call(f.t.Context(), f.through, s)
	f.proxy.SetPlan(nil)
	if err == nil {
		err = f.audits()
	}
	effort.FatalIf(f.t, err != nil || sees.begun != 1, "without faults: %d transactions, %v", sees.begun, err)
	c.after, c.answer, c.statements = f.reads(s), s.named(answer), sees.statements
	f.calm[n] = c
	return c
}

// meets makes the calls of a move under a script until one succeeds, and says in
// what the book or the answers differ from those without faults.
func (f *faulty) meets(m move, n int64, under *script) error {
	f.t.Helper()
	want := f.without(m, n)
	f.resets(n)
	again := *want.scene
	s := &again
	s.calls = 0
	f.proxy.SetPlan(under.plan)
	answer, err := f.insists(m, s, want)
	f.proxy.SetPlan(nil)
	if err != nil {
		return err
	}
	if !under.met {
		return errors.New("the fault was not met")
	}
	for range 2 { // and once more: calling again changes nothing
		if got := s.named(answer); got != want.answer {
			return fmt.Errorf("answer: got %s, want %s", got, want.answer)
		}
		if got := f.reads(s); got != want.after {
			return fmt.Errorf("the book differs: %s", differs(got, want.after))
		}
		s.calls++
		if answer, err = m.call(f.t.Context(), f.through, s); err != nil {
			return fmt.Errorf("called again: %w", err)
		}
	}
	return nil
}

// insists calls until there is no error. An error must say whether the book may
// have changed, and "not changed" must be true.
func (f *faulty) insists(m move, s *scene, want calm) (answer any, err error) {
	f.t.Helper()
	for s.calls < callsMax {
		s.calls++
		answer, err = m.call(f.t.Context(), f.through, s)
		if err == nil {
			return answer, nil
		}
		f.proxy.SetPlan(nil) // the faults end when a caller has heard of them
		switch {
		case errors.Is(err, engine.ErrUnknown):
		case !errors.Is(err, engine.ErrUnavailable):
			return nil, fmt.Errorf("call %d: an error that says nothing: %w", s.calls, err)
		case s.calls == 1 && f.reads(s) != want.before:
			return nil, fmt.Errorf("changed, although %w: %s", err, differs(f.reads(s), want.before))
		}
	}
	return nil, fmt.Errorf("no success in %d calls: %w", callsMax, err)
}

// clock finds a time, in the tables and in the answers: only whether there is one
// is compared. Those of the results are the same in each scene.
var clock = regexp.MustCompile(
	`"(created|completed|upload_expires|waiting_since|wake_at|lease_expires|Created|Completed|UploadExpires|` +
		`since|seen|updated|Since|Seen|Now|expires|ends|Expires|refused|disabled|Disabled|Used|Ends)":` +
		`("0001-01-01T00:00:00Z"|0\b)?("[^"]*"|\d+)?`)

// otherID finds an id that has no name in the scene: the ledger made it anew, as that of a line of the operator log.
var otherID = regexp.MustCompile(`"(\\\\x[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"`)

// ending finds when an override ends in a line of the operator log.
var ending = regexp.MustCompile(` until [0-9T:-]{19}Z`)

// reads gives the whole book, one line for each row.
func (f *faulty) reads(s *scene) string {
	f.t.Helper()
	var questions []string
	for _, table := range stored {
		questions = append(questions, fmt.Sprintf(`SELECT '%s', to_jsonb(t) FROM %[1]s t`, table))
	}
	rows := effort.Must(f.conn.Query(f.t.Context(), strings.Join(questions, " UNION ALL ")))(f.t)
	lines := effort.Must(pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var table string
		var columns map[string]any
		err := row.Scan(&table, &columns)
		return table + " " + s.named(columns), err
	}))(f.t)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// differs lists the rows that only one of two books has.
func differs(got, want string) string {
	var b strings.Builder
	only := func(sign string, some, others []string) {
		for _, line := range some {
			if !slices.Contains(others, line) {
				fmt.Fprintf(&b, "\n%s %s", sign, line)
			}
		}
	}
	has, needs := strings.Split(got, "\n"), strings.Split(want, "\n")
	only("+", has, needs)
	only("-", needs, has)
	if b.Len() == 0 {
		fmt.Fprintf(&b, "%d rows for %d, some twice", len(has), len(needs))
	}
	return b.String()
}

// named is a value as JSON with names in the place of ids, in their spellings of
// the tables and of the answers, and without times.
func (s *scene) named(value any) string {
	data := effort.Must(json.Marshal(value))(s.T)
	text := string(data)
	for id, name := range s.ids {
		text = strings.NewReplacer(id.String(), name, fmt.Sprintf(`\\x%x`, id[:]), name).Replace(text)
	}
	text = ending.ReplaceAllString(text, " until then")
	text = otherID.ReplaceAllString(text, `"some id"`)
	return clock.ReplaceAllString(text, `"$1":"time$2"`)
}

// audits fails unless the audit is clean.
func (f *faulty) audits() error {
	report, err := f.past.Audit(f.t.Context())
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if len(report.Violations) > 0 {
		return fmt.Errorf("audit: %+v", report.Violations)
	}
	return nil
}
