package admin

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// BackupType is the Content-Type of a backup.
const BackupType = "application/vnd.sqlite3"

// backupPause bounds how long the client of a backup may read nothing; a full disk or a suspended terminal must not
// keep the copy for ever.
const backupPause = time.Minute

// backup streams a copy of the embedded ledger. One at a time: each is as large as the ledger, and stays on its disk
// until it is sent.
func (s *Server) backup(w http.ResponseWriter, r *http.Request) {
	if s.options.Backup == nil {
		refuse(w, http.StatusConflict, "not_embedded", "the ledger is a database server, not a file of this node: "+
			"use its own tools, BACKUP INTO of CockroachDB or pg_dump of PostgreSQL; see docs/operators/operations.md")
		return
	}
	select {
	case s.backups <- struct{}{}:
		defer func() { <-s.backups }()
	default:
		refuse(w, http.StatusConflict, "backup_running", "another backup of this node is running; wait for its end")
		return
	}
	ctx, cancel := s.desk.longCall(r.Context())
	defer cancel()
	began := time.Now()
	copied, bytes, err := s.options.Backup(ctx)
	if err != nil {
		s.options.Log.Warn("backup failed", "err", err)
		refuse(w, http.StatusInternalServerError, "backup_failed", err.Error())
		return
	}
	defer copied.Close()
	s.options.Log.Info("backup made", "bytes", bytes, "took", time.Since(began))
	w.Header().Set("Content-Type", BackupType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.FormatInt(bytes, 10))
	to := patient{s.long, w, http.NewResponseController(w)}
	if n, err := io.CopyN(to, copied, bytes); err != nil {
		s.options.Log.Warn("backup not taken", "bytes", n, "err", err)
	}
}

// patient bounds each write by itself, so that a large copy has time but a reader that reads nothing is cut.
type patient struct {
	ctx     context.Context // its end ends the writing
	to      io.Writer
	control *http.ResponseController
}

// Write implements io.Writer.
func (p patient) Write(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	if err := p.control.SetWriteDeadline(time.Now().Add(backupPause)); err != nil {
		return 0, err
	}
	return p.to.Write(b)
}
