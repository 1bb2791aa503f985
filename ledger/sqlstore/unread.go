package sqlstore

import (
	"context"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Refuse ends a verification in Preparing with the defect of its file.
func (s *Store) Refuse(ctx context.Context, l ledger.Lease, issue ledger.Issue) (ledger.Verification, error) {
	v, err := s.Engine.Refuse(ctx, l, issue)
	return v, s.eraseRest(ctx, v, err)
}

// Cancel asks for the end of a verification.
func (s *Store) Cancel(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error) {
	v, err := s.Engine.Cancel(ctx, workspace, id)
	return v, s.eraseRest(ctx, v, err)
}

// eraseRest erases what the transaction that ended a verification left of a large file that
// nobody will read. What fails here, the next sweep does.
func (s *Store) eraseRest(ctx context.Context, v ledger.Verification, err error) error {
	if err != nil || !v.Status.Final() || v.Total >= 0 || v.UploadDeleted {
		return err
	}
	if err := s.eraseUpload(ctx, v.ID); err != nil {
		s.log.Info("bytes of a refused file are left to the next sweep", "verification", v.ID, "err", err)
	}
	return nil
}
