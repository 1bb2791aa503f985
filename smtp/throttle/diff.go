package throttle

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Change is a field of a rule whose value has changed.
type Change struct {
	Name     string // name of the rule; "" is every receiver
	Field    Field
	Old, New string // values as Override.Text writes them; "": not set
	Where    string // the place of the new value, or of the old one if there is no new one
}

// Fingerprint returns 64 hexadecimal digits. The digits are equal for rules with the same meaning, wherever these are
// written, and differ otherwise. Names have to be clean.
func Fingerprint(rules []Rule) string {
	sorted := slices.Clone(rules)
	slices.SortStableFunc(sorted, func(a, b Rule) int { return cmp.Compare(a.Name, b.Name) })
	sum := sha256.New()
	for _, r := range sorted {
		for _, f := range r.Set.Fields() {
			fmt.Fprintf(sum, "%q %s %q\n", r.Name, f, r.Set.Text(f))
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// spoken identifies a field of a rule's name.
type spoken struct {
	name  string
	field Field
}

// Diff returns the changes between two states of one layer, by name and then by field. Names have to be clean.
func Diff(before, after []Rule) []Change {
	was, is := last(before), last(after)
	var out []Change
	for at, now := range is {
		old, there := was[at]
		if there && old.Set.Text(at.field) == now.Set.Text(at.field) {
			continue
		}
		c := Change{Name: at.name, Field: at.field, New: now.Set.Text(at.field),
			Where: now.WhereOf(at.field)}
		if there {
			c.Old = old.Set.Text(at.field)
		}
		out = append(out, c)
	}
	for at, old := range was {
		if _, there := is[at]; !there {
			out = append(out, Change{Name: at.name, Field: at.field, Old: old.Set.Text(at.field),
				Where: old.WhereOf(at.field)})
		}
	}
	slices.SortFunc(out, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Field, b.Field))
	})
	return out
}

// last returns, for each name, the rule of one layer that wins for each field.
func last(rules []Rule) map[spoken]*Rule {
	out := map[spoken]*Rule{}
	for i := range rules {
		for _, f := range rules[i].Set.Fields() {
			out[spoken{rules[i].Name, f}] = &rules[i]
		}
	}
	return out
}
