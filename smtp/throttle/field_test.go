package throttle

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/config/effort"
)

func TestSetAndText(t *testing.T) {
	for _, tc := range []struct {
		field Field
		good  []string // "as written" or "as written=as shown"
		bad   []string // "as written: what the error says"
	}{
		{FieldConnections, []string{"1", "10000", " 7 =7"},
			[]string{"0: from 1 to 10000", "10001: from 1 to 10000", "-1: whole number", "1.5: whole number",
				": whole"}},
		{FieldConnectionRate, []string{"30/min", "1/s"}, []string{"30: write it like", "0/s: events", "5/day: s, min"}},
		{FieldRcptRate, []string{"5/s", "1/2s"}, []string{"fast: write it like"}},
		{FieldRcptsPerConnection, []string{"1", "1000000"}, []string{"0: from 1", "1000001: to 1000000"}},
		{FieldRcptsPerTransaction, []string{"1", "1000000"}, []string{"0: from 1", "1000001: to 1000000"}},
		{FieldRefusedPerSession, []string{"1", "1000000"}, []string{"0: from 1", "1000001: to 1000000"}},
		{FieldRefusedPerHour, []string{"1", "1000000"}, []string{"0: from 1", "1000001: to 1000000"}},
		{FieldRefusedShare, []string{"0", "90"}, []string{"-1: from 0 to 90", "91: from 0 to 90", "5%: whole number"}},
		{FieldPipelining, []string{"true", "false"}, []string{"yes: true or false", "1: true or false"}},
		{FieldPipeliningDepth, []string{"1", "1000000"}, []string{"0: from 1", "1000001: to 1000000"}},
		{FieldSessionAge, []string{"1s", "1h", "90s=1m30s", "60m=1h"},
			[]string{"999ms: from 1s to 1h", "1h1s: from 1s to 1h", "5: length of time"}},
		{FieldIdleTime, []string{"100ms", "5m"}, []string{"99ms: from 100ms to 5m", "5m1s: from 100ms to 5m"}},
		{FieldTLS, []string{"opportunistic", "required", "off"}, []string{"on: one of required, opportunistic, off"}},
		{FieldFamily, []string{"any", "ipv4", "ipv6"}, []string{"inet: one of any, ipv4, ipv6"}},
		{FieldWaits, []string{"none", "=none", "5m", "1s,24h", "5m, 10m=5m,10m", "1m,2m,3m,4m,5m,6m,7m,8m"},
			[]string{"999ms: from 1s to 24h", "25h: from 1s to 24h", "5m,,1h: commas", "5m,x: commas",
				"1m,2m,3m,4m,5m,6m,7m,8m,9m: at most 8", "none,5m: commas"}},
		{FieldPause, []string{"no", "drain", "yes"}, []string{"true: one of yes, drain, no"}},
		{FieldRcptsPerDay, []string{"0", "1000000"}, []string{"-1: from 0", "1000001: to 1000000"}},
		{FieldWarmUpFrom, []string{"none", "=none", "2026-11-21"}, []string{"21.11.2026: a day such as 2026-11-21",
			"2026-02-30: a day"}},
	} {
		for _, text := range tc.good {
			written, shown, other := strings.Cut(text, "=")
			if !other {
				shown = written
			}
			var a Limits
			if err := a.Set(tc.field, written); err != nil || a.Text(tc.field) != shown {
				t.Errorf("%s = %q: %q and %v, want %q", tc.field, written, a.Text(tc.field), err, shown)
			}
		}
		for _, text := range tc.bad {
			written, says, _ := strings.Cut(text, ": ")
			if written == text {
				written, says = "", strings.TrimPrefix(text, ": ")
			}
			a := DefaultLimits()
			err := a.Set(tc.field, written)
			if !errors.Is(err, ErrLimits) || !strings.Contains(err.Error(), tc.field.String()+": ") ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("%s = %q: %v, want what says %q", tc.field, written, err, says)
			}
			effort.Is(t, a, DefaultLimits(), tc.field, "=", written, "changes something")
		}
	}
}

// TestEveryFieldIsItsOwn: a field that is set reads back the same, changes no other field, and is applied alone.
func TestEveryFieldIsItsOwn(t *testing.T) {
	texts := map[Field]string{FieldConnections: "17", FieldConnectionRate: "17/h", FieldRcptRate: "17/min",
		FieldRcptsPerConnection: "17", FieldRcptsPerTransaction: "17", FieldRefusedPerSession: "17",
		FieldRefusedPerHour: "17", FieldRefusedShare: "17", FieldPipelining: "false", FieldPipeliningDepth: "17",
		FieldSessionAge: "17s", FieldIdleTime: "17s", FieldTLS: "off", FieldFamily: "ipv6", FieldWaits: "17s,1h",
		FieldPause: "drain", FieldRcptsPerDay: "17", FieldWarmUpFrom: "2026-11-17"}
	for _, f := range Fields() {
		var o Override
		effort.OK(t, o.Set(f, texts[f]))
		a := o.Apply(DefaultLimits())
		for _, other := range Fields() {
			if same := a.Text(other) == DefaultLimits().Text(other); same == (other == f) {
				t.Errorf("%s set: %s is %s", f, other, a.Text(other))
			}
		}
		if again, err := ParseOverride(o.Texts()); err != nil || again != o {
			t.Errorf("%s: %v comes back as %v, %v", f, o.Texts(), again.Texts(), err)
		}
		if parsed, found := ParseField(f.String()); !found || parsed != f || !f.isOf(SourcePrefix) && !f.isOf("") {
			t.Errorf("%s is read as %s", f, parsed)
		}
	}
	if _, err := ParseOverride(map[string]string{"conections": "1"}); !errors.Is(err, ErrLimits) ||
		!strings.Contains(err.Error(), "the fields are [connections") {
		t.Errorf("an unknown field: %v", err)
	}
	effort.Is(t, Field(99).String(), "field(99)", "no field is called")
}

func TestMore(t *testing.T) {
	for _, tc := range []struct {
		field      Field
		more, less string
	}{
		{FieldConnections, "3", "2"}, {FieldRcptRate, "5/s", "60/min"}, {FieldConnectionRate, "61/min", "1/s"},
		{FieldRefusedShare, "1", "0"}, {FieldPipelining, "true", "false"}, {FieldIdleTime, "2s", "1s"},
		{FieldSessionAge, "1h", "1m"}, {FieldRcptsPerDay, "500", "50"}, {FieldRcptsPerDay, "0", "50"},
		{FieldTLS, "opportunistic", "required"}, {FieldTLS, "off", "required"}, {FieldTLS, "off", "opportunistic"},
		{FieldPause, "no", "drain"}, {FieldPause, "drain", "yes"},
	} {
		var more, less Limits
		effort.OK(t, errors.Join(more.Set(tc.field, tc.more), less.Set(tc.field, tc.less)))
		if !more.More(less, tc.field) || less.More(more, tc.field) || more.More(more, tc.field) {
			t.Errorf("%s: %s is not more than %s", tc.field, tc.more, tc.less)
		}
	}
	a, b := DefaultLimits(), DefaultLimits()
	a.Family, b.Waits[0] = FamilyV4, time.Minute
	for _, f := range []Field{FieldFamily, FieldWaits, FieldWarmUpFrom} {
		if a.More(b, f) || b.More(a, f) {
			t.Errorf("%s: more has no meaning", f)
		}
	}
}

// TestOverridesStack: of several overrides the last that has a field sets it.
func TestOverridesStack(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		a, want := DefaultLimits(), DefaultLimits()
		for range rapid.IntRange(0, 4).Draw(t, "overrides") {
			var o Override
			for _, f := range []Field{FieldConnections, FieldRcptsPerConnection, FieldPipeliningDepth} {
				if !rapid.Bool().Draw(t, "set") {
					continue
				}
				text := rapid.SampledFrom([]string{"1", "5", "9000"}).Draw(t, "value")
				effort.OK(t, errors.Join(o.Set(f, text), want.Set(f, text)))
			}
			a = o.Apply(a)
		}
		effort.MustBe(t, a, want)
	})
}
