package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"
)

// Schema is the migrations of a ledger: files in the order of their names, the first of which is version 1.
type Schema struct {
	Files   fs.ReadDirFS
	Folder  string // of the files
	Version int    // of this program: the number of the last file
}

// name returns the file of a migration, counted from 1.
func (m Schema) name(version int) (string, error) {
	files, err := m.Files.ReadDir(m.Folder)
	if err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	if version < 1 || version > len(files) {
		return "", fmt.Errorf("there is no migration %d", version)
	}
	return path.Join(m.Folder, files[version-1].Name()), nil
}

const (
	// tableLockTime is how long a step waits for a table that a long transaction uses. All other users of the table then
	// wait behind the step. It is above one second, after which PostgreSQL cancels its own vacuum to free a table.
	tableLockTime = 1500 * time.Millisecond
	// tableLockPause is how long a step then lets other transactions run.
	tableLockPause = 1500 * time.Millisecond
	// tableLockMax is how long Migrate tries: longer than an audit takes. Guess.
	tableLockMax = 10 * time.Minute
)

// Migrate brings the schema of the ledger at url to its last version. It creates a missing embedded ledger; on a server
// the database must exist. It may be run again, and twice at once. While nodes work, it locks tables only for moments.
// While a long transaction uses a table, it waits up to ten minutes, and calls each tell with a line that names the
// transaction. ErrURL, ErrInUse, ErrSchemaNew, ErrIsolation, ErrDurability, ErrTableInUse, ErrSchemaChange.
func Migrate(ctx context.Context, url string, m Schema, tell ...func(line string)) error {
	if !isServer(url) {
		s, err := Open(ctx, url, m, Options{})
		if err != nil {
			return err
		}
		return s.Close()
	}
	db, err := connector(url, access{patient: true})
	if err != nil {
		return err
	}
	d, err := serverDialect(ctx, db)
	if err != nil {
		return errors.Join(fmt.Errorf("migrate ledger: %w", err), db.Close())
	}
	s, err := migrator(d, m, db)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	if err = s.migrate(ctx, tell...); err != nil {
		err = fmt.Errorf("migrate ledger: %w", err)
	}
	return errors.Join(err, s.Close())
}

// migrator returns a DB that only migrates.
func migrator(d dialect, m Schema, db *sql.DB) (*DB, error) {
	d.attempt, d.ending = 0, 0 // changing a large table takes long
	judge := d.judge
	d.judge = func(f failure) fault {
		if sqlState(f.err) == lockNotAvailable {
			return fault{why: whyBusy, passing: true} // step waits itself and does not retry at once
		}
		return judge(f)
	}
	s, err := newDB(d, m, Options{})
	if err == nil {
		s.tableLocks = tableLockMax
		s.writeBy(db, 1)
	}
	return s, err
}

// The tables with the state of the schema: finished migrations, and the finished steps of an unfinished one.
var schemaTables = []string{
	`CREATE TABLE IF NOT EXISTS schema_versions (version {int} NOT NULL PRIMARY KEY, applied {int} NOT NULL) {strict}`,
	`CREATE TABLE IF NOT EXISTS schema_steps (version {int} NOT NULL, step {int} NOT NULL, applied {int} NOT NULL,
		PRIMARY KEY (version, step)) {strict}`,
}

// migrate runs the missing migrations, statement by statement. Each statement is recorded in its transaction, so
// that a run after a crash continues where it stopped. On CockroachDB a schema change is its own transaction, so it
// is recorded right after and may be run twice.
func (s *DB) migrate(ctx context.Context, tell ...func(line string)) error {
	for _, table := range schemaTables {
		if err := s.repeatStep(ctx, func() error { return s.define(ctx, table) }, tell); err != nil {
			return fmt.Errorf("make the tables of the schema: %w", err)
		}
	}
	version, err := schemaVersion(ctx, s.writer.db)
	if err != nil {
		return err
	}
	if version > s.schema.Version {
		return fmt.Errorf("schema version %d, this program knows %d: %w", version, s.schema.Version, ErrSchemaNew)
	}
	for version++; version <= s.schema.Version; version++ {
		list, err := s.schema.steps(version)
		if err != nil {
			return err
		}
		for i, statement := range list {
			do := func() error { return s.step(ctx, version, i+1, statement) }
			if err := s.repeatStep(ctx, do, tell); err != nil {
				return fmt.Errorf("migration %d, step %d of %d: %w", version, i+1, len(list), err)
			}
		}
		if err := s.Update(ctx, func(t *Tx) error { return t.migrated(version) }); err != nil {
			return fmt.Errorf("migration %d: note its end: %w", version, err)
		}
	}
	return nil
}

// comment matches a comment of a migration, to the end of its line.
var comment = regexp.MustCompile(`--[^\n]*`)

// steps returns the statements of a migration. Quoted text in its file must have no semicolon and no two dashes.
func (m Schema) steps(version int) (list []string, err error) {
	name, err := m.name(version)
	if err != nil {
		return nil, err
	}
	text, err := fs.ReadFile(m.Files, name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	for statement := range strings.SplitSeq(comment.ReplaceAllString(string(text), ""), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			list = append(list, statement)
		}
	}
	return list, nil
}

// repeatStep repeats a step while a table that it needs is in use. ErrTableInUse.
func (s *DB) repeatStep(ctx context.Context, do func() error, tell []func(line string)) error {
	for begun := time.Now(); ; {
		err := do()
		switch state := sqlState(err); {
		case state == schemaChangeFailed:
			return fmt.Errorf("%w: %w", ErrSchemaChange, err)
		case state != lockNotAvailable:
			return err
		case time.Since(begun) > s.tableLocks:
			return fmt.Errorf("%w: %s", ErrTableInUse, s.user(ctx))
		}
		for _, t := range tell {
			t("waiting for a table, while the nodes go on: " + s.user(ctx))
		}
		select {
		case <-time.After(tableLockPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// user returns the database session that has used a table of the ledger for the longest time.
func (s *DB) user(ctx context.Context) string {
	var pid int64
	var user, program, table string
	err := s.writer.db.QueryRowContext(ctx, `SELECT a.pid, a.usename, a.application_name, c.relname FROM pg_locks l
		JOIN pg_stat_activity a ON a.pid = l.pid JOIN pg_class c ON c.oid = l.relation
		WHERE l.granted AND c.relkind = 'r' AND a.datname = current_database() AND a.pid <> pg_backend_pid()
			AND c.relnamespace = CAST(current_schema() AS regnamespace)
		ORDER BY a.xact_start NULLS LAST, a.pid LIMIT 1`).Scan(&pid, &user, &program, &table)
	if err != nil { // it has just ended, or this database cannot tell
		return "another transaction has it"
	}
	return fmt.Sprintf("process %d of user %s (%q) uses %s", pid, user, program, table)
}

// definition matches statements that change the schema, not rows.
var definition = regexp.MustCompile(`^(CREATE|ALTER|DROP) `)

// step runs one statement of a migration, unless it is recorded.
func (s *DB) step(ctx context.Context, version, step int, statement string) error {
	apart := s.dialect.apart && definition.MatchString(statement)
	if apart {
		done := false
		err := s.Update(ctx, func(t *Tx) (err error) {
			done, err = t.stepped(version, step)
			return err
		})
		if err != nil || done {
			return err
		}
		if err := s.define(ctx, statement); err != nil {
			return err
		}
	}
	return s.Update(ctx, func(t *Tx) error {
		if t.session.dialect.oneMigrates != "" {
			if err := t.run(t.session.dialect.oneMigrates); err != nil {
				return err
			}
		}
		done, err := t.stepped(version, step)
		if err != nil || done {
			return err
		}
		if !apart {
			if err := t.run(statement); err != nil {
				return err
			}
		}
		_, err = t.Exec(`INSERT INTO schema_steps (version, step, applied) VALUES (?, ?, {now})`, version, step)
		return err
	})
}

// define runs a statement that changes the schema: in its own transaction, or without one if the database would end
// it anyway.
func (s *DB) define(ctx context.Context, statement string) error {
	if !s.dialect.apart {
		return s.Update(ctx, func(t *Tx) error { return t.run(statement) })
	}
	session, err := s.writer.take(ctx, false, 0)
	if err != nil {
		return noSession(err).callerError(err, false)
	}
	defer s.writer.put(session)
	return s.repeatOn(ctx, session, func(ctx context.Context) error {
		return (&Tx{ctx: ctx, session: session}).run(statement)
	})
}

func (t *Tx) stepped(version, step int) (bool, error) {
	var done bool
	err := t.Row(`SELECT EXISTS (SELECT 1 FROM schema_versions WHERE version >= ?)
		OR EXISTS (SELECT 1 FROM schema_steps WHERE version = ? AND step = ?)`, version, version, step).Scan(&done)
	return done, err
}

// migrated records that all steps of a migration were run.
func (t *Tx) migrated(version int) error {
	_, err := t.Exec(`INSERT INTO schema_versions (version, applied) VALUES (?, {now})
		ON CONFLICT (version) DO NOTHING`, version)
	if err == nil {
		_, err = t.Exec(`DELETE FROM schema_steps WHERE version <= ?`, version)
	}
	return err
}

const lastVersion = `SELECT coalesce(max(version), 0) FROM schema_versions`

// schemaVersion returns the number of the last finished migration, 0 for none. ErrNoLedger.
func schemaVersion(ctx context.Context, db *sql.DB) (int, error) {
	var version int
	err := db.QueryRowContext(ctx, lastVersion).Scan(&version)
	if sqlState(err) == "42P01" { // undefined table
		return 0, ErrNoLedger
	}
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return version, nil
}

// run runs a statement without arguments, with this database's types.
func (t *Tx) run(statement string) error {
	d := t.session.dialect
	_, err := t.session.conn.ExecContext(t.ctx, d.text(d.types.Replace(statement)))
	return err
}
