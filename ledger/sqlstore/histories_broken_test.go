package sqlstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/histories"
)

// The mistakes that a checked history must find. Each leaves the tables in order,
// so that no audit sees it.
const (
	oldBalance   = "a balance of before"
	oldRead      = "a verification of before"
	oldResults   = "results of before"
	lostSettle   = "a settlement that is answered and not written"
	doubleSettle = "a settlement that is written twice"
	doubleGrant  = "a grant that is made twice"
	doubleLease  = "a lease that is handed out twice"
	doubleCreate = "a second verification for one identity"
	lostCancel   = "a cancel that is answered and not done"
	lostChunk    = "a chunk that is answered and not stored"
	unfenced     = "a chunk of an older writer that is taken"
	lateGrant    = "a grant that is answered before it is made"
	lostRelease  = "a release that is answered and not done"
)

// broken is a ledger that makes one mistake in each third call of its kind.
type broken struct {
	ledger.Book
	mistake string

	mu       sync.Mutex
	calls    int
	balances map[uuid.UUID]ledger.Balance
	seen     map[uuid.UUID]ledger.Verification
	leased   []ledger.Verification
}

func newBroken(b ledger.Book, mistake string) *broken {
	return &broken{Book: b, mistake: mistake, balances: map[uuid.UUID]ledger.Balance{},
		seen: map[uuid.UUID]ledger.Verification{}}
}

// errs reports whether this call is a wrong one.
func (b *broken) errs(mistake string) bool {
	if b.mistake != mistake {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	return b.calls%3 == 0
}

func (b *broken) Balance(ctx context.Context, w uuid.UUID) (ledger.Balance, error) {
	now, err := b.Book.Balance(ctx, w)
	wrong := b.errs(oldBalance)
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.balances[w]; ok && wrong {
		return old, err
	}
	b.balances[w] = now
	return now, err
}

func (b *broken) Verification(ctx context.Context, w, id uuid.UUID) (ledger.Verification, error) {
	now, err := b.Book.Verification(ctx, w, id)
	wrong := b.errs(oldRead)
	b.mu.Lock()
	defer b.mu.Unlock()
	if old, ok := b.seen[id]; ok && wrong {
		return old, err
	}
	b.seen[id] = now
	return now, err
}

func (b *broken) Results(ctx context.Context, w, id uuid.UUID, yield func(ledger.Result) error) error {
	var last *ledger.Result
	err := b.Book.Results(ctx, w, id, func(r ledger.Result) error {
		if last != nil {
			if err := yield(*last); err != nil {
				return err
			}
		}
		last = &r
		return nil
	})
	if err == nil && last != nil && !b.errs(oldResults) {
		err = yield(*last)
	}
	return err
}

func (b *broken) Settle(ctx context.Context, s ledger.Settlement) (ledger.Verification, error) {
	if b.errs(lostSettle) {
		v, err := b.Wait(ctx, s.Lease, ledger.Outlook{})
		v.Settlements, v.Held = s.Number, v.Held-ledger.Credits(len(s.Results))
		for _, r := range s.Results {
			v.Counts.Add(r.Outcome)
		}
		return v, err
	}
	v, err := b.Book.Settle(ctx, s)
	if err != nil || !b.errs(doubleSettle) {
		return v, err
	}
	again := ledger.Settlement{Lease: s.Lease, Number: s.Number + 1}
	for _, r := range s.Results {
		next := ledgertest.OneResult(r.Ordinal+int64(len(s.Results)), r.Outcome)
		again.Results = append(again.Results, next)
	}
	if more, err := b.Book.Settle(ctx, again); err == nil {
		return more, nil
	}
	return v, nil
}

func (b *broken) Grant(ctx context.Context, id, w uuid.UUID, n ledger.Credits, why string) (
	ledger.Balance, error) {
	if b.errs(lateGrant) {
		before, err := b.Book.Balance(ctx, w)
		if err != nil {
			return before, err
		}
		if _, err := b.Book.Grant(ctx, id, w, n, why); err != nil {
			return before, err
		}
		return before, nil
	}
	now, err := b.Book.Grant(ctx, id, w, n, why)
	if err == nil && b.errs(doubleGrant) {
		return b.Book.Grant(ctx, uuid.New(), w, n, why)
	}
	return now, err
}

func (b *broken) Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) (
	[]ledger.Verification, error) {
	wrong := b.errs(doubleLease)
	b.mu.Lock()
	old := b.leased
	b.mu.Unlock()
	if wrong && len(old) > 0 {
		return old, nil
	}
	list, err := b.Book.Lease(ctx, node, limit, ttl, except...)
	if len(list) > 0 {
		b.mu.Lock()
		b.leased = list
		b.mu.Unlock()
	}
	return list, err
}

func (b *broken) Create(ctx context.Context, n ledger.NewVerification) (ledger.Verification, bool, error) {
	if b.errs(doubleCreate) {
		n.Identity = uuid.New()
	}
	return b.Book.Create(ctx, n)
}

func (b *broken) Cancel(ctx context.Context, w, id uuid.UUID) (ledger.Verification, error) {
	if !b.errs(lostCancel) {
		return b.Book.Cancel(ctx, w, id)
	}
	v, err := b.Book.Verification(ctx, w, id)
	if !v.Status.Final() {
		v.Status, v.NextTry, v.Issue = ledger.Cancelling, time.Time{}, nil
	}
	return v, err
}

func (b *broken) AppendChunk(ctx context.Context, id uuid.UUID, writer, offset int64, data []byte) (
	ledger.Upload, error) {
	if b.errs(lostChunk) {
		u, err := b.UploadState(ctx, id)
		if err == nil && u.Status == ledger.Uploading && u.Writer == writer && u.Durable == offset {
			u.Durable += int64(len(data))
		}
		return u, err
	}
	u, err := b.Book.AppendChunk(ctx, id, writer, offset, data)
	if b.mistake == unfenced && err != nil && u.Writer > writer { // seldom enough by itself
		return b.Book.AppendChunk(ctx, id, u.Writer, offset, data)
	}
	return u, err
}

func (b *broken) Release(ctx context.Context, l ledger.Lease) error {
	if b.mistake != lostRelease {
		return b.Book.Release(ctx, l)
	}
	_, err := b.Wait(ctx, l, ledger.Outlook{}) // refused like a release when it is not the caller's
	if errors.Is(err, ledger.ErrIllegal) {
		return nil
	}
	return err
}

// TestHistoriesFindMistakes shows that the check is not blind.
func TestHistoriesFindMistakes(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	// Whether somebody looks where the mistake was is up to chance. A search without
	// end finds a mistake too, as it does elsewhere.
	const seeds, operations, checkMax = 8, 400, time.Second / 2
	t.Run(doubleLease+", where leases pass over files", func(t *testing.T) {
		findsMistake(t, doubleLease, seeds, checkMax, histories.Options{Operations: operations, Passing: true})
	})
	mistakes := []string{oldBalance, oldRead, oldResults, lostSettle, doubleSettle, doubleGrant,
		doubleLease, doubleCreate, lostCancel, lostChunk, unfenced, lateGrant, lostRelease}
	for _, mistake := range mistakes[:min(effort.Cases(len(mistakes)), len(mistakes))] {
		t.Run(mistake, func(t *testing.T) {
			findsMistake(t, mistake, seeds, checkMax, histories.Options{Operations: operations})
		})
	}
}

// findsMistake checks histories of a broken ledger until one has no order.
func findsMistake(t *testing.T, mistake string, seeds uint64, checkMax time.Duration, o histories.Options) {
	t.Helper()
	for o.Seed = range seeds {
		s, drop := openScratch(t)
		h, err := histories.Record(t.Context(), []ledger.Book{newBroken(s, mistake)}, o)
		drop()
		if err != nil {
			t.Fatal(err)
		}
		if result, _ := h.Check(checkMax); result != porcupine.Ok {
			return
		}
	}
	t.Errorf("not found in %d histories", seeds)
}
