package simulation

import (
	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// Limits reads what was set for a workspace: here nobody sets anything.
func (m *memory) Limits(uuid.UUID) (ledger.Limits, error) { return ledger.Limits{}, m.statement() }

// Stored adds up the declared bytes of the verifications whose upload is not erased.
func (m *memory) Stored(workspace uuid.UUID) (sum int64, err error) {
	for _, f := range m.files {
		if f.row.Workspace == workspace && !f.row.UploadDeleted {
			sum += f.row.Bytes
		}
	}
	return sum, m.statement()
}

// Unpaid counts the verifications of late that never held a credit.
func (m *memory) Unpaid(workspace uuid.UUID) (transitions.Unpaid, error) {
	u := transitions.Unpaid{Now: m.now}
	for _, f := range m.files { // oldest first
		created := ledger.Millis(f.row.Created)
		if f.row.Workspace != workspace || f.row.Paid || created <= m.now-ledger.UnpaidWithin.Milliseconds() {
			continue
		}
		if u.Count++; u.Count == 1 {
			u.Oldest = created
		}
	}
	return u, m.statement()
}

// Room is ledger.ErrNoRoom while the disk is full.
func (m *memory) Room() error {
	if err := m.statement(); err != nil {
		return err
	}
	if m.full {
		return ledger.ErrNoRoom
	}
	return nil
}

// EraseUpload deletes so many chunks at most.
func (m *memory) EraseUpload(id uuid.UUID, most int64) (left bool, err error) {
	if err := m.statement(); err != nil {
		return false, err
	}
	f := m.change(id)
	left = int64(len(f.chunks)) >= most
	f.chunks = f.chunks[min(most, int64(len(f.chunks))):]
	return left, nil
}

func (t *twin) Limits(workspace uuid.UUID) (ledger.Limits, error) {
	got, err := t.first.Limits(workspace)
	return same(t, "limits", got, err, func() (ledger.Limits, error) { return t.second.Limits(workspace) })
}

func (t *twin) Stored(workspace uuid.UUID) (int64, error) {
	got, err := t.first.Stored(workspace)
	return same(t, "stored", got, err, func() (int64, error) { return t.second.Stored(workspace) })
}

func (t *twin) Unpaid(workspace uuid.UUID) (transitions.Unpaid, error) {
	got, err := t.first.Unpaid(workspace)
	return same(t, "unpaid", got, err, func() (transitions.Unpaid, error) { return t.second.Unpaid(workspace) })
}

// Room is that of the tables in memory: the other database has a disk of its own.
func (t *twin) Room() error { return t.first.Room() }

func (t *twin) EraseUpload(id uuid.UUID, most int64) (bool, error) {
	left, err := t.first.EraseUpload(id, most)
	return same(t, "erase upload", left, err, func() (bool, error) { return t.second.EraseUpload(id, most) })
}
