package sqlstore

import (
	"context"

	"rollcall/ledger/sqlstore/engine"
)

// AskDiskEachTime returns options of a ledger that reads the free space of its disk for each call.
func AskDiskEachTime(o Options) Options {
	o.Seams.DiskAlways = true
	return o
}

// WithPragmas returns options that open an embedded ledger by a connection with these pragmas.
func WithPragmas(pragmas ...string) Options { return Options{Seams: engine.Seams{Pragmas: pragmas}} }

// SynchronousCommit returns the setting of a connection that writes.
func (s *Store) SynchronousCommit(ctx context.Context) (level string, err error) {
	err = s.update(ctx, func(t *tx) error { return t.Row(`SHOW synchronous_commit`).Scan(&level) })
	return level, err
}

// CheckBackup is engine.Schema.CheckBackup for a ledger.
func CheckBackup(ctx context.Context, path string) error { return schema.CheckBackup(ctx, path) }
