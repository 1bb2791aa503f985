package transitions

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"rollcall/ledger"
)

const (
	// settledBytesMax bounds what is remembered of settled ordinals, in bytes: 5,000,000
	// addresses take some 700 KB. What is forgotten is read again. Guess.
	settledBytesMax = 64 << 20

	// sliceOrdinals is how many ordinals one slice of a bitmap has: 512 bytes.
	sliceOrdinals = 64 * sliceWords
	sliceWords    = 64
	sliceBytes    = 8*sliceWords + 48 // with its place in a map
)

// errBehind says that a transaction met settlements whose ordinals are not remembered.
var errBehind = errors.New("rules: settlements were not read yet")

// settledSet is the ordinals of the first settlements of a verification. Settlements are
// never changed, so the set stays right as long as the lease lasts under which it was read.
type settledSet struct {
	epoch, upTo int64 // of the lease; the last settlement that is in it
	slices      map[int64]*[sliceWords]uint64
}

func newSettledSet(epoch int64) *settledSet {
	return &settledSet{epoch: epoch, slices: map[int64]*[sliceWords]uint64{}}
}

func (s *settledSet) has(ordinal int64) bool {
	slice := s.slices[ordinal/sliceOrdinals]
	return slice != nil && slice[ordinal%sliceOrdinals/64]&(1<<(ordinal%64)) != 0
}

// add takes the ordinals of the next settlement.
func (s *settledSet) add(ordinals []int64) {
	for _, ordinal := range ordinals {
		slice := s.slices[ordinal/sliceOrdinals]
		if slice == nil {
			slice = new([sliceWords]uint64)
			s.slices[ordinal/sliceOrdinals] = slice
		}
		slice[ordinal%sliceOrdinals/64] |= 1 << (ordinal % 64)
	}
	s.upTo++
}

// settledSets remembers which addresses of the verifications in work are settled, so that a
// settlement need not read those before it. What it answers is checked against the row in
// the transaction of the settlement. Safe for concurrent use.
type settledSets struct {
	mu    sync.Mutex
	sets  map[uuid.UUID]*settledSet // guarded by mu
	bytes int                       // guarded by mu
	most  int
}

// first returns the first ordinal that has an outcome already; false when none has.
// errBehind when the settlements of v are not remembered.
func (s *settledSets) first(v *Row, ordinals []int64) (int64, bool, error) {
	if v.Settlements == 0 {
		return 0, false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.sets[v.ID]
	if set == nil || set.epoch != v.Epoch || set.upTo != v.Settlements {
		return 0, false, errBehind
	}
	for _, ordinal := range ordinals {
		if set.has(ordinal) {
			return ordinal, true, nil
		}
	}
	return 0, false, nil
}

// knows reports whether so many settlements, or more, are remembered of a lease.
func (s *settledSets) knows(l ledger.Lease, upTo int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.sets[l.Verification]
	return set != nil && set.epoch == l.Epoch && set.upTo >= upTo
}

// settled takes a settlement that is committed, after which v is as it is.
func (s *settledSets) settled(v *Row, number int64, ordinals []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.sets[v.ID]
	if v.Status.Final() {
		s.forget(v.ID)
		return
	}
	if number == 1 {
		s.forget(v.ID)
		set = newSettledSet(v.Epoch)
		s.sets[v.ID] = set
	}
	if set == nil || set.epoch != v.Epoch || set.upTo != number-1 {
		return // it is read again when the next one needs it
	}
	before := len(set.slices)
	set.add(ordinals)
	s.bytes += sliceBytes * (len(set.slices) - before)
	s.bound(v.ID)
}

// keep remembers a set that was read.
func (s *settledSets) keep(id uuid.UUID, set *settledSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
	s.sets[id] = set
	s.bytes += sliceBytes * len(set.slices)
	s.bound(id)
}

// forget drops one. The lock is held.
func (s *settledSets) forget(id uuid.UUID) {
	if set := s.sets[id]; set != nil {
		s.bytes -= sliceBytes * len(set.slices)
		delete(s.sets, id)
	}
}

// bound drops others than one until all fit. The lock is held.
func (s *settledSets) bound(but uuid.UUID) {
	for id := range s.sets {
		if s.bytes <= s.most {
			return
		}
		if id != but {
			s.forget(id)
		}
	}
}

// Settled calls yield with the ordinals of each settlement so far, by number; the slice is
// good until yield returns. What it reads is remembered for the settlements that follow.
func (e Engine) Settled(ctx context.Context, id uuid.UUID, yield func(ordinals []int64) error) error {
	var v *Row
	err := e.db.View(ctx, func(t Tables) (err error) {
		v, err = t.Read(id)
		return err
	})
	if err != nil {
		return fmt.Errorf("read settled ordinals of verification %s: %w", id, err)
	}
	set := newSettledSet(v.Epoch)
	for set.upTo < v.Settlements {
		var ordinals []int64
		err := e.db.View(ctx, func(t Tables) (err error) {
			ordinals, err = t.Ordinals(id, set.upTo+1)
			return err
		})
		if err != nil {
			return fmt.Errorf("read settlement %d of verification %s: %w", set.upTo+1, id, err)
		}
		set.add(ordinals)
		if err := yield(ordinals); err != nil {
			return err
		}
	}
	if v.State().Funded() {
		e.settled.keep(id, set)
	}
	return nil
}

// remember reads what is settled of a verification.
func (e Engine) remember(ctx context.Context, id uuid.UUID) error {
	return e.Settled(ctx, id, func([]int64) error { return nil })
}
