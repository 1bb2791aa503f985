package throttle

import (
	"fmt"
	"maps"
	"slices"
)

// Override is a part of Limits: the fields that an operator or a rule has set. The zero value sets no field. Overrides
// can be compared with ==.
type Override struct {
	has    uint32 // a bit for each Field
	values Limits
}

// Set sets a field, as Limits.Set reads it.
func (o *Override) Set(f Field, text string) error {
	if err := o.values.Set(f, text); err != nil {
		return err
	}
	o.has |= 1 << f
	return nil
}

// Has reports whether a field is set.
func (o Override) Has(f Field) bool { return o.has&(1<<f) != 0 }

// Text is a field as people write it; "" when it is not set.
func (o Override) Text(f Field) string {
	if !o.Has(f) {
		return ""
	}
	return o.values.Text(f)
}

// Fields returns the fields that are set.
func (o Override) Fields() []Field {
	return slices.DeleteFunc(Fields(), func(f Field) bool { return !o.Has(f) })
}

// Texts returns the set values by field name, as ParseOverride reads them.
func (o Override) Texts() map[string]string {
	out := map[string]string{}
	for _, f := range o.Fields() {
		out[f.String()] = o.Text(f)
	}
	return out
}

// Apply returns a with the values that o sets.
func (o Override) Apply(a Limits) Limits {
	for rest, f := o.has, Field(0); rest != 0; rest, f = rest>>1, f+1 {
		if rest&1 != 0 {
			kinds[f].copy(&a, &o.values)
		}
	}
	return a
}

// ParseOverride reads fields by their names. Its error wraps ErrLimits and says what to write. If several fields are
// wrong, it names the first by name.
func ParseOverride(texts map[string]string) (Override, error) {
	var o Override
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		f, known := ParseField(name)
		if !known {
			return Override{}, fmt.Errorf("%w: there is no field %q; the fields are %v", ErrLimits, name, Fields())
		}
		if err := o.Set(f, texts[name]); err != nil {
			return Override{}, err
		}
	}
	return o, nil
}
