//go:build unix

package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// backupRoom is the space that a backup leaves free on its disk, because the ledger may be there too and must
// continue: four times the size at which its write-ahead log is written back. Guess.
const backupRoom = 64 << 20

// backupPragmas are for the copying connection. It only reads the ledger, but query_only would forbid the copy, too.
var backupPragmas = []string{"busy_timeout(5000)", "cache_size(-16384)", "mmap_size(0)"}

// Backup writes a snapshot of the embedded ledger to the new file at path, readable by its owner only, while others
// read and write. When it returns nil the copy is synced and has passed CheckBackup; otherwise there is no file.
// ErrNotEmbedded, ErrBackupExists, ErrBackupRoom.
//
// The copy has no unused pages, and so nothing of erased data.
func (s *DB) Backup(ctx context.Context, path string) error {
	from, err := s.path(ctx)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("back up to %s: %w", path, ErrBackupExists)
	}
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	if err = s.copyTo(ctx, from, path); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = s.schema.CheckBackup(ctx, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("back up to %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// copyTo fills the empty file at path.
func (s *DB) copyTo(ctx context.Context, from, path string) error {
	if err := s.roomFor(ctx, filepath.Dir(path)); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(from, backupPragmas, "ro"))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", dsn(path, nil, "rw"))
	if err != nil {
		err = fmt.Errorf("copy the ledger: %w", err)
	}
	return errors.Join(err, db.Close())
}

// roomFor refuses a copy that would fill the disk of folder.
func (s *DB) roomFor(ctx context.Context, folder string) error {
	var need int64
	err := s.View(ctx, func(t *Tx) error {
		return t.Row(`SELECT (page_count - freelist_count) * page_size
			FROM pragma_page_count, pragma_freelist_count, pragma_page_size`).Scan(&need)
	})
	if err != nil {
		return fmt.Errorf("read the ledger's size: %w", err)
	}
	free, err := freeBytes(folder)
	if err != nil {
		return err
	}
	if free < need+backupRoom {
		return fmt.Errorf("%d MiB are free in %s, %d MiB are needed: %w", free>>20, folder,
			(need+backupRoom)>>20, ErrBackupRoom)
	}
	return nil
}

// embedded reports whether the ledger is a file of this process.
func (d dialect) embedded() bool { return d.file }

// Embedded reports whether the ledger is a file of this process and not on a server.
func (s *DB) Embedded() bool { return s.dialect.embedded() }

// path returns the file of the ledger. ErrNotEmbedded.
func (s *DB) path(ctx context.Context) (path string, err error) {
	if !s.Embedded() {
		return "", ErrNotEmbedded
	}
	err = s.View(ctx, func(t *Tx) error {
		return t.Row(`SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path)
	})
	if err != nil {
		return "", fmt.Errorf("look for the ledger's file: %w", err)
	}
	return path, nil
}

// CheckBackup reads the whole file at path and checks that it is a sound database with a schema that this program
// can use. It does not change the file. ErrBackupDamaged, ErrSchemaNew.
func (m Schema) CheckBackup(ctx context.Context, path string) error {
	// immutable: SQLite needs and makes no other file beside it.
	db, err := sql.Open("sqlite", dsn(path, backupPragmas, "ro")+"&immutable=1")
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	var first string
	var version int
	err = db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&first)
	if err == nil && first != "ok" {
		err = errors.New(first)
	}
	if err == nil {
		version, err = schemaVersion(ctx, db)
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err != nil:
		err = fmt.Errorf("check %s: %w: %w", path, ErrBackupDamaged, err)
	case version > m.Version:
		err = fmt.Errorf("check %s: schema version %d: %w", path, version, ErrSchemaNew)
	case version < 1:
		err = fmt.Errorf("check %s: no schema: %w", path, ErrBackupDamaged)
	}
	return errors.Join(err, db.Close())
}
