package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// SchemaVersion is the schema that this program reads and writes: the number
// of its last migration.
const SchemaVersion = 9

// migrationName gives the file of a migration, counted from 1.
func migrationName(version int) (string, error) {
	files, err := migrationFiles.ReadDir("migrations")
	if err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	if version < 1 || version > len(files) {
		return "", fmt.Errorf("there is no migration %d", version)
	}
	return "migrations/" + files[version-1].Name(), nil
}

// Migrate brings the schema of the ledger at url to SchemaVersion; an embedded
// ledger that does not exist yet is made, a server must have the database. It is
// safe to run again, and to run twice at once. ErrURL, ErrInUse, ErrSchemaNew,
// ErrIsolation.
func Migrate(ctx context.Context, url string) error {
	if !isServer(url) {
		s, err := Open(ctx, url, Options{})
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
	d.attempt, d.ending = 0, 0 // a change of a large table takes its time
	s, err := newStore(d, Options{})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	s.writeBy(db, 1)
	if err = s.migrate(ctx); err != nil {
		err = fmt.Errorf("migrate ledger: %w", err)
	}
	return errors.Join(err, s.Close())
}

// migrate applies the missing migrations, each in one transaction with its
// number, so that a crash between two leaves a schema that can be taken up.
func (s *Store) migrate(ctx context.Context) error {
	const book = `CREATE TABLE IF NOT EXISTS schema_versions (version {int} NOT NULL PRIMARY KEY, ` +
		`applied {int} NOT NULL) {strict}`
	err := s.update(ctx, func(t *tx) error { return t.run(book) })
	if err != nil {
		return fmt.Errorf("make schema_versions: %w", err)
	}
	version, err := schemaVersion(ctx, s.writer.db)
	if err != nil {
		return err
	}
	if version > SchemaVersion {
		return fmt.Errorf("schema version %d, this program knows %d: %w",
			version, SchemaVersion, ErrSchemaNew)
	}
	for version++; version <= SchemaVersion; version++ {
		name, err := migrationName(version)
		if err != nil {
			return err
		}
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		err = s.update(ctx, func(t *tx) error { return t.apply(version, string(text)) })
		if err != nil {
			return fmt.Errorf("run %s: %w", name, err)
		}
	}
	return nil
}

const lastVersion = `SELECT coalesce(max(version), 0) FROM schema_versions`

// schemaVersion gives the number of the last migration that was applied, 0 for
// none. ErrNoLedger.
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

// apply runs one migration, unless another process was first.
func (t *tx) apply(version int, text string) error {
	var done int
	if err := t.row(lastVersion).Scan(&done); err != nil || done >= version {
		return err
	}
	if err := t.run(text); err != nil {
		return err
	}
	_, err := t.exec(`INSERT INTO schema_versions (version, applied) VALUES (?, {now})`, version)
	return err
}

// run runs statements that have no arguments, with the types of this database.
func (t *tx) run(statements string) error {
	_, err := t.session.conn.ExecContext(t.ctx, t.session.dialect.types.Replace(statements))
	return err
}
