package ledger

import (
	"fmt"
	"slices"
)

// CreditsRequired is the issue code of a verification that waits for credits.
const CreditsRequired = "credits_required"

// ReceiversWait is the issue code of a verification that waits for receivers, if the cause is known.
const ReceiversWait = "receivers_wait"

// The issue codes that the ledger sets itself.
const (
	UploadExpired  = "upload_expired"  // bytes were missing when the upload expired
	FundingExpired = "funding_expired" // nobody added credits in time
	InternalError  = "internal_error"  // the program failed on it repeatedly
)

// State is a status that distinguishes the two kinds of waiting.
type State string

// States that are not a status: New is before creation.
const (
	New              State = ""
	WaitingCredits   State = "waiting_credits"
	WaitingReceivers State = "waiting_receivers"
)

// State returns the status, with the two kinds of waiting distinguished.
func (v *Verification) State() State {
	switch {
	case v.Status != Waiting:
		return State(v.Status)
	case v.Issue != nil && v.Issue.Code == CreditsRequired:
		return WaitingCredits
	}
	return WaitingReceivers
}

// edges are the only legal steps of a verification.
var edges = map[State][]State{
	New:              {State(Uploading)},
	State(Uploading): {State(Preparing), State(Cancelled), State(Failed)},
	State(Preparing): {State(Verifying), WaitingCredits, State(Failed), State(Cancelled)},
	WaitingCredits:   {State(Verifying), State(Cancelled), State(Failed)},
	State(Verifying): {WaitingReceivers, State(Completed), State(CompletedWithErrors), State(Cancelled),
		State(Cancelling), State(Failed)},
	WaitingReceivers: {State(Verifying), State(Completed), State(CompletedWithErrors), State(Cancelled),
		State(Cancelling), State(Failed)},
	State(Cancelling): {State(Cancelled)},
}

// known reports whether s is one of the nine statuses.
func (s Status) known() bool {
	switch s {
	case Uploading, Preparing, Verifying, Waiting, Cancelling:
		return true
	}
	return s.Final()
}

// Step checks whether a verification may go from one state to another; staying is always allowed. ErrIllegal.
func Step(from, to State) error {
	if from == to || slices.Contains(edges[from], to) {
		return nil
	}
	return fmt.Errorf("from %q to %q: %w", from, to, ErrIllegal)
}

// Last returns the final status of a verification with all addresses settled.
func (v *Verification) Last() Status {
	switch {
	case v.Status == Cancelling:
		return Cancelled
	case v.Counts.Error > 0:
		return CompletedWithErrors
	}
	return Completed
}

// Runnable reports whether a node can work on a verification in state s.
func (s State) Runnable() bool {
	return s == State(Preparing) || s == State(Verifying) || s == WaitingReceivers || s == State(Cancelling)
}

// Funded reports whether a verification in state s holds the credits of its remaining addresses.
func (s State) Funded() bool {
	return s == State(Verifying) || s == WaitingReceivers || s == State(Cancelling)
}

// Measured reports whether intake has read a verification in state s; open: unknown.
func (s State) Measured() (measured, open bool) {
	switch s {
	case New, State(Uploading), State(Preparing):
		return false, false
	case State(Cancelled), State(Failed):
		return false, true
	}
	return true, false
}

// Left returns the number of addresses that are not settled; 0 before intake is done.
func (v *Verification) Left() int64 {
	if v.Total < 0 {
		return 0
	}
	return v.Total - v.Counts.Sum()
}
