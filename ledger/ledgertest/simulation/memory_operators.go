package simulation

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// overridden is one row of the overrides.
type overridden struct {
	ledger.ThrottleOverride
	cleared bool
}

// Override reads an override, whether it holds or not.
func (m *memory) Override(id uuid.UUID) (*ledger.ThrottleOverride, error) {
	o, found := m.cluster.overrides[id]
	if err := m.statement(); err != nil || !found {
		return nil, err
	}
	return &o.ThrottleOverride, nil
}

// HowMany counts the overrides that hold.
func (m *memory) HowMany() (n int, err error) {
	for _, o := range m.cluster.overrides {
		if o.holds(m.now) {
			n++
		}
	}
	return n, m.statement()
}

func (o overridden) holds(now int64) bool { return !o.cleared && ledger.Millis(o.Expires) > now }

// ActiveOverrides lists the overrides that hold, of a key or of all, oldest first.
func (m *memory) ActiveOverrides(key string) (list []ledger.ThrottleOverride, err error) {
	for _, o := range m.cluster.overrides {
		if o.holds(m.now) && (key == "" || o.Key == key) {
			list = append(list, o.ThrottleOverride)
		}
	}
	slices.SortFunc(list, func(a, b ledger.ThrottleOverride) int {
		return cmp.Or(a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return list, m.statement()
}

// InsertOverride writes an override that holds from now on for so long.
func (m *memory) InsertOverride(o ledger.ThrottleOverride, holds time.Duration) error {
	if err := m.statement(); err != nil {
		return err
	}
	if _, found := m.cluster.overrides[o.ID]; found {
		m.aborted = true
		return errKey
	}
	o.Created, o.Expires = ledger.Clock(m.now), ledger.Clock(m.now+holds.Milliseconds())
	m.alter().overrides[o.ID] = overridden{ThrottleOverride: o}
	return nil
}

// EndOverride ends an override that holds.
func (m *memory) EndOverride(id uuid.UUID) (int64, error) {
	if err := m.statement(); err != nil {
		return 0, err
	}
	o, found := m.cluster.overrides[id]
	if !found || !o.holds(m.now) {
		return 0, nil
	}
	o.cleared = true
	m.alter().overrides[id] = o
	return 1, nil
}

// Lifted reports whether an override was ended before its time.
func (m *memory) Lifted(id uuid.UUID) (bool, error) {
	if m.lockedRest {
		return false, m.blocked()
	}
	return m.cluster.overrides[id].cleared, m.statement()
}

func (t *twin) Lifted(id uuid.UUID) (bool, error) {
	got, err := t.first.Lifted(id)
	return same(t, "lifted", got, err, func() (bool, error) { return t.second.Lifted(id) })
}

func (t *twin) Override(id uuid.UUID) (*ledger.ThrottleOverride, error) {
	got, err := t.first.Override(id)
	return same(t, "override", got, err, func() (*ledger.ThrottleOverride, error) { return t.second.Override(id) })
}

func (t *twin) HowMany() (int, error) {
	got, err := t.first.HowMany()
	return same(t, "how many", got, err, t.second.HowMany)
}

func (t *twin) ActiveOverrides(key string) ([]ledger.ThrottleOverride, error) {
	got, err := list(t.first.ActiveOverrides(key))
	return same(t, "holding", got, err,
		func() ([]ledger.ThrottleOverride, error) { return list(t.second.ActiveOverrides(key)) })
}

func (t *twin) InsertOverride(o ledger.ThrottleOverride, holds time.Duration) error {
	return done(t, "overrule", t.first.InsertOverride(o, holds), func() error { return t.second.InsertOverride(o, holds) })
}

func (t *twin) EndOverride(id uuid.UUID) (int64, error) {
	got, err := t.first.EndOverride(id)
	return same(t, "lift", got, err, func() (int64, error) { return t.second.EndOverride(id) })
}

// LogIn writes a line of the log of a workspace.
func (m *memory) LogIn(_ uuid.UUID, l ledger.WorkspaceLine) error {
	if err := m.statement(); err != nil {
		return err
	}
	c := m.alter()
	l.At = ledger.Clock(m.now)
	c.lines = append(c.lines, l)
	return nil
}
