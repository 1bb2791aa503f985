package transitions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Settle commits the outcomes of one batch and moves their credits out of held (moveHeld): those of unknown addresses
// to available, all others to spent (ledger.Counts.Charged). With the last outcomes it writes the final status and the
// time of completion.
//
// Node, epoch and number guard it. Run again with the same arguments it changes nothing and returns the current state,
// even after the lease has ended; the same number with other results is ErrStaleEpoch. A repeat may bring other
// evidence: the committed evidence stays. An address that already has an outcome from another settlement is ErrIllegal.
func (e Engine) Settle(ctx context.Context, n ledger.Settlement) (ledger.Verification, error) {
	// Packed outside the transaction; a fault of the lease is returned before a fault of the payload.
	payload, refused := ledger.EncodeResults(n.Results)
	if refused == nil && len(n.Evidence) > ledger.EvidenceMax {
		refused = fmt.Errorf("%d bytes of evidence: %w", len(n.Evidence), ledger.ErrIllegal)
	}
	if refused == nil {
		refused = ledger.CheckWhy(n.Why)
	}
	if refused == nil && n.Number > 1 && !e.settled.knows(n.Lease, n.Number-1) {
		_ = e.remember(ctx, n.Lease.Verification) // if this fails, the transaction finds out
	}
	v, err := e.settleOnce(ctx, n, payload, refused)
	for range readsMax {
		if !errors.Is(err, errBehind) {
			break
		}
		if err = e.remember(ctx, n.Lease.Verification); err == nil {
			v, err = e.settleOnce(ctx, n, payload, refused)
		}
	}
	if errors.Is(err, ledger.ErrStaleEpoch) && refused == nil {
		var before *Row
		err = e.db.View(ctx, func(t Tables) (err error) {
			before, err = repeated(t, n, payload)
			return err
		})
		if err == nil {
			return before.Verification, nil
		}
	}
	return v, ledger.Wrap(err, "settle verification %s number %d", n.Lease.Verification, n.Number)
}

// readsMax is how often one call reads the earlier settlements again after a concurrent settlement or a failed read.
const readsMax = 2

// settleOnce runs one transaction. It returns errBehind if the earlier settlements must be read first.
func (e Engine) settleOnce(ctx context.Context, n ledger.Settlement, p ledger.Payload, refused error) (
	ledger.Verification, error) {
	var after *Row
	again := func(*Row) bool { return false }
	v, err := e.paid(ctx, n.Lease, again, func(t Tables, v *Row) error {
		if refused != nil {
			return refused
		}
		if err := settleable(v, n, p); err != nil {
			return err
		}
		ordinal, twice, err := e.settled.first(v, p.Ordinals)
		switch {
		case err != nil:
			return err
		case twice:
			return fmt.Errorf("ordinal %d has an outcome already: %w", ordinal, ledger.ErrIllegal)
		}
		after = v
		return settle(t, v, n, p)
	})
	if err == nil {
		e.settled.note(after, n.Number, p.Ordinals)
	}
	return v, err
}

// repeated returns the verification of a settlement that is already stored. It returns ErrStaleEpoch if none with its
// number is stored, or a different one.
func repeated(t Tables, n ledger.Settlement, payload ledger.Payload) (*Row, error) {
	epoch, digest, err := t.Settled(n.Lease.Verification, n.Number)
	if err != nil {
		return nil, err
	}
	if epoch != n.Lease.Epoch || !bytes.Equal(digest, payload.Digest[:]) {
		return nil, ledger.ErrStaleEpoch
	}
	return t.Read(n.Lease.Verification)
}

// settleable refuses a settlement that is not the next one, or does not fit its file.
func settleable(v *Row, n ledger.Settlement, p ledger.Payload) error {
	switch {
	case n.Number != v.Settlements+1:
		return ledger.ErrStaleEpoch
	case !v.State().Funded() || p.Last >= v.Total || p.Counts.Sum() > v.Left():
		return ledger.ErrIllegal
	}
	return nil
}

// settle writes the next settlement of a leased verification.
func settle(t Tables, v *Row, n ledger.Settlement, p ledger.Payload) error {
	count := ledger.Credits(p.Counts.Sum())
	if err := t.Settle(n, p); err != nil {
		return fmt.Errorf("insert settlement: %w", err)
	}
	if len(n.Evidence) > 0 {
		if err := t.KeepEvidence(n); err != nil {
			return fmt.Errorf("insert evidence: %w", err)
		}
	}
	before := *v
	if v.Kind == ledger.Single {
		v.SingleOutcome = n.Results[0].Outcome
	}
	v.Settlements, v.Held, v.Counts = n.Number, v.Held-count, v.Counts.Plus(p.Counts)
	v.Expected = ledger.Clock(ledger.Millis(n.Expected))
	if n.Why != "" && v.State() == ledger.WaitingReceivers {
		v.Issue = &ledger.Issue{Code: ledger.ReceiversWait, Message: n.Why}
	}
	changed, err := t.Count(Step{Before: &before, After: v})
	if err := one(changed, err, "count outcomes"); err != nil {
		return err
	}
	if v.Left() == 0 {
		if err := step(t, v, move{to: v.Last()}); err != nil {
			return err
		}
	}
	return moveHeld(t, v, n.Number, ledger.Credits(p.Counts.Charged()), ledger.Credits(p.Counts.Unknown))
}

// Cancel cancels a verification.
func (e Engine) Cancel(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error) {
	v, err := e.db.updateRow(ctx, Scope{Workspace: workspace, Account: true}, func(t Tables) (*Row, error) {
		v, err := t.ReadOf(workspace, id)
		if err == nil {
			err = cancel(t, v, ledger.Actor(ctx))
		}
		return v, err
	})
	return v, ledger.Wrap(err, "cancel verification %s", id)
}

// cancel begins the cancelling of v, and logs the first request in the workspace's log.
func cancel(t Tables, v *Row, by string) error {
	if v.Status.Final() || v.Status == ledger.Cancelling {
		return nil
	}
	if err := ledger.CheckOperatorText("actor", by); err != nil {
		return err
	}
	err := t.LogIn(v.Workspace, ledger.WorkspaceLine{Actor: by, Action: actionCancel, Subject: v.ID.String(),
		Detail: ledger.Shortened(v.Filename)})
	switch {
	case err != nil:
		return err
	case v.State().Funded() && (v.Leased() || v.Left() > ledger.SettlementMax):
		return step(t, v, move{to: ledger.Cancelling, held: v.Held, lease: true, wake: ledger.Millis(v.Created)})
	}
	return finishCancel(t, v)
}

// finishCancel makes v Cancelled and releases its held credits.
func finishCancel(t Tables, v *Row) error {
	free := v.Held
	if err := step(t, v, move{to: ledger.Cancelled, more: v.Left()}); err != nil {
		return err
	}
	if free == 0 {
		return nil
	}
	return moveHeld(t, v, 0, 0, free)
}

// FinishCancel releases the held credits and makes the verification Cancelled.
func (e Engine) FinishCancel(ctx context.Context, l ledger.Lease) (ledger.Verification, error) {
	again := func(v *Row) bool { return v.Status == ledger.Cancelled }
	v, err := e.paid(ctx, l, again, func(t Tables, v *Row) error {
		if v.Status != ledger.Cancelling {
			return ledger.ErrIllegal
		}
		return finishCancel(t, v)
	})
	return v, ledger.Wrap(err, "finish cancelling verification %s", l.Verification)
}

const (
	// settledBytesMax bounds the memory for settled ordinals, in bytes: 5,000,000 addresses take some 700 KB.
	// Forgotten ones are read again. Guess.
	settledBytesMax = 64 << 20

	// sliceOrdinals is the number of ordinals in one slice of a bitmap: 512 bytes.
	sliceOrdinals = 64 * sliceWords
	sliceWords    = 64
	sliceBytes    = 8*sliceWords + 48 // with its place in a map
)

// errBehind means that a transaction met settlements with unknown ordinals.
var errBehind = errors.New("transitions: settlements were not read yet")

// settledSet is the ordinals of a verification's first settlements. Settlements never change, so the set is valid
// during the lease under which it was read.
type settledSet struct {
	epoch, upTo int64 // of the lease; number of the last settlement in the set
	slices      map[int64]*[sliceWords]uint64
}

func newSettledSet(epoch int64) *settledSet {
	return &settledSet{epoch: epoch, slices: map[int64]*[sliceWords]uint64{}}
}

func (s *settledSet) has(ordinal int64) bool {
	slice := s.slices[ordinal/sliceOrdinals]
	return slice != nil && slice[ordinal%sliceOrdinals/64]&(1<<(ordinal%64)) != 0
}

// add adds the ordinals of the next settlement.
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

// settledSets caches which addresses are settled for verifications in work, so that a settlement need not read
// earlier ones. The settlement's transaction checks the cached set against the row. Safe for concurrent use.
type settledSets struct {
	mu    sync.Mutex
	sets  map[uuid.UUID]*settledSet // guarded by mu
	bytes int                       // guarded by mu
	most  int
}

// first returns the first of the ordinals that already has an outcome, if any. It returns errBehind if not all
// settlements of v are cached.
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

// knows reports whether at least upTo settlements of a lease are cached.
func (s *settledSets) knows(l ledger.Lease, upTo int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.sets[l.Verification]
	return set != nil && set.epoch == l.Epoch && set.upTo >= upTo
}

// note adds a committed settlement; v is the row after it.
func (s *settledSets) note(v *Row, number int64, ordinals []int64) {
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
		return // the next settlement reads it again if needed
	}
	before := len(set.slices)
	set.add(ordinals)
	s.bytes += sliceBytes * (len(set.slices) - before)
	s.bound(v.ID)
}

// keep caches a set that was read.
func (s *settledSets) keep(id uuid.UUID, set *settledSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
	s.sets[id] = set
	s.bytes += sliceBytes * len(set.slices)
	s.bound(id)
}

// forget drops a set. The lock is held.
func (s *settledSets) forget(id uuid.UUID) {
	if set := s.sets[id]; set != nil {
		s.bytes -= sliceBytes * len(set.slices)
		delete(s.sets, id)
	}
}

// bound drops sets other than but's until the rest fits. The lock is held.
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

// Settled calls yield with the ordinals of each settlement so far, by number; the slice is valid until yield
// returns. It caches them for later settlements.
func (e Engine) Settled(ctx context.Context, id uuid.UUID, yield func(ordinals []int64) error) error {
	v, err := e.db.readRow(ctx, id)
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

// remember reads and caches what is settled of a verification.
func (e Engine) remember(ctx context.Context, id uuid.UUID) error {
	return e.Settled(ctx, id, func([]int64) error { return nil })
}
