package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/smtp"
)

const (
	// RecentMax bounds one page of RecentResults. Guess: more than a screen.
	RecentMax = 200

	// RecentLooked bounds the settlements in which one call of RecentResults looks for a text or a reason.
	RecentLooked = 200

	// RecentPassed bounds the settlements that one call of RecentResults passes over by their counts.
	RecentPassed = 5000

	// WorstDomains bounds the domains of a Breakdown.
	WorstDomains = 20

	// BreakdownDomains bounds the domains that a Breakdown counts at a time. Of a file with more of them some counts
	// may be too low. Guess: some 5 MB.
	BreakdownDomains = 10_000

	// StatementMax bounds the moves of one page of a statement.
	StatementMax = 200

	// StatementDays is how many days a statement tells of, today among them.
	StatementDays = 90

	// Day is the length of a day of a statement. Days begin at 00:00 UTC.
	Day = 24 * time.Hour
)

// Pages is the part that the pages need beside what the API needs.
type Pages interface {
	// CreateSingle makes a verification of one address: its kind is Single, its file has the address as its one record,
	// and its status is Preparing, as that of an upload that is complete. All of it is one transaction. From then on it
	// is like any other file: intake, hold, credits, retention and limits. The same Identity and Address again answer what
	// is there. An error that wraps smtp.ErrMalformed, and tells the cause in words that may be shown, for what is no
	// address; ErrIdentityReused for an Identity that was used with another address or for a file; ErrTooManyOpen,
	// ErrTooManyBytes, ErrTooManyUnpaid (in a Later) and ErrNoRoom as for Create. Who is noted as its maker is told by WithActor.
	CreateSingle(ctx context.Context, c CreateSingle) (Verification, error)

	// RecentResults gives one page of the outcomes of a verification, newest first, while it runs and afterwards. A page
	// may be shorter than its limit, and empty, and go on all the same: Next says so. ErrNoSuchVerification also for
	// those of other workspaces, ErrResultsExpired after retention, ErrIllegal for a query that Check refuses.
	RecentResults(ctx context.Context, q RecentQuery) (RecentPage, error)

	// Breakdown reads all outcomes of a final verification once, with memory that does not grow with the file.
	// ErrNoSuchVerification also for those of other workspaces, ErrResultsExpired after retention, ErrIllegal for one that
	// is not final.
	Breakdown(ctx context.Context, workspace, id uuid.UUID) (Breakdown, error)

	// Statement tells what a workspace has, what it spent by day, and a page of what moved its credits.
	// ErrNoSuchWorkspace, ErrIllegal for another Limit.
	Statement(ctx context.Context, q StatementQuery) (WorkspaceStatement, error)
}

// CreateSingle asks for the check of one address.
type CreateSingle struct {
	ID        uuid.UUID // made by the caller for this call, used if the verification is new
	Workspace uuid.UUID
	Identity  uuid.UUID // the idempotency key: the UUID of the form
	Address   string    // as it was spelled
	Limits    Limits    // the defaults, for a workspace that has none of its own
}

// Check reports whether the address is one that intake takes for an address. The error wraps smtp.ErrMalformed.
func (c CreateSingle) Check() error {
	if len(c.Address) > EmailBytesMax {
		return fmt.Errorf("%w: it is over %d bytes", smtp.ErrMalformed, EmailBytesMax)
	}
	_, err := smtp.ParseAddress(c.Address)
	return err
}

// RecentQuery asks for one page of outcomes, newest first: by settlement, and within one by the time of the outcome.
type RecentQuery struct {
	Workspace, Verification uuid.UUID

	Outcome smtp.Outcome // Undecided: all
	Reason  smtp.Reason  // ReasonNone: all
	Find    string       // a part of the address, A to Z as a to z; "": all
	From    *RecentPlace // where to go on, the Next of the page before; nil: from the newest
	Limit   int          // 1 to RecentMax
}

// Check reports whether a query can be asked. ErrIllegal.
func (q RecentQuery) Check() error {
	switch {
	case q.Limit < 1 || q.Limit > RecentMax:
		return fmt.Errorf("a page of %d outcomes, 1 to %d are allowed: %w", q.Limit, RecentMax, ErrIllegal)
	case q.Outcome != smtp.Undecided && !q.Outcome.Final():
		return fmt.Errorf("outcome %d: %w", q.Outcome, ErrIllegal)
	case q.Reason != smtp.ReasonNone && !q.Reason.Known():
		return fmt.Errorf("reason %d: %w", q.Reason, ErrIllegal)
	case q.From != nil && (q.From.Settlement < 1 || q.From.Row < 0 || q.From.Row >= SettlementMax):
		return fmt.Errorf("row %d of settlement %d: %w", q.From.Row, q.From.Settlement, ErrIllegal)
	case len(q.Find) > EmailBytesMax:
		return fmt.Errorf("a text of %d bytes to find, at most %d: %w", len(q.Find), EmailBytesMax, ErrIllegal)
	}
	return CheckText(q.Find)
}

// RecentPlace is a place among the outcomes of a verification. It stays right while new ones come.
type RecentPlace struct {
	Settlement int64 // its number
	Row        int   // from 0 on, within the settlement, newest first
}

// RecentResult is an outcome and the number of the settlement that it was committed with, whose evidence Evidence
// returns.
type RecentResult struct {
	Result
	Settlement int64
}

// RecentPage is one page of outcomes.
type RecentPage struct {
	Verification Verification   // as it was when the page was read
	Results      []RecentResult // newest first
	Next         *RecentPlace   // where older ones are looked for; nil: there are none
	Looked       int            // in how many settlements this call looked
}

// Breakdown is what the outcomes of a final verification have in common. Addresses that were never checked are in no
// count of it.
type Breakdown struct {
	Verification Verification
	Reasons      []ReasonCount // most first
	Worst        []DomainCount // most unknown first, at most WorstDomains
	AtLeast      bool          // the file has so many domains that a count in Worst may be too low
}

// ReasonCount is how many addresses have an outcome for a reason.
type ReasonCount struct {
	Outcome smtp.Outcome
	Reason  smtp.Reason
	Count   int64
}

// DomainCount is how many addresses of a domain are unknown, and the reason that most of them have.
type DomainCount struct {
	Domain  string // lower-case A-label
	Unknown int64
	Reason  smtp.Reason
}

// StatementQuery asks for one page of what moved the credits of a workspace, newest first.
type StatementQuery struct {
	Workspace uuid.UUID
	Only      MoveKind  // "": all kinds
	After     *Position // of the last move of the page before; nil: from the newest
	Limit     int       // 1 to StatementMax
}

// WorkspaceStatement is what the book says about the credits of a workspace, all of one moment.
type WorkspaceStatement struct {
	Balance Balance
	Days    []DaySpent // StatementDays of them, the last of which is today by the ledger's clock
	Moves   []Move     // the page that was asked for, newest first
	More    bool       // there are older ones
}

// DaySpent is what was spent on a day.
type DaySpent struct {
	Day   time.Time // its beginning
	Spent Credits   // less what corrections gave back
}

// Move is a grant, a correction or a verification that held credits. Over all moves of a workspace Granted adds up to what
// it was granted, Held, less Charged and GivenBack, to what it holds, and Charged to what it spent.
type Move struct {
	At time.Time // of the grant or the correction; when the verification was created
	ID uuid.UUID // of the grant, the correction or the verification; its place is Position

	Kind    MoveKind
	Granted Credits // of a grant; below zero when a correction took some
	Reason  string  // of a grant or a correction
	Author  string  // of a grant or a correction, as WithAuthor said; "": nobody did

	Verification             *Verification // of a move of a verification
	Held, Charged, GivenBack Credits       // Charged is below zero when a correction gave back what was spent
}

// Position is the place of a move, for the next page.
func (m Move) Position() *Position { return &Position{Created: m.At, ID: m.ID} }

// MoveKind is what moved credits.
type MoveKind string

// The three kinds of moves.
const (
	MoveGrant        MoveKind = "grant"        // credits were added
	MoveCorrection   MoveKind = "correction"   // an audit found a mistake that was set right
	MoveVerification MoveKind = "verification" // credits were held for addresses, and charged or given back
)
