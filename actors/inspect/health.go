package inspect

import "time"

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
