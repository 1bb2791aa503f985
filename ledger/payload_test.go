package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// result is a valid result.
func result(ordinal int64) ledger.Result {
	return ledger.Result{Ordinal: ordinal, Email: "a@b.example", Outcome: smtp.Valid,
		Reason: smtp.MailboxExists, At: time.UnixMilli(1_700_000_000_123).UTC()}
}

// many are n valid results.
func many(n int64) (list []ledger.Result) {
	for o := range n {
		list = append(list, result(o))
	}
	return list
}

// decoded opens a payload into results.
func decoded(t *testing.T, payload []byte) []ledger.Result {
	t.Helper()
	var b ledger.Batch
	effort.OK(t, b.Decode(payload))
	var list []ledger.Result
	for i := range b.Len() {
		list = append(list, b.Result(i))
	}
	return list
}

func TestPayloadGivesBackTheResultsByOrdinal(t *testing.T) {
	odd := result(1 << 40)
	odd.Email, odd.Outcome, odd.Reason = "\"=1+1\"@Grüße.example", smtp.Unknown, smtp.DNSFailed
	odd.Operator = smtp.OperatorOf("google.com")
	early := result(3)
	early.At = time.UnixMilli(-5).UTC()
	long := result(9)
	long.Email = strings.Repeat("x", ledger.EmailBytesMax)
	for _, c := range []struct {
		name string
		in   []ledger.Result
		want []ledger.Result
	}{
		{"one", []ledger.Result{result(0)}, []ledger.Result{result(0)}},
		{"not the first", []ledger.Result{result(5), result(2)}, []ledger.Result{result(2), result(5)}},
		{"any order", []ledger.Result{long, early, odd, result(0)}, []ledger.Result{result(0), early, long, odd}},
	} {
		given := append([]ledger.Result(nil), c.in...)
		p, err := ledger.EncodeResults(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		effort.Same(t, decoded(t, p.Bytes), c.want, c.name)
		last := len(c.want) - 1
		effort.ErrorIf(t, p.First != c.want[0].Ordinal || p.Last != c.want[last].Ordinal ||
			p.Counts.Sum() != int64(len(c.want)), "%s: from %d to %d with %+v", c.name, p.First, p.Last, p.Counts)
		effort.Same(t, given, c.in, c.name, "the caller's results were moved")
	}
}

func TestPayloadDigestTellsResultsApart(t *testing.T) {
	first := effort.Must(ledger.EncodeResults([]ledger.Result{result(1), result(2)}))(t)
	turned, err := ledger.EncodeResults([]ledger.Result{result(2), result(1)})
	effort.ErrorIf(t, err != nil || turned.Digest != first.Digest || !bytes.Equal(turned.Bytes, first.Bytes),
		"the order of the same results changes the payload (%v)", err)
	for name, change := range map[string]func(*ledger.Result){
		"ordinal":  func(r *ledger.Result) { r.Ordinal++ },
		"email":    func(r *ledger.Result) { r.Email = "A@b.example" },
		"outcome":  func(r *ledger.Result) { r.Outcome = smtp.Error },
		"reason":   func(r *ledger.Result) { r.Reason = smtp.Syntax },
		"operator": func(r *ledger.Result) { r.Operator++ },
		"time":     func(r *ledger.Result) { r.At = r.At.Add(time.Millisecond) },
	} {
		other := result(2)
		change(&other)
		p, err := ledger.EncodeResults([]ledger.Result{result(1), other})
		effort.ErrorIf(t, err != nil || p.Digest == first.Digest, "another %s has the same digest (%v)", name, err)
	}
}

func TestPayloadRefusesWhatIsNoSettlement(t *testing.T) {
	with := func(change func(*ledger.Result)) []ledger.Result {
		r := result(5)
		change(&r)
		return []ledger.Result{result(1), r}
	}
	for name, in := range map[string][]ledger.Result{
		"nothing":          nil,
		"too many":         many(ledger.SettlementMax + 1),
		"ordinal twice":    with(func(r *ledger.Result) { r.Ordinal = 1 }),
		"negative ordinal": with(func(r *ledger.Result) { r.Ordinal = -1 }),
		"the last ordinal": with(func(r *ledger.Result) { r.Ordinal = math.MaxInt64 }),
		"no address":       with(func(r *ledger.Result) { r.Email = "" }),
		"address too long": with(func(r *ledger.Result) {
			r.Email = strings.Repeat("x", ledger.EmailBytesMax+1)
		}),
		"undecided":       with(func(r *ledger.Result) { r.Outcome = smtp.Undecided }),
		"no such outcome": with(func(r *ledger.Result) { r.Outcome = 77 }),
		"no reason":       with(func(r *ledger.Result) { r.Reason = smtp.ReasonNone }),
	} {
		effort.Denied(ledger.EncodeResults(in))(t, ledger.ErrIllegal, name)
	}
}

// columnsOf are the columns of n valid results.
func columnsOf(n int) string {
	var raw strings.Builder
	for _, column := range []string{"\x00", "\x01", "\x01", "\x01", "\x00", "\x00", "a"} {
		raw.WriteString(strings.Repeat(column, n))
	}
	return raw.String()
}

// TestBrokenPayloadsAreRefused takes a sound one apart.
func TestBrokenPayloadsAreRefused(t *testing.T) {
	const sound = "\x02" + "\x00\x03" + "\x01\x02" + "\x01\x02" + "\x01\x02" + "\x00\x01" + "\x00\x00" + "abb"
	changed := func(at int, with string) string { return sound[:at] + with + sound[at+1:] }
	raws := map[string]string{
		"no results":                 changed(0, "\x00"),
		"more results than there":    changed(0, "\x03"),
		"too many results":           "\x81\x20" + columnsOf(ledger.SettlementMax+1),
		"a number without its end":   changed(0, "\xff"),
		"an ordinal below 0":         changed(1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"an ordinal without a next":  changed(1, "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
		"an ordinal that comes back": changed(2, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"no address":                 strings.Replace(changed(3, "\x00"), "abb", "bb", 1),
		"a number that is too long":  changed(0, strings.Repeat("\xff", 11)),
		"an address that is longer":  changed(4, "\x03"),
		"an address that is shorter": changed(4, "\x01"),
		"an address above the bound": changed(4, "\x81\x08") + strings.Repeat("b", ledger.EmailBytesMax-2),
		"no outcome":                 changed(5, "\x00"),
		"an unknown outcome":         changed(6, "\x63"),
		"no reason":                  changed(7, "\x00"),
		"an unknown reason":          changed(8, "\xff"),
		"more than there should be":  sound + "b",
	}
	for i := range len(sound) {
		raws[fmt.Sprintf("cut after %d bytes", i)] = sound[:i]
	}
	payloads := map[string][]byte{"nothing": nil, "the version alone": {1}, "another version": {3}}
	for name, raw := range raws {
		payload := effort.Must(ledger.CompressForTest([]byte(raw)))(t)
		payloads[name] = payload
	}
	good := effort.Must(ledger.CompressForTest([]byte(sound)))(t)
	payloads["a sound one of another version"] = append([]byte{3}, good[1:]...)
	for i := range good {
		payloads[fmt.Sprintf("compressed and cut after %d bytes", i)] = good[:i]
	}
	if got := decoded(t, good); len(got) != 2 || got[1].Ordinal != 4 || got[1].Email != "bb" || got[1].Operator != 1 {
		t.Errorf("the sound one: %+v", got)
	}
	var b ledger.Batch
	for name, payload := range payloads {
		effort.ErrIs(t, b.Decode(payload), ledger.ErrPayload, name)
	}
}

// TestPayloadsOfTheFirstVersionAreRead: those had no operators.
func TestPayloadsOfTheFirstVersionAreRead(t *testing.T) {
	const columns = "\x02" + "\x00\x03" + "\x01\x02" + "\x01\x02" + "\x01\x02" + "\x00\x00" + "abb"
	old := effort.Must(ledger.CompressForTest([]byte(columns)))(t)
	old[0] = 1
	got := decoded(t, old)
	effort.ErrorIf(t, len(got) != 2 || got[1].Email != "bb" || got[1].Operator != 0, "got %+v", got)
}

// TestABatchIsUsedAgain: nothing of what it held before is left, in full batches too.
func TestABatchIsUsedAgain(t *testing.T) {
	full := many(ledger.SettlementMax)
	var b ledger.Batch
	for _, want := range [][]ledger.Result{full, {result(7), result(9)}, full, {result(0)}} {
		p, err := ledger.EncodeResults(want)
		if err == nil {
			err = b.Decode(p.Bytes)
		}
		effort.OK(t, err)
		effort.FatalIf(t, b.Len() != len(want) || len(b.Outcomes) != len(want) || len(b.Reasons) != len(want) ||
			len(b.Times) != len(want), "%d results, want %d", b.Len(), len(want))
		for i := range want {
			effort.MustBe(t, b.Result(i), want[i], "result", i)
		}
	}
}

// FuzzDecodePayload: whatever the bytes, an answer; and what is answered can be
// packed again into results that are equal.
func FuzzDecodePayload(f *testing.F) {
	for _, in := range [][]ledger.Result{{result(0)}, {result(3), result(70_000), result(9)}} {
		p := effort.Must(ledger.EncodeResults(in))(f)
		f.Add(p.Bytes)
		f.Add(p.Bytes[:len(p.Bytes)/2])
	}
	f.Add([]byte{})
	f.Add([]byte{1})
	f.Add([]byte{2, 40, 181, 47, 253})
	var b ledger.Batch
	f.Fuzz(func(t *testing.T, payload []byte) {
		if err := b.Decode(payload); err != nil {
			effort.FatalIf(t, !errors.Is(err, ledger.ErrPayload), "got %v, want ErrPayload", err)
			return
		}
		var list []ledger.Result
		for i := range b.Len() {
			list = append(list, b.Result(i))
		}
		p := effort.Must(ledger.EncodeResults(list))(t)
		got := decoded(t, p.Bytes)
		effort.FatalIf(t, !reflect.DeepEqual(got, list), "got %+v, want %+v", got, list)
	})
}

// FuzzUnpackedColumns does the same behind the compression, which random bytes never pass.
func FuzzUnpackedColumns(f *testing.F) {
	f.Add([]byte("\x01\x00\x01\x01\x01\x00a"))
	f.Add([]byte("\x02\x00\x00\x01\x01\x01\x02\x01\x02\x00\x00ab"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		payload := effort.Must(ledger.CompressForTest(raw))(t)
		var b ledger.Batch
		if err := b.Decode(payload); err != nil {
			effort.FatalIf(t, !errors.Is(err, ledger.ErrPayload), "got %v, want ErrPayload", err)
			return
		}
		last := int64(-1)
		for i := range b.Len() {
			r := b.Result(i)
			effort.FatalIf(t, r.Ordinal <= last || r.Email == "" || !r.Outcome.Final() || !r.Reason.Known(),
				"a result that no settlement may hold: %+v after ordinal %d", r, last)
			last = r.Ordinal
		}
	})
}
