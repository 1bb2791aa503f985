package evidence

import "time"

// A domain accepts every address if ControlsEnough made-up mailboxes were accepted, and none was refused (CatchAll).
// actors/domain/controls.go asks the made-up ones, and harvest_guard.go there says when acceptances prove nothing.
// actors/facts keeps the result for other files. smtp/verdict/conclude.go makes an acceptance valid or catch_all.

const (
	// ControlsMax bounds the control probes that a Case shows.
	ControlsMax = 8

	// WitnessWithin is how soon after an ambiguous refusal another address must be accepted to be its witness.
	// Guess: long enough to ask for one more, and shorter than filters usually block a source.
	WitnessWithin = 20 * time.Second

	// ControlsEnough is how many control probes must be accepted, and none refused, before the domain counts as
	// accepting every address.
	ControlsEnough = 3
)

// AcceptBehaviour is the evidence whether a domain's receiver tells existing mailboxes from missing ones before
// delivery.
type AcceptBehaviour struct {
	// Accepted and Refused count the answered control probes, from all nodes and customers. Unclear answers count in
	// neither.
	Accepted, Refused int
	First, Last       time.Time // of these answers

	// Controls are the control probes of this run, oldest first, at most ControlsMax. Their attempts name no
	// address. Witnesses are also in this list: they are accepted addresses, and count in neither number.
	Controls []Attempt
}

// Witnessed reports whether another address of the domain was accepted soon after an attempt, at the same host and
// from the same source. Then the attempt was not refused because of us.
func (h *AcceptBehaviour) Witnessed(a *Attempt) bool {
	for i := range h.Controls {
		w := &h.Controls[i]
		if after := w.At.Sub(a.At); w.Witness && w.Code/100 == 2 && !w.Void && w.Host == a.Host && w.Source == a.Source &&
			after >= 0 && after <= WitnessWithin {
			return true
		}
	}
	return false
}

// CatchAll reports whether the domain accepts every address; known is false while that is unclear. One refusal of a
// mailbox that cannot exist shows that the receiver tells mailboxes apart. The opposite takes ControlsEnough
// acceptances and no refusal.
func (h AcceptBehaviour) CatchAll() (catchAll, known bool) {
	known = h.Refused > 0 || h.Accepted >= ControlsEnough
	return known && h.Refused == 0, known
}
