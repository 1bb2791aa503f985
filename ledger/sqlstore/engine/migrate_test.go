package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
)

// migratorAt is a migration of the database at url in the way of d.
func migratorAt(t *testing.T, url string, d dialect) *DB {
	t.Helper()
	var db *sql.DB
	var err error
	if isServer(url) {
		db, err = connector(url, access{patient: true})
	} else {
		db, err = sql.Open("sqlite", dsn(strings.TrimPrefix(url, "sqlite:"), writerPragmas, "rwc"))
	}
	effort.OK(t, err)
	s := effort.Must(migrator(d, book, db))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// does runs a statement behind the migration's back.
func (s *DB) does(t *testing.T, statement string) {
	t.Helper()
	_, err := s.writer.db.ExecContext(t.Context(), statement)
	effort.FatalIf(t, err != nil, "%s: %v", statement, err)
}

// schemaOf describes all tables, columns, constraints and indexes of a ledger.
func (s *DB) schemaOf(t *testing.T) (lines []string) {
	t.Helper()
	question := `SELECT name || ' ' || sql FROM sqlite_master WHERE sql IS NOT NULL`
	if !s.Embedded() {
		question = `SELECT table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' ||
				coalesce(column_default, '') FROM information_schema.columns WHERE table_schema = 'public'
			UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
			UNION ALL SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
				WHERE connamespace = 'public'::regnamespace
			UNION ALL SELECT 'migration ' || version FROM schema_versions`
	}
	rows := effort.Must(s.writer.db.QueryContext(t.Context(), question))(t)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var line string
		effort.OK(t, rows.Scan(&line))
		if !strings.Contains(line, "cut") { // what the test itself made
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// ways are those in which migrations are tried: PostgreSQL stands in for CockroachDB, in whose
// way each change of the schema is committed by itself.
var ways = []struct {
	name string
	d    dialect
	url  func(t *testing.T) string
}{
	{"sqlite", sqliteDialect(), func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "ledger.db") }},
	{"postgresql", postgresDialect(), func(t *testing.T) string { return postgres.Empty(t) }},
	{"cockroachdb", cockroachDialect(), func(t *testing.T) string { return postgres.Empty(t) }},
}

// TestAMigrationIsTakenUpWhereItWasCut cuts the migrations after each of their statements: in CockroachDB's way that
// statement is committed, and not recorded. The end is the same schema as without a cut, and the ledger works.
func TestAMigrationIsTakenUpWhereItWasCut(t *testing.T) {
	t.Parallel()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			whole := migratorAt(t, w.url(t), w.d)
			effort.OK(t, whole.migrate(t.Context()))
			url := w.url(t)
			s := migratorAt(t, url, w.d)
			for _, table := range schemaTables {
				effort.OK(t, s.define(t.Context(), table))
			}
			s.cutsEachStep(t)
			cuts := 0
			for version := 1; version <= book.Version; version++ {
				list, err := book.steps(version)
				effort.FatalIf(t, err != nil || len(list) == 0,
					"migration %d has %d steps: %v", version, len(list), err)
				for i := range list {
					effort.ErrHas(t, s.migrate(t.Context()), "cut here", "migration", version, "step", i+1)
					effort.FatalIf(t, cuts == 0 && s.has(t, "workspaces") != (w.name == "cockroachdb"),
						"whether the statement before the cut is committed: %v", w.name != "cockroachdb")
					s.does(t, fmt.Sprint(`UPDATE cut SET upto = `, 1000*version+i+1))
					cuts++
				}
			}
			effort.OK(t, s.migrate(t.Context()), "after", cuts, "cuts")
			if got, want := s.schemaOf(t), whole.schemaOf(t); !slices.Equal(got, want) || len(got) < 30 || s.unfinished(t) > 0 {
				t.Errorf("after %d cuts the schema is\n%s\nwant\n%s", cuts, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			effort.OK(t, s.Close())
			worksAt(t, url)
		})
	}
}

// unfinished counts the steps of a migration that is not whole.
func (s *DB) unfinished(t *testing.T) (n int) {
	t.Helper()
	effort.OK(t, s.writer.db.QueryRowContext(t.Context(), `SELECT count(*) FROM schema_steps`).Scan(&n))
	return n
}

func (s *DB) has(t *testing.T, table string) bool {
	t.Helper()
	question := `SELECT count(*) FROM sqlite_master WHERE name = '` + table + `'`
	if !s.Embedded() {
		question = `SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename = '` + table + `'`
	}
	var n int
	effort.OK(t, s.writer.db.QueryRowContext(t.Context(), question).Scan(&n))
	return n > 0
}

// cutsEachStep makes the database refuse to record a step that is beyond the one in table cut.
func (s *DB) cutsEachStep(t *testing.T) {
	s.does(t, `CREATE TABLE cut (upto INT NOT NULL)`)
	s.does(t, `INSERT INTO cut VALUES (0)`)
	if s.Embedded() {
		s.does(t, `CREATE TRIGGER cut BEFORE INSERT ON schema_steps WHEN 1000*NEW.version + NEW.step > (SELECT upto FROM cut)
			BEGIN SELECT RAISE(ABORT, 'cut here'); END`)
		return
	}
	s.does(t, `CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF 1000*NEW.version + NEW.step > (SELECT upto FROM cut) THEN RAISE EXCEPTION 'cut here'; END IF;
		RETURN NEW; END $$`)
	s.does(t, `CREATE TRIGGER cut BEFORE INSERT ON schema_steps FOR EACH ROW EXECUTE FUNCTION cut()`)
}

// worksAt opens a ledger and writes to it.
func worksAt(t *testing.T, url string) {
	t.Helper()
	s := effort.Must(Open(t.Context(), url, book, Options{}))(t)
	workspace := addWorkspace(t, s, "works")
	effort.ErrIs(t, grant(t.Context(), s, workspace), nil)
	effort.Is(t, effort.Must(granted(t.Context(), s, workspace))(t), 1, "granted")
	effort.Denied(s.BelievedNow(t.Context()))(t, nil)
	effort.ErrIs(t, s.Close(), nil)
}

// TestASchemaChangeThatFailsIsTold: CockroachDB may commit a transaction and then fail to
// change the schema. An event trigger answers as it does.
func TestASchemaChangeThatFailsIsTold(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	s := migratorAt(t, url, cockroachDialect())
	s.does(t, `CREATE FUNCTION fails() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'transaction committed but schema change aborted' USING ERRCODE = 'XXA00'; END $$`)
	effort.OK(t, s.migrate(t.Context()))
	s.does(t, `DELETE FROM schema_versions WHERE version >= 1`)
	s.does(t, `CREATE EVENT TRIGGER fails ON ddl_command_start WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION fails()`)
	err := s.migrate(t.Context())
	s.does(t, `DROP EVENT TRIGGER fails`)
	effort.ErrorIf(t, !errors.Is(err, ErrSchemaChange) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable),
		"got %v, want ErrSchemaChange and nothing else", err)
	effort.Denied(Open(t.Context(), url, book, Options{}))(t, ErrSchemaOld, "the ledger of a migration that failed")
	effort.OK(t, s.migrate(t.Context()))
	worksAt(t, url)
}

// TestManyMigrateInCockroachsWay runs several migrations at once: a step that two of them run does no harm.
func TestManyMigrateInCockroachsWay(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	done := make(chan error)
	for range 3 {
		s := migratorAt(t, url, cockroachDialect())
		go func() { done <- s.migrate(context.WithoutCancel(t.Context())) }()
	}
	for range 3 {
		effort.ErrIs(t, <-done, nil)
	}
	worksAt(t, url)
}

// unmigrated makes the ledger forget that it was migrated, so that each statement is run again.
const unmigrated = `DELETE FROM schema_versions`

// changesNothing takes the lock of a write.
const changesNothing = `UPDATE verifications SET filename = '' WHERE filename = 'never'`

// does runs a statement on the server at url.
func does(t *testing.T, url, statement string) {
	t.Helper()
	migratorAt(t, url, postgresDialect()).does(t, statement)
}

// migrateAtOnce migrates, and asks once only for a table that is in use.
func migrateAtOnce(t *testing.T, url string) error {
	t.Helper()
	s := migratorAt(t, url, postgresDialect())
	s.tableLocks = 0
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // it would wait for ever if it were broken
	defer cancel()
	return s.migrate(ctx)
}

// TestAMigrationBesideALongTransactionStopsNobody: somebody changed a row of a table that the
// migration needs, and does not commit. A node goes on to write to that table, the operator is told for
// whom the migration waits, and it ends when that transaction does.
func TestAMigrationBesideALongTransactionStopsNobody(t *testing.T) {
	t.Parallel()
	url := newLedger(t)
	node := effort.Must(Open(t.Context(), url, book, Options{}))(t)
	defer func() { _ = node.Close() }()
	does(t, url, unmigrated)
	long := beginsLong(t, url)
	told, migrated := make(chan string, 100), make(chan error, 1)
	go func() { migrated <- Migrate(t.Context(), url, book, func(line string) { told <- line }) }()
	// A write that waited for the long transaction would fail, after the node's own bound.
	writes := 0
	for lines := 0; lines < 2; writes++ {
		if err := node.Update(t.Context(), func(tx *Tx) error {
			_, err := tx.Exec(changesNothing)
			return err
		}); err != nil {
			t.Fatalf("a write beside the migration, after %d others: %v", writes, err)
		}
		select {
		case line := <-told:
			if lines++; !strings.Contains(line, `("by hand") uses verifications`) {
				t.Errorf("it does not say for whom it waits: %s", line)
			}
		case err := <-migrated:
			t.Fatalf("it did not wait for the long transaction: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	effort.Must(long.Exec(t.Context(), `COMMIT`))(t)
	effort.OK(t, <-migrated)
	effort.ErrorIf(t, writes < 3, "%d writes", writes)
}

// beginsLong begins a transaction that changes verifications, and does not end.
func beginsLong(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := effort.Must(pgx.Connect(t.Context(), url+"&application_name=by%20hand"))(t)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	for _, statement := range []string{`BEGIN`, changesNothing} {
		effort.Must(conn.Exec(t.Context(), statement))(t)
	}
	return conn
}

// TestAMigrationGivesUpWhenATransactionDoesNotEnd: the error names that transaction, and a later call finishes.
func TestAMigrationGivesUpWhenATransactionDoesNotEnd(t *testing.T) {
	t.Parallel()
	url := newLedger(t)
	does(t, url, unmigrated)
	long := beginsLong(t, url)
	err := migrateAtOnce(t, url)
	if !errors.Is(err, ErrTableInUse) || !strings.Contains(err.Error(), `("by hand") uses verifications`) {
		t.Fatalf("got %v, want ErrTableInUse with who uses it", err)
	}
	effort.OK(t, long.Close(t.Context()))
	effort.OK(t, migrateAtOnce(t, url))
}
