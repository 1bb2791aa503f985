package verification

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/domain"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// TestAParkedVerificationTakesNothing: it has no lease, continues when it is due, and keeps its whole evidence.
func TestAParkedVerificationTakesNothing(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		o := w.options(w.book)
		id := w.uploads("later@good.test", "no@good.test", "later2@fine.test").ID
		leased, lease := w.leases(w.node, id)
		r := w.starts(o, leased, lease)
		<-time.After(time.Minute)
		v := w.sees(id)
		if r.parked.Load() != 1 || v.State() != ledger.WaitingReceivers || time.Until(v.NextTry) < 50*time.Minute {
			w.t.Fatalf("after a minute: parked %d times, %s until %v", r.parked.Load(), v.Status, v.NextTry)
		}
		if i := v.Issue; i == nil || i.Message != "1 address waits for fine.test, which makes strangers come back later "+
			"(greylisting), and 1 for another receiver; the last is expected at 01:01 UTC." {
			w.t.Errorf("while it is parked its customer is told %+v", i)
		}
		effort.Is(w.t, o.Left.Load(), 0, "addresses are counted while it is parked")
		if err := w.book.Release(context.Background(), lease); err != nil { // which says so of one that was given back
			w.t.Errorf("its lease: %v", err)
		}
		r.wait()
		if v := w.sees(id); v.Status != ledger.Completed || v.Epoch < 2 || v.Counts.Unknown != 2 {
			w.t.Errorf("at the end: %+v", v)
		}
		attempts := 0
		_, err := w.book.Evidence(context.Background(), id, 0, func(k ledger.StoredSettlement) error {
			return evidence.Unpack(k.Evidence, func(e evidence.Entry) error {
				attempts = max(attempts, len(e.Case.Attempts))
				return nil
			})
		})
		effort.ErrorIf(w.t, err != nil || attempts != 2,
			"a case has %d attempts, want those before and after it was parked: 2, %v", attempts, err)
		w.sound()
	})
}

// settling is a ledger that keeps what customers were told after each settlement, and fails
// when it is told that a file does not wait any more.
type settling struct {
	Book
	told chan *ledger.Issue
}

func (b settling) Settle(ctx context.Context, s ledger.Settlement) (ledger.Verification, error) {
	v, err := b.Book.Settle(ctx, s)
	if err == nil {
		b.told <- v.Issue
	}
	return v, err
}

func (b settling) Wait(ctx context.Context, l ledger.Lease, o ledger.Estimate) (ledger.Verification, error) {
	if o.Next.IsZero() {
		return ledger.Verification{}, errors.New("the ledger is away")
	}
	return b.Book.Wait(ctx, l, o)
}

// TestASettlementTellsWhatTheRestWaitsFor: a settlement of a waiting file says what its other addresses wait for.
func TestASettlementTellsWhatTheRestWaitsFor(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		book := settling{w.book, make(chan *ledger.Issue, 10)}
		id := w.uploads("second@good.test", "later@fine.test", "no@bad.test").ID
		leased, lease := w.leases(w.node, id)
		r := w.starts(w.options(book), leased, lease)
		i := <-book.told
		effort.ErrorIf(w.t, i != nil, "while it is verifying its customer is told %+v", i)
		const why = "1 address waits for fine.test, which "
		if i := <-book.told; i == nil || !strings.HasPrefix(i.Message, why) || strings.Contains(i.Message, "another") {
			w.t.Errorf("after one of two its customer is told %+v", i)
		}
		v, err := w.book.Cancel(context.Background(), w.workspace, id)
		effort.ErrorIf(w.t, err != nil || v.Issue != nil, "cancelled: %+v, %v", v, err)
		r.wait()
	})
}

// TestAParkedVerificationIsCancelledAtOnce: it does not wait until the next attempt is due.
func TestAParkedVerificationIsCancelledAtOnce(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		id := w.uploads("later@good.test").ID
		leased, lease := w.leases(w.node, id)
		r := w.starts(w.options(w.book), leased, lease)
		<-time.After(time.Minute)
		effort.MustBe(w.t, r.parked.Load(), 1, "not parked")
		effort.Is(w.t, effort.Must(w.book.Cancel(context.Background(), w.workspace, id))(w.t).Status, ledger.Cancelled,
			"cancelled")
		b := w.sound()
		effort.ErrorIf(w.t, b.Available != 10, "balance %+v", b)
		r.over.Store(true)
	})
}

// unreadable is a ledger whose parked work is damaged, or of a newer program, when it is first read.
type unreadable struct {
	Book
	state []byte
	read  *bool
}

func (b unreadable) Parked(ctx context.Context, id uuid.UUID) ([]byte, error) {
	if *b.read {
		return b.Book.Parked(ctx, id)
	}
	*b.read = true
	return b.state, nil
}

func TestWhatCannotBeReadIsAskedAnew(t *testing.T) {
	newer := leftover{Version: parkedVersion + 1}
	packed := effort.Must(newer.pack())(t)
	for _, state := range [][]byte{[]byte("x"), {}, packed} {
		inBubble(t, 10, func(w *world) {
			if v := w.finishes(w.options(unreadable{w.book, state, new(bool)}), w.uploads("later@good.test", "no@good.test").ID); v.Status !=
				ledger.Completed {
				w.t.Errorf("with %q: %+v", state, v)
			}
		})
	}
}

// TestWhatIsLeftIsPackedAndRead: it comes back as it was, in several packs of cases.
func TestWhatIsLeftIsPackedAndRead(t *testing.T) {
	at := time.UnixMilli(1_900_000_000_000).UTC()
	attempt := func(text string) evidence.Attempt {
		return evidence.Attempt{At: at, Stage: smtp.StageRcpt, Host: "mx.example", Source: "192.0.2.1", Code: 451,
			Text: text, Reason: smtp.Greylisted, Rule: "r"}
	}
	l := leftover{Version: parkedVersion, Begun: 5}
	for d := range 3 {
		one := domain.Parked{Domain: fmt.Sprintf("d%d.example", d), GreyWaits: map[string]int64{"192.0.2.1": 300_000}}
		for i := range uint32(evidence.EntriesMax/2 + 10) {
			one.Addresses = append(one.Addresses, domain.ParkedAddress{Ordinal: i, Since: 1, Due: 2, Reason: smtp.Greylisted,
				IsGrey: true, From: "192.0.2.1", Grey: 3, Waits: 4, Marks: 1, Accepted: i%2 == 0,
				Case: evidence.Case{Attempts: []evidence.Attempt{attempt(fmt.Sprint("try again ", i))}, Omitted: int(i % 3)}})
		}
		if d == 1 {
			one.Control = &domain.ParkedControl{Local: "nobody.atall", Asked: 2,
				Notes: evidence.Case{Attempts: []evidence.Attempt{attempt("note")}},
				Again: &domain.ParkedAddress{Due: 9, Case: evidence.Case{Attempts: []evidence.Attempt{attempt("again")}}}}
		}
		l.Domains = append(l.Domains, one)
	}
	want := slices.Clone(l.Domains)
	state := effort.Must(l.pack())(t)
	got, err := unpack(state)
	effort.ErrorIf(t, err != nil || got.Begun != 5 || !reflect.DeepEqual(got.Domains, want), "read %+v, %v", got, err)
	t.Logf("%d addresses take %d bytes", 3*(evidence.EntriesMax/2+10), len(state))
}

func TestWhatDoesNotFitIsNotParked(t *testing.T) {
	l := leftover{Version: parkedVersion, Domains: []domain.Parked{{Domain: strings.Repeat("x", parkedRawMax)}}}
	effort.Denied(l.pack())(t, errTooMuch, "packed")
}
