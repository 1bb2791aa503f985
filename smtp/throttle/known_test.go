package throttle

import (
	"testing"
	"time"

	"rollcall/config/effort"
)

func TestKnownOperators(t *testing.T) {
	named := map[string]bool{}
	for _, r := range knownRules() {
		if named[r.Name] {
			t.Errorf("%s is there twice", r.Name)
		}
		named[r.Name] = true
		for _, f := range r.Set.Fields() {
			effort.Has(t, r.origin(LayerKnown, f).Where, "2026-", r.Name, f, "has no source with a date")
			if f != FieldRefusedShare && r.Set.values.More(DefaultLimits(), f) {
				t.Errorf("%s: %s is more than a stranger gets", r.Name, f)
			}
		}
		effort.Is(t, effort.Must(overrideName(r.Name))(t), r.Name)
		effort.ErrIs(t, r.Set.Apply(DefaultLimits()).Validate(), nil, r.Name)
	}
	table := tableOf(t, "google.com: connections=10")
	for _, c := range []struct {
		name, receiver, domain string
		hosts                  []string
		key                    string
		connections, share     int
	}{
		{"what is configured goes before what is known, field by field", "google.com", "acme.example",
			[]string{"aspmx.l.google.com"}, "google.com", 10, 30},
		{"a part of an operator has its own pacer", "outlook.com", "outlook.com",
			[]string{"outlook-com.olc.protection.outlook.com"}, "suffix:olc.protection.outlook.com", 2, 20},
		{"and so has the other", "outlook.com", "acme.example",
			[]string{"acme-example.mail.protection.outlook.com"}, "suffix:mail.protection.outlook.com", 2, 30},
		{"one strange host makes a stranger", "outlook.com", "acme.example",
			[]string{"acme.mail.protection.outlook.com", "mx.acme.example"}, "outlook.com", 2, 0},
		{"a stranger", "acme.example", "acme.example", []string{"mx.acme.example"}, "acme.example", 2, 0},
	} {
		key, a := table.Match(c.receiver, c.hosts, c.domain)
		if key != c.key || a.Connections != c.connections || a.RefusedShare != c.share || a != table.For(key) {
			t.Errorf("%s: %s %+v", c.name, key, a)
		}
	}
}

// TestHomesOfKnownOperators: the mail domains lead to operators that are known.
func TestHomesOfKnownOperators(t *testing.T) {
	table := tableOf(t)
	for domain, suffix := range homes {
		if _, err := CleanName(domain); err != nil || len(table.layers.Load().named[suffix]) == 0 {
			t.Errorf("%s of %s: %v", domain, suffix, err)
		}
	}
}

// TestAShareOfRefusals: beyond the number of an hour, refusals are permitted while
// they are no more than the share; without a share, never.
func TestAShareOfRefusals(t *testing.T) {
	for _, c := range []struct{ share, accepted, want int }{
		{0, 0, 20}, {0, 1000, 20}, {30, 0, 20}, {30, 46, 20}, {30, 49, 21}, {30, 700, 300}, {ShareMax, 10, 90},
	} {
		b, now := NewBudget(20, c.share, 0), start
		b.Begin(c.accepted)
		for range c.accepted {
			b.Accepted(now)
		}
		refused := 0
		for n, _ := b.Ready(now.Add(time.Second)); n > 0; n, _ = b.Ready(now.Add(time.Second)) {
			b.Begin(n)
			for range n {
				b.Refused(now.Add(time.Second))
			}
			refused += n
		}
		if refused != c.want {
			t.Errorf("%d %% with %d accepted: %d refused, want %d", c.share, c.accepted, refused, c.want)
		}
	}
	a := DefaultLimits()
	for _, share := range []int{-1, ShareMax + 1} {
		if a.RefusedShare = share; a.Validate() == nil {
			t.Errorf("a share of %d is taken", share)
		}
	}
}
