package throttle

import (
	"fmt"
	"time"
)

// Layer is the origin of a rule. A later layer goes before an earlier one about the same name.
type Layer uint8

// The layers, the weakest first. The last two are no part of a Table: a receiver's actor adds what it learned from
// answers, and present penalties.
const (
	LayerDefault  Layer = iota + 1 // DefaultLimits
	LayerKnown                     // what the program knows of operators (Known)
	LayerFile                      // configuration and throttle file
	LayerOverride                  // an operator's, for a time
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
	// Name is a receiver key, an MX host suffix or a mail domain, whatever it is found as;
	// "" is everybody, "source:" and an address one of our sources, and "source:" alone the
	// source whose address the system chooses.
	Name string
	Set  Override
	// Where has the place of each field, such as "throttle.toml:12". The entry of the zero Field is for fields without
	// one. May be nil.
	Where map[Field]string

	// Of an override only.
	ID             string
	Author, Reason string
	Until          time.Time
}

// Origin is where a field's value comes from.
type Origin struct {
	Layer Layer
	Name  string // the rule's; "" is everybody
	Where string // file and line; where a published value was found, and when
	// Of an override only.
	ID, Author, Reason string
	Until              time.Time
}

// WhereOf returns where a field was written; "": unknown.
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
	Text string // as Override.Text
	Origin
}

// Explained is a field of an allowance, with the values that rules give it.
type Explained struct {
	Field Field
	Text  string // the value that holds
	Said  []Said // at least one; the last one holds
}
