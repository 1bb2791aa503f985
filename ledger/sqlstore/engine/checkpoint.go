package engine

import (
	"context"
	"errors"
	"fmt"
)

// Checkpoint writes the write-ahead log of an embedded ledger back into its file and
// empties it, so that what was erased is in neither. It waits for nobody: while
// somebody reads an older moment, such as an audit, the log stays and false is
// said. Nothing is to do on a server, which has rules of its own for its log.
func (s *DB) Checkpoint(ctx context.Context) (bool, error) {
	if !s.Embedded() || s.writer == nil {
		return true, nil
	}
	session, err := s.writer.take(ctx, false, 0)
	if err != nil {
		return false, noSession(err).tell(err, false)
	}
	defer s.writer.put(session)
	if err := session.connect(ctx); err != nil {
		return false, err
	}
	var busy, pages, folded int64
	// Writers queue behind this session, so that none must wait for a reader.
	_, err = session.conn.ExecContext(ctx, "PRAGMA busy_timeout(0)")
	if err == nil {
		err = session.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &folded)
	}
	_, failed := session.conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA busy_timeout(5000)")
	if failed != nil {
		session.broken = true
	}
	if err = errors.Join(err, failed); err != nil {
		return false, fmt.Errorf("fold the write-ahead log: %w", err)
	}
	return busy == 0, nil
}
