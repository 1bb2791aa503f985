package throttle

import (
	"fmt"
	"time"
)

// Layer is who says something about an allowance. A later layer goes before an earlier
// one that speaks of the same name.
type Layer uint8

// The layers, the weakest first. The last two are no part of a Table: a receiver's actor
// adds what it learned from the receiver's answers, and what it is paying for.
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
	switch l {
	case LayerDefault:
		return "default"
	case LayerKnown:
		return "known"
	case LayerFile:
		return "file"
	case LayerOverride:
		return "override"
	case LayerLearned:
		return "learned"
	case LayerPenalty:
		return "penalty"
	}
	return fmt.Sprintf("layer(%d)", uint8(l))
}

// Rule is what one layer says of one name.
type Rule struct {
	// Name is a receiver key, an MX host suffix or a mail domain, whatever it is found as;
	// "" is everybody, "source:" and an address one of our sources, and "source:" alone the
	// source whose address the system chooses.
	Name string
	Set  Override
	// Where says where each field was written, as "throttle.toml:12"; "" under the zero
	// Field is for all others. May be nil.
	Where map[Field]string

	// Of an override only.
	ID             string
	Author, Reason string
	Until          time.Time
}

// Origin is where the value of a field comes from.
type Origin struct {
	Layer Layer
	Name  string // the rule's; "" is everybody
	Where string // file and line; where a published value was found, and when
	// Of an override only.
	ID, Author, Reason string
	Until              time.Time
}

// WhereOf says where a field was written; "": nobody knows.
func (r *Rule) WhereOf(f Field) string {
	if where, own := r.Where[f]; own {
		return where
	}
	return r.Where[0]
}

// origin is where a rule's field comes from.
func (r *Rule) origin(l Layer, f Field) Origin {
	return Origin{Layer: l, Name: r.Name, Where: r.WhereOf(f),
		ID: r.ID, Author: r.Author, Reason: r.Reason, Until: r.Until}
}

// Said is what one rule says of a field.
type Said struct {
	Text string // as Override.Text
	Origin
}

// Explained is a field of an allowance and who has said what about it.
type Explained struct {
	Field Field
	Text  string // the value that holds
	Said  []Said // at least one, the one that holds last
}
