package ledgertest

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"time"

	"rollcall/ledger"
)

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
	got, err := d.Known(d.T.Context(), keys)
	d.ok(err)
	byKey := map[string]ledger.Fact{}
	for _, f := range got {
		byKey[f.Key] = f
	}
	wanted := map[string]ledger.Fact{}
	for _, f := range want {
		wanted[f.Key] = f
	}
	if len(got) != len(want) || !reflect.DeepEqual(byKey, wanted) {
		d.T.Errorf("known of %q: got %+v, want %+v", keys, got, want)
	}
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
	_, err := d.Known(d.T.Context(), keys)
	d.refused(err, ledger.ErrIllegal)
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
		if err := d.Learn(d.T.Context(), []ledger.Fact{good, bad}); err == nil {
			d.T.Errorf("%s: accepted", name)
		} else {
			d.refused(err, ledger.ErrIllegal)
		}
		d.knows([]string{good.Key})
	}
	d.knows([]string{"a\x00", "a\xe2\x82", ""}) // asked for, they are not there
	longest := ledger.Fact{Key: strings.Repeat("k", ledger.FactKeyBytesMax),
		Data: bytes.Repeat([]byte{1}, ledger.FactBytesMax), Expires: inAnHour()}
	d.ok(d.Learn(d.T.Context(), []ledger.Fact{longest}))
	d.knows([]string{longest.Key}, longest)
}
