package simulation

import (
	"github.com/google/uuid"

	"rollcall/ledger"
)

// Correction reads a correction.
func (m *memory) Correction(id uuid.UUID) (*ledger.Correction, error) {
	for _, c := range m.cluster.corrections {
		if c.ID == id {
			return &c, m.statement()
		}
	}
	return nil, m.statement()
}

// Corrected counts those of a subject.
func (m *memory) Corrected(subject string) (n int64, err error) {
	for _, c := range m.cluster.corrections {
		if c.Subject == subject {
			n++
		}
	}
	return n, m.statement()
}

// Correct writes one.
func (m *memory) Correct(c ledger.Correction) error {
	if err := m.statement(); err != nil {
		return err
	}
	for _, old := range m.cluster.corrections {
		if old.ID == c.ID || old.Subject == c.Subject && old.Number == c.Number {
			m.aborted = true
			return errKey
		}
	}
	c.At, c.Entries = ledger.Clock(m.now), nil
	m.alter().corrections = append(m.cluster.corrections[:len(m.cluster.corrections):len(m.cluster.corrections)], c)
	return nil
}

func (t *twin) Correction(id uuid.UUID) (*ledger.Correction, error) {
	got, err := t.first.Correction(id)
	return same(t, "correction", got, err, func() (*ledger.Correction, error) { return t.second.Correction(id) })
}

func (t *twin) Corrected(subject string) (int64, error) {
	got, err := t.first.Corrected(subject)
	return same(t, "corrected", got, err, func() (int64, error) { return t.second.Corrected(subject) })
}

func (t *twin) Correct(c ledger.Correction) error {
	return done(t, "correct", t.first.Correct(c), func() error { return t.second.Correct(c) })
}
