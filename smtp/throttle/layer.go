package throttle

import (
	"fmt"
	"time"
)

// Layer says where a rule comes from. For the same name a later layer wins over an earlier one.
type Layer uint8

// The layers, the weakest first. A Table doesn't have the last two layers: the actor of a receiver adds what it learned
// and its penalties.
const (
	LayerDefault  Layer = iota + 1 // DefaultLimits
	LayerKnown                     // what the program knows of operators (Known)
	LayerFile                      // the configuration file and the throttle file
	LayerOverride                  // set by an operator, for a time
	LayerLearned
	LayerPenalty
)

// String is the layer as people are shown it.
func (l Layer) String() string {
	if l < LayerDefault || l > LayerPenalty {
		return fmt.Sprintf("layer(%d)", uint8(l))
	}
	return [...]string{"default", "known", "file", "override", "learned", "penalty"}[l-LayerDefault]
}

// Rule holds the fields that one layer sets for one name.
type Rule struct {
	// Name is a receiver key, a suffix of MX hosts or a mail domain: the same name matches all three. "" is every
	// receiver. "source:" and an address is one of our sources, and "source:" alone is the source whose address the system
	// chooses.
	Name string
	Set  Override
	// Where has the place of each field, such as "throttle.toml:12". Its entry for the zero Field is the place of all
	// fields without their own entry. May be nil.
	Where map[Field]string

	// The next fields are set for an override only.
	ID             string
	Author, Reason string
	Until          time.Time
}

// Origin says where the value of a field comes from.
type Origin struct {
	Layer Layer
	Name  string // name of the rule; "" is every receiver
	Where string // file and line, or the publication with its date
	// The next fields are set for an override only.
	ID, Author, Reason string
	Until              time.Time
}

// WhereOf returns where a field was written; "": not known.
func (r *Rule) WhereOf(f Field) string {
	if where, own := r.Where[f]; own {
		return where
	}
	return r.Where[0]
}

// origin returns where a rule's field comes from.
func (r *Rule) origin(l Layer, f Field) Origin {
	return Origin{Layer: l, Name: r.Name, Where: r.WhereOf(f),
		ID: r.ID, Author: r.Author, Reason: r.Reason, Until: r.Until}
}

// Said is the value that one rule gives a field.
type Said struct {
	Text string // the value as Override.Text writes it
	Origin
}

// Explained is a field of Limits, with the values that rules give it.
type Explained struct {
	Field Field
	Text  string // the value in force
	Said  []Said // at least one value; the last one is in force
}
