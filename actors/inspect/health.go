package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"rollcall/smtp/throttle"
)

// Health is what one node found of its identity: what receivers hold against a sender.
type Health struct {
	Node     string          `json:"node"`
	This     bool            `json:"this,omitempty"` // it is the node that was asked
	Known    bool            `json:"known"`          // it checks its identity; without that the rest says nothing
	Probing  bool            `json:"probing"`        // it takes probing work now
	Enforced bool            `json:"enforced"`       // it probes only while no check fails
	Why      string          `json:"why,omitempty"`  // a check fails, in one line
	Checked  time.Time       `json:"checked_at,omitzero"`
	Findings []HealthFinding `json:"findings,omitempty"`       // those that are to be seen to first
	More     int             `json:"more,omitempty"`           // findings that were left out
	Unread   int             `json:"unread_replies,omitempty"` // that no rule knew, since the node began
	Foreign  int             `json:"intercepted,omitempty"`    // times that somebody else answered in place of a receiver
}

// HealthFinding is what one check found at one source.
type HealthFinding struct {
	Check  string `json:"check"`
	Source string `json:"source,omitempty"` // "": it is the same for all, or the source has no address
	List   string `json:"list,omitempty"`   // the block list that was asked
	State  string `json:"state"`            // "fail", "warn", "ok" or "skipped"
	Saw    string `json:"saw"`
	Next   string `json:"next,omitempty"` // what to do
}

const (
	// findingsMax bounds the findings in one answer: more than a node with 50 sources and five block lists has. Guess.
	findingsMax = 500

	// sawMax bounds what a check saw, and what to do, in runes: texts of DNS may be long.
	sawMax = 300
)

// findingOrder is the order in which findings are told: what has to be seen to comes first.
var findingOrder = []string{"fail", "warn", "skipped", "ok"}

var healthQuery = Query[none, Health]{"health", func(i *Inspector, _ context.Context, _ none) (Health, error) {
	return i.ownHealth(), nil
}}

// ownHealth says what this node found of its identity.
func (i *Inspector) ownHealth() Health {
	if i.options.Health == nil {
		return Health{}
	}
	h := i.options.Health()
	h.Findings = slices.Clone(h.Findings)
	slices.SortStableFunc(h.Findings, func(a, b HealthFinding) int {
		return cmp.Compare(slices.Index(findingOrder, a.State), slices.Index(findingOrder, b.State))
	})
	if n := len(h.Findings); n > findingsMax {
		h.Findings, h.More = h.Findings[:findingsMax], h.More+n-findingsMax
	}
	h.Why = clip(h.Why)
	for n := range h.Findings {
		h.Findings[n].Saw, h.Findings[n].Next = clip(h.Findings[n].Saw), clip(h.Findings[n].Next)
	}
	return h
}

// clip cuts a text that is too long.
func clip(text string) string {
	if all := []rune(text); len(all) > sawMax {
		return string(all[:sawMax]) + "…"
	}
	return text
}

// Health says what every node found of its identity: this node first, then those that take no probing work, then by
// name. The second value names those that do not answer.
func (i *Inspector) Health(ctx context.Context) ([]Health, []UnreachableNode, error) {
	all, err := healthQuery.askAll(ctx, i, none{})
	if err != nil {
		return nil, nil, err
	}
	out := []Health{}
	for _, r := range all {
		if r.err == nil {
			r.value.Node, r.value.This = r.node, r.node == i.name()
			out = append(out, r.value)
		}
	}
	slices.SortStableFunc(out, func(a, b Health) int {
		return cmp.Or(first(b.This)-first(a.This), first(b.Known && !b.Probing)-first(a.Known && !a.Probing),
			cmp.Compare(a.Node, b.Node))
	})
	return out, silent(all), nil
}

// first is 1 for what comes first.
func first(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// fileNow is how the throttle file of a node stands.
type fileNow struct {
	Hash  string `json:"hash"` // of the rules of it that hold
	Fault string `json:"fault,omitempty"`
}

var fileQuery = Query[none, fileNow]{"file", func(i *Inspector, _ context.Context, _ none) (fileNow, error) {
	return i.ownFile(), nil
}}

// ownFile says how this node's throttle file stands.
func (i *Inspector) ownFile() fileNow {
	f := fileNow{Hash: throttle.Fingerprint(i.options.Table.Rules(throttle.LayerFile))}
	if i.options.Fault != nil {
		f.Fault = i.options.Fault()
	}
	return f
}

// Files names the nodes with another throttle file than this node, and those whose file cannot be used.
func (i *Inspector) Files(ctx context.Context) ([]OtherFile, []UnreachableNode, error) {
	all, err := fileQuery.askAll(ctx, i, none{})
	if err != nil {
		return nil, nil, err
	}
	own := i.ownFile()
	var out []OtherFile
	for _, r := range all {
		differs := r.value.Hash != own.Hash
		if r.err == nil && (differs || r.value.Fault != "" && r.node != i.name()) {
			out = append(out, OtherFile{Node: r.node, Differs: differs, Fault: r.value.Fault})
		}
	}
	return out, silent(all), nil
}
