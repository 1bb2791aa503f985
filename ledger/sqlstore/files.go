package sqlstore

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

// Balance reads a workspace's account.
func (s statements) Balance(ctx context.Context, workspace uuid.UUID) (ledger.Balance, error) {
	return ledger.Run(ctx, s.view, func(t *tx) (ledger.Balance, error) { return t.Account(workspace) },
		"read balance of workspace %s", workspace)
}

func (s *base) verification(ctx context.Context, id uuid.UUID) (v *transitions.Row, err error) {
	err = s.view(ctx, func(t *tx) (err error) {
		v, err = t.Read(id)
		return err
	})
	return v, err
}

func (s files) Verification(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error) {
	return ledger.Run(ctx, s.view, func(t *tx) (ledger.Verification, error) {
		v, err := t.ReadOf(workspace, id)
		if err != nil {
			return ledger.Verification{}, err
		}
		return v.Verification, nil
	}, "read verification %s", id)
}

// newestFirst ends a query for a page of history.
const newestFirst = ` ORDER BY created DESC, id DESC LIMIT ?`

// History returns one page, newest first, as one range read of an index.
func (s files) History(ctx context.Context, q ledger.HistoryQuery) ([]ledger.Verification, error) {
	query := `SELECT ` + verificationColumns + ` FROM verifications WHERE workspace = ?`
	args := []any{q.Workspace[:]}
	if q.Kind != "" {
		query += ` AND kind = ?`
		args = append(args, q.Kind)
	}
	if q.Open {
		query += ` AND completed = 0`
	}
	if q.After != nil {
		query += ` AND (created, id) < (?, ?)`
		args = append(args, ledger.Millis(q.After.Created), q.After.ID[:])
	}
	query += newestFirst
	return listed(ctx, s, func(v *transitions.Row) ledger.Verification { return v.Verification },
		fmt.Sprintf("list verifications of workspace %s", q.Workspace), query, append(args, max(q.Limit, 0))...)
}

// listed reads a list of verifications and converts each with show.
func listed[T any](ctx context.Context, s files, show func(*transitions.Row) T, what, query string, args ...any) (
	[]T, error) {
	return ledger.Run(ctx, s.view, func(t *tx) ([]T, error) {
		return engine.List(t, "read", func(scan engine.Scan) (shown T, err error) {
			v, err := scanVerification(scan)
			if err == nil {
				shown = show(v)
			}
			return shown, err
		}, query, args...)
	}, "%s", what)
}

// withLease returns a verification with its lease's node and end, and the end of its parking.
func withLease(v *transitions.Row) ledger.Verification {
	if v.Node != uuid.Nil && v.LeaseExpires > v.Now {
		v.LeasedUntil = ledger.Clock(v.LeaseExpires)
	}
	if v.WakeAt > v.Now {
		v.ParkedUntil = ledger.Clock(v.WakeAt)
	}
	v.LeasedBy = v.Node
	return v.Verification
}

func (s files) OpenVerifications(ctx context.Context, limit int) ([]ledger.Verification, error) {
	return listed(ctx, s, withLease, "list open verifications",
		`SELECT `+verificationColumns+` FROM verifications WHERE completed = 0 ORDER BY created, id LIMIT ?`, max(limit, 0))
}

// VerificationsSince returns the verifications of all workspaces created since a time, newest first, at most limit.
func (s files) VerificationsSince(ctx context.Context, since time.Time, limit int) ([]uuid.UUID, error) {
	return ledger.Run(ctx, s.view, func(t *tx) ([]uuid.UUID, error) {
		return engine.List(t, "read", engine.Only[uuid.UUID], `SELECT id FROM verifications WHERE created >= ?`+newestFirst,
			ledger.Millis(since), max(limit, 0))
	}, "list verifications since %s", since.UTC().Format(time.DateOnly))
}

const verificationsBetween = `SELECT id FROM verifications WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?`

func (s files) VerificationsLike(ctx context.Context, from, to uuid.UUID, limit int) ([]uuid.UUID, error) {
	return ledger.Run(ctx, s.view, func(t *tx) ([]uuid.UUID, error) {
		return engine.List(t, "read", engine.Only[uuid.UUID], verificationsBetween, from[:], to[:], max(limit, 0))
	}, "list verifications from %s", from)
}

// Parked returns the last stored state of a verification's work; nil when there is none.
func (s files) Parked(ctx context.Context, id uuid.UUID) (state []byte, err error) {
	return ledger.Run(ctx, s.view, func(t *tx) ([]byte, error) {
		return engine.Value[[]byte](t, "ask", `SELECT data FROM parked_work WHERE verification = ?`, id[:])
	}, "read the parked work of verification %s", id)
}

func (s files) UploadState(ctx context.Context, id uuid.UUID) (ledger.Upload, error) {
	v, err := s.verification(ctx, id)
	if err != nil {
		return ledger.Upload{}, fmt.Errorf("read upload %s: %w", id, err)
	}
	return v.Upload(), nil
}

// OpenFile streams the uploaded bytes. It keeps one chunk in memory and no transaction open between two chunks.
// ErrIllegal while bytes are missing and after they were erased.
func (s files) OpenFile(ctx context.Context, id uuid.UUID) (io.ReadCloser, error) {
	v, err := s.verification(ctx, id)
	if err == nil && (v.Durable < v.Bytes || v.UploadDeleted) {
		err = fmt.Errorf("no whole file is stored: %w", ledger.ErrIllegal)
	}
	if err != nil {
		return nil, fmt.Errorf("open file of verification %s: %w", id, err)
	}
	return &file{ctx: ctx, store: s, id: id, left: v.Bytes}, nil
}

// file reads the chunks of one upload.
type file struct {
	ctx   context.Context
	store files
	id    uuid.UUID
	next  int64 // first byte not yet read from the ledger
	left  int64 // number of bytes not yet read from the ledger
	chunk []byte
}

// Read returns bytes of the current chunk, and fetches the next one when it is used up. io.ErrUnexpectedEOF when the
// ledger has fewer bytes than declared.
func (f *file) Read(p []byte) (int, error) {
	for len(f.chunk) == 0 {
		if f.left == 0 {
			return 0, io.EOF
		}
		err := f.store.view(f.ctx, func(t *tx) (err error) {
			f.chunk, err = t.Chunk(f.id, f.next)
			return err
		})
		if err == nil && len(f.chunk) == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, fmt.Errorf("read file of verification %s at byte %d: %w", f.id, f.next, err)
		}
		f.next += int64(len(f.chunk))
		f.left -= int64(len(f.chunk))
	}
	n := copy(p, f.chunk)
	f.chunk = f.chunk[n:]
	return n, nil
}

// Close ends the reading.
func (f *file) Close() error {
	f.chunk, f.left = nil, 0
	return nil
}

const settlementByNumber = `SELECT s.epoch, s.created, s.payload, e.data FROM settlements s
	LEFT JOIN evidence e ON e.verification = s.verification AND e.number = s.number
	WHERE s.verification = ? AND s.number = ?`

// Evidence calls yield for each settlement above after. Each is read by its own query, so that no session waits for
// a slow yield and memory holds one settlement: its results and EvidenceMax bytes.
func (s files) Evidence(ctx context.Context, id uuid.UUID, after int64,
	yield func(ledger.StoredSettlement) error) (ledger.Verification, error) {
	v, err := s.verification(ctx, id)
	if err != nil {
		return ledger.Verification{}, fmt.Errorf("read evidence of verification %s: %w", id, err)
	}
	v.Verification = withLease(v)
	if v.ResultsDeleted {
		return v.Verification, fmt.Errorf("read evidence of verification %s: %w", id, ledger.ErrResultsExpired)
	}
	var batch ledger.Batch
	for number := min(max(after, 0), v.Settlements) + 1; number <= v.Settlements; number++ {
		kept := ledger.StoredSettlement{Number: number, Results: &batch}
		if err := s.readSettlement(ctx, id, &kept); err != nil {
			return v.Verification, fmt.Errorf("read evidence of settlement %d of verification %s: %w", number, id, err)
		}
		if err := yield(kept); err != nil {
			return v.Verification, err
		}
	}
	return v.Verification, nil
}

// readSettlement reads one settlement with its evidence, by number.
func (s files) readSettlement(ctx context.Context, id uuid.UUID, k *ledger.StoredSettlement) error {
	var payload []byte
	err := s.view(ctx, func(t *tx) error {
		return t.Row(settlementByNumber, id[:], k.Number).Scan(&k.Epoch, engine.At(&k.At), &payload, &k.Evidence)
	})
	if err != nil {
		return err
	}
	if len(payload) == 0 {
		return ledger.ErrResultsExpired // erased since the start
	}
	return k.Results.Decode(payload)
}
