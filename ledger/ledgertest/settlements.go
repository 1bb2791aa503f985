package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

var settlements = []exercise{
	{"a file from creation to results", 10, func(d *Fixture) {
		v, l := d.Prepares(5)
		d.is(v, "verifying")
		d.has(10, 5, 5, 0)
		d.is(d.Settles(l, 1, 3, 4, smtp.Unknown), "verifying")
		d.has(10, 7, 3, 0)
		done := d.Settles(l, 2, 0, 2, smtp.Valid)
		d.is(done, "completed")
		d.has(10, 7, 0, 3)
		want := (ledger.Counts{Valid: 3, Unknown: 2})
		effort.ErrorIf(d.T, done.Counts != want || done.Held != 0 || done.Settlements != 2, "got %+v", done)
		effort.Is(d.T, done, d.Sees(v.ID), "stored")
	}},
	{"every outcome but unknown costs one credit", 5, func(d *Fixture) {
		_, l := d.Prepares(5)
		for i, o := range smtp.Outcomes {
			d.Settles(l, int64(i+1), int64(i), int64(i), o)
		}
		d.has(5, 1, 0, 4)
	}},
	{"an error makes completed_with_errors", 2, func(d *Fixture) {
		_, l := d.Prepares(2)
		d.Settles(l, 1, 0, 0, smtp.Error)
		d.is(d.Settles(l, 2, 1, 1, smtp.Valid), "completed_with_errors")
	}},
	{"a settlement repeated changes nothing", 5, func(d *Fixture) {
		v, l := d.Prepares(3)
		first := d.Settles(l, 1, 0, 0, smtp.Valid)
		effort.Is(d.T, d.Settles(l, 1, 0, 0, smtp.Valid), first, fmt.Sprintf("%+v, then", first))
		d.Settles(l, 2, 1, 2, smtp.Unknown)
		d.is(d.Settles(l, 2, 1, 2, smtp.Unknown), "completed") // also the last one, whose lease is gone
		d.Settles(l, 1, 0, 0, smtp.Valid)                      // and an old one
		d.has(5, 4, 0, 1)
		effort.Is(d.T, len(d.Reads(v.ID)), 3, "results")
	}},
	{"another content under a known number is stale", 5, func(d *Fixture) {
		_, l := d.Prepares(3)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		for name, s := range map[string]ledger.Settlement{
			"another outcome": Batch(l, 1, 0, 0, smtp.Invalid),
			"another ordinal": Batch(l, 1, 1, 1, smtp.Valid),
			"a gap":           Batch(l, 3, 1, 1, smtp.Valid),
			"number 0":        Batch(l, 0, 1, 1, smtp.Valid),
		} {
			denied(d.Settle(d.T.Context(), s))(d, ledger.ErrStaleEpoch, name)
		}
		d.has(5, 2, 2, 1)
	}},
	{"the old owner's settlement is refused after a takeover", 5, func(d *Fixture) {
		v, l := d.Prepares(3)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		d.ok(d.Release(d.T.Context(), l))
		next := uuid.New()
		taken := d.leased(next, 1, Hour, v.ID)
		denied(d.Settle(d.T.Context(), Batch(l, 2, 1, 1, smtp.Valid)))(d, ledger.ErrStaleEpoch)
		d.Settles(l, 1, 0, 0, smtp.Valid) // its earlier commits stay
		newer := ledger.Lease{Verification: v.ID, Node: next, Epoch: taken[0].Epoch}
		_, err := d.Settle(d.T.Context(), Batch(newer, 1, 0, 0, smtp.Valid)) // and not the new owner's
		d.refused(err, ledger.ErrStaleEpoch)
		effort.ErrorIf(d.T, taken[0].Settlements != 1 || taken[0].Held != 2, "taken over: %+v", taken[0])
		d.has(5, 2, 2, 1)
	}},
	{"an address is charged once", 9, func(d *Fixture) {
		v, l := d.Prepares(6)
		d.Settles(l, 1, 1, 2, smtp.Valid)
		d.Settles(l, 2, 4, 4, smtp.Unknown)
		twice(d, l, 3, 1, 2, 4)
		d.ok(d.Release(d.T.Context(), l)) // and whoever has it next
		twice(d, d.Takes(v.ID), 3, 1, 2, 4)
		d.has(9, 4, 3, 2)
		l = ledger.Lease{Verification: v.ID, Node: d.Node, Epoch: l.Epoch + 1}
		d.Settles(l, 3, 0, 0, smtp.Valid) // a refused call has left nothing
		twice(d, l, 4, 0, 1, 2, 4)
		d.Settles(l, 4, 3, 3, smtp.Valid)
		d.is(d.Settles(l, 5, 5, 5, smtp.Valid), "completed")
		d.has(9, 4, 0, 5)
		effort.Is(d.T, len(d.Reads(v.ID)), 6, "results")
	}},
	{"addresses from all over the file are charged once", 9000, func(d *Fixture) {
		_, l := d.Prepares(9000)
		for number := range int64(3) {
			s := ledger.Settlement{Lease: l, Number: number + 1}
			for ordinal := number; ordinal < 9000; ordinal += 9 {
				s.Results = append(s.Results, OneResult(ordinal, smtp.Valid))
			}
			effort.Must(d.Settle(d.T.Context(), s))(d.T)
		}
		twice(d, l, 4, 0, 2, 8991, 4501, 4511)
		d.Settles(l, 4, 3, 8, smtp.Valid)
		d.has(9000, 0, 5994, 3006)
	}},
	{"an expired lease that nobody took still settles", 5, func(d *Fixture) {
		v, l := d.Prepares(3)
		effort.Must(d.Renew(d.T.Context(), d.Node, 0))(d.T)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		effort.Is(d.T, d.Sees(v.ID).Counts.Valid, 1, "valid")
	}},
	{"the settled ordinals are told to the next owner", 9, func(d *Fixture) {
		v, l := d.Prepares(6)
		d.Settles(l, 1, 4, 5, smtp.Valid)
		d.Settles(l, 2, 0, 1, smtp.Unknown)
		var got [][]int64
		d.ok(d.Settled(d.T.Context(), v.ID, func(ordinals []int64) error {
			got = append(got, append([]int64(nil), ordinals...))
			return nil
		}))
		want := [][]int64{{4, 5}, {0, 1}}
		effort.ErrorIf(d.T, !reflect.DeepEqual(got, want), "got %v, want %v", got, want)
	}},
}

// twice fails the test unless every settlement is refused that has one of some ordinals, alone or
// beside one that is open, such as the one after it.
func twice(d *Fixture, l ledger.Lease, number int64, ordinals ...int64) {
	d.T.Helper()
	before := d.Account()
	for _, ordinal := range ordinals {
		for _, s := range []ledger.Settlement{Batch(l, number, ordinal, ordinal, smtp.Valid),
			Batch(l, number, ordinal, ordinal, smtp.Unknown), Batch(l, number, ordinal, ordinal+1, smtp.Valid)} {
			denied(d.Settle(d.T.Context(), s))(d, ledger.ErrIllegal, fmt.Sprintf("ordinal %d again", ordinal))
		}
	}
	effort.Is(d.T, d.Account(), before, fmt.Sprintf("balance: %+v, then", before))
}

var cancels = []exercise{
	{"uploading", 5, func(d *Fixture) { cancelsAtOnce(d, d.Creates(7).ID, 0) }},
	{"preparing, whoever reads it", 5, func(d *Fixture) {
		l := d.Takes(d.Uploads().ID)
		cancelsAtOnce(d, l.Verification, 0)
		denied(d.Prepare(d.T.Context(), l, 1, 0, 1))(d, ledger.ErrStaleEpoch)
	}},
	{"waiting for credits", 0, func(d *Fixture) {
		v, _ := d.Prepares(3)
		cancelsAtOnce(d, v.ID, 3)
		d.Grants(3)
		d.has(3, 3, 0, 0)
	}},
	{"verifying with no lease and a small rest", 5, func(d *Fixture) {
		v, l := d.Prepares(5)
		d.Settles(l, 1, 0, 1, smtp.Valid)
		d.ok(d.Release(d.T.Context(), l))
		cancelsAtOnce(d, v.ID, 3)
		d.has(5, 3, 0, 2)
	}},
	{"verifying with an expired lease", 5, func(d *Fixture) {
		v, l := d.Prepares(5)
		effort.Must(d.Renew(d.T.Context(), d.Node, 0))(d.T)
		cancelsAtOnce(d, v.ID, 5)
		denied(d.Settle(d.T.Context(), Batch(l, 1, 0, 0, smtp.Valid)))(d, ledger.ErrStaleEpoch)
	}},
	{"verifying under a lease", 5, func(d *Fixture) { cancelsUnderLease(d, 5) }},
	{"a large rest without a lease", ledger.SettlementMax + 1, func(d *Fixture) {
		v, l := d.Prepares(ledger.SettlementMax + 1)
		d.ok(d.Release(d.T.Context(), l))
		v = effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		d.is(v, "cancelling")
		v = effort.Must(d.FinishCancel(d.T.Context(), d.Takes(v.ID)))(d.T)
		d.is(v, "cancelled")
		d.has(ledger.SettlementMax+1, ledger.SettlementMax+1, 0, 0)
	}},
	{"cancelling ends in cancelled also when all got their outcome", 2, func(d *Fixture) {
		v, l := d.Prepares(2)
		effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		d.is(d.Settles(l, 1, 0, 1, smtp.Valid), "cancelled")
		again := effort.Must(d.FinishCancel(d.T.Context(), l))(d.T)
		d.is(again, "cancelled")
		d.has(2, 0, 0, 2)
	}},
	{"a final file stays as it is", 2, func(d *Fixture) {
		v, l := d.Prepares(1)
		done := d.Settles(l, 1, 0, 0, smtp.Valid)
		v = effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		effort.Is(d.T, v, done, fmt.Sprintf("%+v, then", done))
	}},
}

// cancelsAtOnce fails the test unless the verification is cancelled in one step, with this number of unchecked
// addresses. A second call must give the same.
func cancelsAtOnce(d *Fixture, id uuid.UUID, unchecked int64) {
	d.T.Helper()
	for range 2 {
		v := effort.Must(d.Cancel(d.T.Context(), d.Workspace, id))(d.T)
		d.is(v, "cancelled")
		effort.ErrorIf(d.T, v.Counts.Cancelled != unchecked || v.Held != 0,
			"counts %+v holding %d, want %d cancelled", v.Counts, v.Held, unchecked)
	}
	d.leased(uuid.New(), 5, Hour)
}

// cancelsUnderLease cancels a file of total addresses in the middle of its work.
func cancelsUnderLease(d *Fixture, total int64) {
	v, l := d.Prepares(total)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	for range 2 {
		v := effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		d.is(v, "cancelling")
	}
	stays := effort.Must(d.Wait(d.T.Context(), l, ledger.Estimate{Next: v.Created.Add(time.Minute)}))(d.T)
	d.is(stays, "cancelling")
	d.is(d.Settles(l, 2, 1, 1, smtp.Invalid), "cancelling") // in flight: counts and is charged
	for range 2 {
		v := effort.Must(d.FinishCancel(d.T.Context(), l))(d.T)
		d.is(v, "cancelled")
		effort.Is(d.T, v.Counts.Cancelled, total-2, "counts", v.Counts)
	}
	d.has(5, 3, 0, 2)
	denied(d.Settle(d.T.Context(), Batch(l, 3, 2, 2, smtp.Valid)))(d, ledger.ErrStaleEpoch)
}

// witnessed is a batch with evidence.
func witnessed(l ledger.Lease, number, ordinal int64, evidence string) ledger.Settlement {
	s := Batch(l, number, ordinal, ordinal, smtp.Valid)
	s.Evidence = []byte(evidence)
	return s
}

// KeptSettlement is a copy of one settlement from Evidence.
type KeptSettlement struct {
	Number, Epoch int64
	Results       []ledger.Result
	Evidence      string
}

// Witnesses reads the evidence of a verification after a number.
func (d *Fixture) Witnesses(id uuid.UUID, after int64) (list []KeptSettlement) {
	d.T.Helper()
	effort.Must(d.Evidence(d.T.Context(), id, after, func(k ledger.StoredSettlement) error {
		if age := time.Since(k.At); age.Abs() > time.Minute {
			return fmt.Errorf("settlement %d is from %v", k.Number, k.At)
		}
		one := KeptSettlement{Number: k.Number, Epoch: k.Epoch, Evidence: string(k.Evidence)}
		for i := range k.Results.Len() {
			one.Results = append(one.Results, k.Results.Result(i))
		}
		list = append(list, one)
		return nil
	}))(d.T)
	return list
}

// witnesses fails the test unless the evidence of a verification is as given, by number from 1.
func witnesses(d *Fixture, id uuid.UUID, want ...string) {
	d.T.Helper()
	list := d.Witnesses(id, 0)
	effort.MustBe(d.T, len(list), len(want), "settlements")
	for i, k := range list {
		effort.ErrorIf(d.T, k.Number != int64(i+1) || k.Evidence != want[i] || len(k.Results) == 0,
			"got %d with %q and %d results, want %d with %q", k.Number, k.Evidence, len(k.Results), i+1, want[i])
	}
}

var evidences = []exercise{
	{"evidence stands beside its results, with nothing and with bytes that are no text", 9, func(d *Fixture) {
		v, l := d.Prepares(4)
		raw := "\x00\xff\xfe\x00bytes"
		for i, s := range []ledger.Settlement{witnessed(l, 1, 3, raw), witnessed(l, 2, 0, ""),
			witnessed(l, 3, 2, "third")} {
			effort.Must(d.Settle(d.T.Context(), s))(d.T)
			got := d.Witnesses(v.ID, int64(i))
			effort.ErrorIf(d.T, len(got) != 1 || got[0].Epoch != l.Epoch || len(got[0].Results) != 1 ||
				got[0].Results[0] != s.Results[0], "got %+v, want %+v", got, s)
		}
		witnesses(d, v.ID, raw, "", "third")
		got := d.Witnesses(v.ID, 3)
		effort.ErrorIf(d.T, len(got) != 0, "after the last: %+v", got)
		told, err := d.Evidence(d.T.Context(), v.ID, 99, func(ledger.StoredSettlement) error { return errors.New("called") })
		d.ok(err)
		effort.ErrorIf(d.T, told.LeasedUntil.IsZero(), "it is leased, and Evidence does not say so")
		told.LeasedUntil, told.LeasedBy = time.Time{}, uuid.Nil // not of Verification
		effort.Is(d.T, told, d.Sees(v.ID), "stored")
	}},
	{"evidence of many settlements, each its own", 99, func(d *Fixture) {
		v, l := d.Prepares(70)
		o, m := d.Prepares(1)
		effort.Must(d.Settle(d.T.Context(), witnessed(m, 1, 0, "of another")))(d.T)
		var want []string
		for n := int64(1); n <= 70; n++ {
			want = append(want, fmt.Sprint("evidence ", n))
			effort.Must(d.Settle(d.T.Context(), witnessed(l, n, 70-n, want[n-1])))(d.T)
		}
		witnesses(d, v.ID, want...)
		witnesses(d, o.ID, "of another")
	}},
	{"a repeat with other evidence is the same settlement, and the first stays", 9, func(d *Fixture) {
		v, l := d.Prepares(2)
		first := effort.Must(d.Settle(d.T.Context(), witnessed(l, 1, 0, "first")))(d.T)
		for _, other := range []string{"second", "", "first"} {
			again := effort.Must(d.Settle(d.T.Context(), witnessed(l, 1, 0, other)))(d.T)
			effort.Is(d.T, again, first, fmt.Sprintf("%+v, then", first))
		}
		witnesses(d, v.ID, "first")
		effort.Must(d.Settle(d.T.Context(), witnessed(l, 2, 1, "")))(d.T)
		effort.Must(d.Settle(d.T.Context(), witnessed(l, 2, 1, "too late")))(d.T)
		witnesses(d, v.ID, "first", "")
		d.has(9, 7, 0, 2)
	}},
	{"a settlement that is refused leaves no evidence", 9, func(d *Fixture) {
		v, l := d.Prepares(3)
		stale := l
		stale.Epoch++
		denied(d.Settle(d.T.Context(), witnessed(stale, 1, 0, "stale")))(d, ledger.ErrStaleEpoch)
		denied(d.Settle(d.T.Context(), witnessed(l, 1, 3, "beyond the file")))(d, ledger.ErrIllegal)
		effort.Must(d.Settle(d.T.Context(), witnessed(l, 1, 0, "taken")))(d.T)
		denied(d.Settle(d.T.Context(), witnessed(l, 1, 1, "another batch")))(d, ledger.ErrStaleEpoch)
		witnesses(d, v.ID, "taken")
	}},
	{"evidence at its bound, and above it", 9, func(d *Fixture) {
		v, l := d.Prepares(2)
		large := witnessed(l, 1, 0, "")
		large.Evidence = bytes.Repeat([]byte{0, 0xfe, 'x'}, ledger.EvidenceMax/3+1)
		denied(d.Settle(d.T.Context(), large))(d, ledger.ErrIllegal)
		large.Evidence = large.Evidence[:ledger.EvidenceMax]
		effort.Must(d.Settle(d.T.Context(), large))(d.T)
		if got := d.Witnesses(v.ID, 0); got[0].Evidence != string(large.Evidence) {
			d.T.Errorf("%d bytes, want %d, or others", len(got[0].Evidence), len(large.Evidence))
		}
		large.Lease.Epoch++ // faults of the lease come first
		large.Evidence = append(large.Evidence, 'x')
		denied(d.Settle(d.T.Context(), large))(d, ledger.ErrStaleEpoch)
	}},
	{"a reader of evidence that gives up ends it", 9, func(d *Fixture) {
		v, l := d.Prepares(2)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		d.Settles(l, 2, 1, 1, smtp.Valid)
		enough, n := errors.New("enough"), 0
		denied(d.Evidence(d.T.Context(), v.ID, 0, func(ledger.StoredSettlement) error { n++; return enough }))(d, enough)
		effort.Is(d.T, n, 1, "yielded", n-1, "more")
		ctx, cancel := context.WithCancel(d.T.Context())
		denied(d.Evidence(ctx, v.ID, 0, func(ledger.StoredSettlement) error { cancel(); return nil }))(d, context.Canceled)
	}},
	{"evidence of nothing, and past its retention", 9, func(d *Fixture) {
		nothing := func(ledger.StoredSettlement) error { return errors.New("there is something") }
		denied(d.Evidence(d.T.Context(), uuid.New(), 0, nothing))(d, ledger.ErrNoSuchVerification)
		young := d.Creates(7)
		effort.Must(d.Evidence(d.T.Context(), young.ID, 0, nothing))(d.T)
		v, l := d.Prepares(1)
		effort.Must(d.Settle(d.T.Context(), witnessed(l, 1, 0, "erased")))(d.T)
		running, k := d.Prepares(2)
		effort.Must(d.Settle(d.T.Context(), witnessed(k, 1, 0, "kept")))(d.T)
		effort.Must(d.Cancel(d.T.Context(), d.Workspace, young.ID))(d.T)
		bare, j := d.Prepares(1) // which has none, and held credits
		d.ok(d.Release(d.T.Context(), j))
		d.cancels(bare.ID)
		d.sweeps(ledger.Retention{Results: time.Nanosecond}, 3)
		_, err := d.Evidence(d.T.Context(), young.ID, 0, nothing) // which held none
		d.refused(err, ledger.ErrNoSuchVerification)
		denied(d.Evidence(d.T.Context(), bare.ID, 0, nothing))(d, ledger.ErrResultsExpired)
		erased, err := d.Evidence(d.T.Context(), v.ID, 0, nothing)
		d.refused(err, ledger.ErrResultsExpired)
		effort.ErrorIf(d.T, erased.ID != v.ID || erased.Status != ledger.Completed || erased.Counts.Sum() != 1,
			"what is erased is told as %+v", erased)
		witnesses(d, running.ID, "kept")
		had := effort.Must(d.Evidence(d.T.Context(), running.ID, math.MaxInt64, nothing))(d.T)
		d.ok(d.Release(d.T.Context(), k))
		free := effort.Must(d.Evidence(d.T.Context(), running.ID, 1, nothing))(d.T)
		effort.ErrorIf(d.T, !had.LeasedUntil.After(had.Created) || !free.LeasedUntil.IsZero(),
			"it is leased until %v, and after its release %v", had.LeasedUntil, free.LeasedUntil)
		// A settlement may be repeated after its results are erased.
		effort.Must(d.Settle(d.T.Context(), witnessed(l, 1, 0, "again")))(d.T)
		denied(d.Evidence(d.T.Context(), v.ID, 0, nothing))(d, ledger.ErrResultsExpired)
	}},
}

var facts = []exercise{
	{"what was learned is known until it expires", 0, learns},
	{"the newest fact of a key stands", 0, learnsAnew},
	{"the most facts at once, and one more", 0, manyFacts},
	{"facts that nobody can keep", 0, badFacts},
}

// inAnHour is when the facts of most tests expire.
func inAnHour() time.Time { return time.Now().Add(Hour).Truncate(time.Millisecond).UTC() }

// knows fails the test unless just these facts are known of the keys.
func (d *Fixture) knows(keys []string, want ...ledger.Fact) {
	d.T.Helper()
	got := effort.Must(d.Known(d.T.Context(), keys))(d.T)
	byKey := map[string]ledger.Fact{}
	for _, f := range got {
		byKey[f.Key] = f
	}
	wanted := map[string]ledger.Fact{}
	for _, f := range want {
		wanted[f.Key] = f
	}
	effort.ErrorIf(d.T, len(got) != len(want) || !reflect.DeepEqual(byKey, wanted),
		"known of %q: got %+v, want %+v", keys, got, want)
}

func learns(d *Fixture) {
	d.knows(nil)
	d.ok(d.Learn(d.T.Context(), nil))
	a := ledger.Fact{Key: "mx.a.test", Data: []byte{0, 1, 0xff}, Expires: inAnHour()}
	b := ledger.Fact{Key: "mx.b.test", Data: []byte{}, Expires: inAnHour()}
	old := ledger.Fact{Key: "mx.old.test", Data: []byte("x"), Expires: time.UnixMilli(1)}
	d.ok(d.Learn(d.T.Context(), []ledger.Fact{b, old, a}))
	d.knows([]string{"mx.a.test", "mx.b.test", "mx.old.test", "MX.A.TEST", "mx.a.test"}, a, b)
	d.knows([]string{"mx.b.test"}, b)
	d.knows([]string{"mx.c.test"})
}

func learnsAnew(d *Fixture) {
	f := ledger.Fact{Key: "mx.a.test", Data: []byte("first"), Expires: inAnHour()}
	other := ledger.Fact{Key: "mx.b.test", Data: []byte("other"), Expires: inAnHour()}
	d.ok(d.Learn(d.T.Context(), []ledger.Fact{f, other}))
	second, third := f, f
	second.Data, third.Data = []byte("second"), []byte("third")
	third.Expires = f.Expires.Add(time.Minute)
	d.ok(d.Learn(d.T.Context(), []ledger.Fact{second, third}))
	d.knows([]string{f.Key, other.Key}, third, other)
	third.Expires = time.UnixMilli(1)
	d.ok(d.Learn(d.T.Context(), []ledger.Fact{third}))
	d.knows([]string{f.Key, other.Key}, other)
}

func manyFacts(d *Fixture) {
	var many []ledger.Fact
	var keys []string
	for i := range ledger.FactsMax + 1 {
		key := fmt.Sprintf("mx%d.test", i)
		keys = append(keys, key)
		many = append(many, ledger.Fact{Key: key, Data: []byte(key), Expires: inAnHour()})
	}
	d.refused(d.Learn(d.T.Context(), many), ledger.ErrIllegal)
	denied(d.Known(d.T.Context(), keys))(d, ledger.ErrIllegal)
	d.knows(keys[1:])
	d.ok(d.Learn(d.T.Context(), many[1:]))
	d.knows(keys[:ledger.FactsMax], many[1:ledger.FactsMax]...)
}

func badFacts(d *Fixture) {
	good := ledger.Fact{Key: "mx.a.test", Expires: inAnHour()}
	for name, spoil := range map[string]func(f *ledger.Fact){
		"no key":        func(f *ledger.Fact) { f.Key = "" },
		"a long key":    func(f *ledger.Fact) { f.Key = strings.Repeat("k", ledger.FactKeyBytesMax+1) },
		"NUL in a key":  func(f *ledger.Fact) { f.Key = "a\x00" },
		"a key cut off": func(f *ledger.Fact) { f.Key = "a\xe2\x82" },
		"long data":     func(f *ledger.Fact) { f.Data = make([]byte, ledger.FactBytesMax+1) },
		"no end":        func(f *ledger.Fact) { f.Expires = time.Time{} },
	} {
		bad := good
		spoil(&bad)
		effort.ErrIs(d.T, d.Learn(d.T.Context(), []ledger.Fact{good, bad}), ledger.ErrIllegal, name)
		d.knows([]string{good.Key})
	}
	d.knows([]string{"a\x00", "a\xe2\x82", ""}) // asked for, they are not there
	longest := ledger.Fact{Key: strings.Repeat("k", ledger.FactKeyBytesMax),
		Data: bytes.Repeat([]byte{1}, ledger.FactBytesMax), Expires: inAnHour()}
	d.ok(d.Learn(d.T.Context(), []ledger.Fact{longest}))
	d.knows([]string{longest.Key}, longest)
}
