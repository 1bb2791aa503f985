package sqlstore

import (
	"context"
	"fmt"
	"io"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// UploadState reads the state of one upload. ErrNoSuchVerification.
func (s *Store) UploadState(ctx context.Context, id uuid.UUID) (ledger.Upload, error) {
	v, err := s.verification(ctx, id)
	if err != nil {
		return ledger.Upload{}, fmt.Errorf("read upload %s: %w", id, err)
	}
	return v.Upload(), nil
}

// OpenFile streams the uploaded bytes, one chunk in memory at a time and no
// transaction open between two. ErrIllegal while bytes are missing and after
// they were erased.
func (s *Store) OpenFile(ctx context.Context, id uuid.UUID) (io.ReadCloser, error) {
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
	store *Store
	id    uuid.UUID
	next  int64 // first byte that is not read from the book
	left  int64 // bytes that are not read from the book
	chunk []byte
}

// Read gives bytes of the chunk at hand, and fetches the next one when it is
// used up. io.ErrUnexpectedEOF when the book has fewer bytes than it promised.
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
