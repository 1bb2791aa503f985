package evidence

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/smtp"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// attempts draws any attempt that an engine could make.
func attempts() *rapid.Generator[Attempt] {
	return rapid.Custom(func(t *rapid.T) Attempt {
		word := func(name string, most int) string {
			return string(rapid.SliceOfN(rapid.Byte(), 0, most).Draw(t, name))
		}
		return Attempt{
			At:    time.UnixMilli(rapid.Int64Range(-1<<45, 1<<45).Draw(t, "at")).UTC(),
			Stage: smtp.Stage(rapid.IntRange(0, int(smtp.StageRset)).Draw(t, "stage")),
			Host:  word("host", NameMax), Source: word("source", 45), Rule: word("rule", 60), Text: word("text", TextMax),
			TLS: rapid.Bool().Draw(t, "tls"), Wide: rapid.Bool().Draw(t, "wide"), Void: rapid.Bool().Draw(t, "void"),
			Others: rapid.Bool().Draw(t, "others"), Cause: causes().Draw(t, "cause"),
			Code: rapid.IntRange(0, 999).Draw(t, "code"),
			Enhanced: smtp.EnhancedCode{rapid.Uint16Range(0, 5).Draw(t, "class"),
				rapid.Uint16Range(0, 999).Draw(t, "subject"), rapid.Uint16Range(0, 999).Draw(t, "detail")},
			Trouble: Trouble(rapid.IntRange(0, int(troubles)-1).Draw(t, "trouble")),
			Outcome: smtp.Outcome(rapid.IntRange(0, int(smtp.Error)).Draw(t, "outcome")),
			Reason:  smtp.Reason(rapid.IntRange(0, int(smtp.DNSFailed)).Draw(t, "reason")),
			Blame:   smtp.Blame(rapid.IntRange(0, int(smtp.BlameSource)).Draw(t, "blame")),
			Version: rapid.Uint32().Draw(t, "version"),
		}
	})
}

// causes draws no cause half the time, as most attempts have.
func causes() *rapid.Generator[Cause] {
	return rapid.Custom(func(t *rapid.T) Cause {
		if rapid.Bool().Draw(t, "nothing believed") {
			return Cause{}
		}
		return NewCause(Scope(rapid.IntRange(0, int(scopes)-1).Draw(t, "scope")),
			string(rapid.SliceOfN(rapid.Byte(), 0, WhyMax+9).Draw(t, "why")))
	})
}

func entries() *rapid.Generator[[]Entry] {
	return rapid.Custom(func(t *rapid.T) []Entry {
		list := make([]Entry, rapid.IntRange(0, 6).Draw(t, "entries"))
		for i := range list {
			c := Case{
				NoRoute: smtp.Reason(rapid.IntRange(0, int(smtp.DNSFailed)).Draw(t, "no route")),
				Hosts:   rapid.IntRange(0, 100).Draw(t, "hosts"), Omitted: rapid.IntRange(0, 1<<20).Draw(t, "omitted"),
				GaveUp: rapid.Bool().Draw(t, "gave up"),
				Why:    smtp.Reason(rapid.IntRange(0, int(smtp.DNSFailed)).Draw(t, "why")),
				Behaviour: AcceptBehaviour{Accepted: rapid.IntRange(0, 9).Draw(t, "accepted"),
					Refused: rapid.IntRange(0, 9).Draw(t, "refused")},
			}
			if c.Behaviour.Accepted+c.Behaviour.Refused > 0 {
				c.Behaviour.First, c.Behaviour.Last = noon, noon.Add(time.Minute)
				c.Behaviour.Controls = rapid.SliceOfN(attempts(), 1, ControlsMax).Draw(t, "controls")
			}
			if n := rapid.IntRange(0, AttemptsMax).Draw(t, "attempts"); n > 0 {
				c.Attempts = rapid.SliceOfN(attempts(), n, n).Draw(t, "attempt")
			}
			list[i] = Entry{Ordinal: rapid.Int64Range(0, 1<<40).Draw(t, "ordinal"), Case: c}
		}
		return list
	})
}

func unpackAll(packed []byte) ([]Entry, error) {
	list := []Entry{}
	err := Unpack(packed, func(e Entry) error {
		list = append(list, e)
		return nil
	})
	return list, err
}

// TestWhatIsPackedIsUnpacked: any cases come back as they were.
func TestWhatIsPackedIsUnpacked(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		list := entries().Draw(t, "list")
		packed := effort.Must(Pack(list))(t)
		got, err := unpackAll(packed)
		effort.FatalIf(t, err != nil || !reflect.DeepEqual(got, list), "%v\n got %+v\nwant %+v", err, got, list)
	})
}

// TestWhatIsTooLongIsCut: an engine never makes it, and a bound is kept all the same.
func TestWhatIsTooLongIsCut(t *testing.T) {
	long := strings.Repeat("x", 5000)
	one := Attempt{Host: long, Source: long, Rule: long, Text: long, Code: 550, Cause: Cause{ScopeReceiver, long}}
	c := Case{Hosts: 5000, Omitted: -1, Attempts: make([]Attempt, AttemptsMax+3)}
	for i := range c.Attempts {
		c.Attempts[i] = one
		c.Attempts[i].At = noon.Add(time.Duration(i) * time.Second)
	}
	packed := effort.Must(Pack([]Entry{{Case: c}}))(t)
	got, err := unpackAll(packed)
	effort.FatalIf(t, err != nil || len(got) != 1 || len(got[0].Case.Attempts) != AttemptsMax, "%v, %d", err, len(got))
	a := got[0].Case.Attempts[AttemptsMax-1]
	effort.ErrorIf(t, len(a.Host) != NameMax || len(a.Source) != NameMax || len(a.Rule) != NameMax ||
		len(a.Text) != TextMax || len(a.Cause.Why) != WhyMax || !a.At.Equal(noon.Add((AttemptsMax+2)*time.Second)) ||
		got[0].Case.Hosts != 255 || got[0].Case.Omitted != 0, "%+v", got[0].Case)
}

// TestSizeIsNoLessThanWhatIsPacked: cases whose Sizes stay within RawMax are never refused, even if all texts differ.
func TestSizeIsNoLessThanWhatIsPacked(t *testing.T) {
	var list []Entry
	size := 0
	for i := 0; ; i++ {
		c := Case{Attempts: make([]Attempt, 2)}
		for k := range c.Attempts {
			c.Attempts[k] = Attempt{At: noon, Host: fmt.Sprintf("mx%d.example", i), Code: 550, Rule: "generic",
				Text: fmt.Sprintf("%d %d %s", i, k, strings.Repeat("z", TextMax-40))}
		}
		if size += Size(&c); size > RawMax {
			break
		}
		list = append(list, Entry{Ordinal: int64(i), Case: c})
	}
	effort.Must(Pack(list))(t)
	for i := range list {
		list = append(list, list[i])
		for k := range list[len(list)-1].Case.Attempts {
			a := list[i].Case.Attempts[k]
			a.Text = "again " + a.Text
			list[len(list)-1].Case.Attempts = append([]Attempt{a}, list[len(list)-1].Case.Attempts...)
		}
	}
	effort.Denied(Pack(list))(t, ErrTooMuch, "twice the bound")
	effort.Denied(Pack(make([]Entry, EntriesMax)))(t, nil, EntriesMax, "cases")
	effort.Denied(Pack(make([]Entry, EntriesMax+1)))(t, ErrTooMuch, fmt.Sprintf("%d cases", EntriesMax+1))
}

// packedBefore was packed by a program that knew no causes.
const packedBefore = "0128b52ffd0400790200040a6d782e6578616d706c65093139322e302e322e3101720974727920616761696e01060900" +
	"000d0300010203c301040003000000070000000100000000000106000100000000010080a89f8dbf68e4065b5f"

// TestPacksWithoutCausesAreRead: old packs without causes are read. Cases without causes still give the same bytes.
func TestPacksWithoutCausesAreRead(t *testing.T) {
	old := effort.Must(hex.DecodeString(packedBefore))(t)
	want := []Entry{{Ordinal: 3, Case: Case{Hosts: 1, Attempts: []Attempt{{At: noon, Stage: smtp.StageRcpt, Host: "mx.example",
		Source: "192.0.2.1", TLS: true, Code: 451, Enhanced: smtp.EnhancedCode{4, 3, 0}, Text: "try again",
		Reason: smtp.Greylisted, Blame: smtp.BlameReceiver, Rule: "r", Version: 7, Others: true}}}}}
	effort.Same(t, effort.Must(unpackAll(old))(t), want)
	if packed, err := Pack(want); err != nil || !bytes.Equal(packed, old) {
		t.Errorf("%v: packed otherwise:\n got %x\nwant %x", err, packed, old)
	}
	want[0].Case.Attempts[0].Cause = Cause{scopes, "of a newer program"}
	packed := effort.Must(Pack(want))(t)
	effort.Denied(unpackAll(packed))(t, ErrPacked, "a scope that nobody knows")
}

func TestUnpackStopsWhenToldTo(t *testing.T) {
	packed := effort.Must(Pack(make([]Entry, 3)))(t)
	stop, n := errors.New("enough"), 0
	err := Unpack(packed, func(Entry) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	effort.ErrIs(t, err, stop)
	effort.Is(t, n, 2)
}

func TestWhatIsNotPackedIsRefused(t *testing.T) {
	packed := effort.Must(Pack([]Entry{{Ordinal: 3, Case: Case{Attempts: []Attempt{{Code: 250, Host: "mx"}}}}}))(t)
	bad := [][]byte{nil, {0}, {packVersion}, []byte("packed"), append(bytes.Clone(packed), 'x'),
		append([]byte{packVersion + 1}, packed[1:]...), packed[:len(packed)-1], make([]byte, PackedMax+1)}
	for i, b := range bad {
		effort.Denied(unpackAll(b))(t, ErrPacked, i)
	}
}

func FuzzUnpack(f *testing.F) {
	for seed := range 20 {
		packed := effort.Must(Pack(entries().Example(seed)))(f)
		raw := effort.Must(decoder.DecodeAll(packed[1:], nil))(f)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := unpackAll(encoder.EncodeAll(raw, []byte{packVersion}))
		if err != nil {
			return
		}
		packed, err := Pack(list)
		if errors.Is(err, ErrTooMuch) {
			return // it was written more thriftily than we do
		}
		again, err2 := unpackAll(packed)
		effort.ErrorIf(t, err != nil || err2 != nil || !reflect.DeepEqual(list, again),
			"%v, %v\n got %+v\nwant %+v", err, err2, again, list)
	})
}

func TestTimes(t *testing.T) {
	for _, want := range []time.Time{{}, time.UnixMilli(1).UTC(), time.Date(2030, 1, 2, 3, 4, 5, 6e6, time.UTC)} {
		got := TimeOf(Millis(want))
		effort.ErrorIf(t, !got.Equal(want) || got.IsZero() != want.IsZero(), "got %v, want %v", got, want)
	}
}
