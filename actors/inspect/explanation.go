package inspect

import "time"

// Explanation says what holds for a mail domain, a key or one of our sources, and who said so.
type Explanation struct {
	Domain string           `json:"domain,omitempty"` // that was asked about; "": it was a key
	Hosts  []string         `json:"hosts,omitempty"`  // of its MX, in the order to try
	Key    string           `json:"key"`              // of the receiver
	Fields []ExplainedField `json:"fields"`
	// Keys that speak to the same operator with an allowance of their own.
	Beside   []string          `json:"beside,omitempty"`
	Narrower []string          `json:"narrower,omitempty"` // names below this one with rules that go before its own
	Receiver []Receiver        `json:"receiver,omitempty"` // as it is now, where it lives
	Notes    []string          `json:"notes,omitempty"`    // what else there is to know, in sentences
	Others   []OtherFile       `json:"others,omitempty"`   // nodes that may ask by other rules
	Silent   []UnreachableNode `json:"silent,omitempty"`
}

// OtherFile is a node with another throttle file than the node that was asked, or with one that cannot be used.
type OtherFile struct {
	Node    string `json:"node"`
	Differs bool   `json:"differs"`         // the rules that hold there are others
	Fault   string `json:"fault,omitempty"` // why its file, as it is now, is not used
}

// ExplainedField is a field, its value, and who has set it.
type ExplainedField struct {
	Field string `json:"field"`
	Value string `json:"value"`
	Said
	Beaten []SaidValue `json:"beaten,omitempty"` // what others said, the strongest first
}

// Said is who said something about a field.
type Said struct {
	Layer  string    `json:"layer"`        // of throttle.Layer
	Name   string    `json:"name"`         // the rule's; "": everybody
	Where  string    `json:"where"`        // file and line; where a published value was found
	ID     string    `json:"id,omitempty"` // of an override
	Author string    `json:"author,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

// SaidValue is a value that somebody set.
type SaidValue struct {
	Value string `json:"value"`
	Said
}
