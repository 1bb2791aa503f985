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

	// RecentLooked bounds the settlements that one call of RecentResults searches for a text or a reason.
	RecentLooked = 200

	// RecentPassed bounds the settlements that one call of RecentResults skips by their counts.
	RecentPassed = 5000

	// WorstDomains bounds the domains of a Breakdown.
	WorstDomains = 20

	// BreakdownDomains bounds the domains that a Breakdown counts at a time. For a file with more, some counts may
	// be too low. Guess: some 5 MB.
	BreakdownDomains = 10_000

	// StatementMax bounds the moves of one page of a statement.
	StatementMax = 200

	// StatementDays is the number of days in a statement, with today.
	StatementDays = 90

	// Day is the length of a day of a statement. Days begin at 00:00 UTC.
	Day = 24 * time.Hour
)

// Pages is the part that only the pages need, not the API.
type Pages interface {
	// CreateSingle makes a verification of one address in one transaction: its kind is Single, its file has the
	// address as the only record, and its status is Preparing, like that of a complete upload. From then on it is
	// like any other file: intake, hold, credits, retention and limits. Repeated with the same Identity and Address
	// it returns the existing one. For a malformed address the error wraps smtp.ErrMalformed and has a cause that
	// may be shown. ErrIdentityReused for an Identity used with another address or for a file; ErrTooManyOpen,
	// ErrTooManyBytes, ErrTooManyUnpaid (in a Later) and ErrNoRoom as in Create. WithActor names its maker.
	CreateSingle(ctx context.Context, c CreateSingle) (Verification, error)

	// RecentResults returns one page of the outcomes of a verification, newest first, while it runs and afterwards.
	// A page may be short or empty even if more follow: only Next shows that. ErrNoSuchVerification also for other
	// workspaces' verifications, ErrResultsExpired after retention, ErrIllegal for a query that Check refuses.
	RecentResults(ctx context.Context, q RecentQuery) (RecentPage, error)

	// Breakdown counts all outcomes of a final verification, with memory that does not grow with the file.
	// ErrNoSuchVerification also for those of other workspaces, ErrResultsExpired after retention, ErrIllegal for a
	// verification that is not final.
	Breakdown(ctx context.Context, workspace, id uuid.UUID) (Breakdown, error)

	// Statement returns a workspace's balance, its spending by day, and a page of credit movements.
	// ErrNoSuchWorkspace; ErrIllegal for a Limit out of range.
	Statement(ctx context.Context, q StatementQuery) (WorkspaceStatement, error)
}

// CreateSingle asks for the check of one address.
type CreateSingle struct {
	ID        uuid.UUID // made by the caller for this call, used if the verification is new
	Workspace uuid.UUID
	Identity  uuid.UUID // the idempotency key: the UUID of the form
	Address   string    // in its original spelling
	Limits    Limits    // the defaults, for a workspace without its own
}

// Check checks the address by the rules of intake. The error wraps smtp.ErrMalformed.
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
	From    *RecentPlace // where to continue, the Next of the previous page; nil: from the newest
	Limit   int          // 1 to RecentMax
}

// Check returns ErrIllegal when a query is not valid.
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

// RecentPlace is a position among the outcomes of a verification. It stays valid when new ones are added.
type RecentPlace struct {
	Settlement int64 // its number
	Row        int   // from 0 on, within the settlement, newest first
}

// RecentResult is an outcome and the number of its settlement, for a call of Evidence.
type RecentResult struct {
	Result
	Settlement int64
}

// RecentPage is one page of outcomes.
type RecentPage struct {
	Verification Verification   // as it was when the page was read
	Results      []RecentResult // newest first
	Next         *RecentPlace   // where to continue with older ones; nil: there are none
	Looked       int            // number of settlements that this call read
}

// Breakdown is the counts of a final verification's outcomes, without addresses that were never checked.
type Breakdown struct {
	Verification Verification
	Reasons      []ReasonCount // most frequent first
	Worst        []DomainCount // most unknown first, at most WorstDomains
	AtLeast      bool          // a count in Worst may be too low, because there are very many domains
}

// ReasonCount is the number of addresses with an outcome and a reason.
type ReasonCount struct {
	Outcome smtp.Outcome
	Reason  smtp.Reason
	Count   int64
}

// DomainCount is the number of unknown addresses of a domain, and their most frequent reason.
type DomainCount struct {
	Domain  string // lower-case A-label
	Unknown int64
	Reason  smtp.Reason
}

// StatementQuery asks for one page of a workspace's credit movements, newest first.
type StatementQuery struct {
	Workspace uuid.UUID
	Only      MoveKind  // "": all kinds
	After     *Position // of the last move of the previous page; nil: from the newest
	Limit     int       // 1 to StatementMax
}

// WorkspaceStatement is a workspace's credits and their movements, from one snapshot.
type WorkspaceStatement struct {
	Balance Balance
	Days    []DaySpent // StatementDays of them; the last is today by the ledger's clock
	Moves   []Move     // the requested page, newest first
	More    bool       // there are older ones
}

// DaySpent is what was spent on a day.
type DaySpent struct {
	Day   time.Time // its beginning
	Spent Credits   // less the refunds of corrections
}

// Move is a grant, a correction or a verification that held credits. Over all moves of a workspace, the sum of
// Granted is what it was granted, Held less Charged and GivenBack what it holds, and Charged what it spent.
type Move struct {
	At time.Time // of the grant or the correction; when the verification was created
	ID uuid.UUID // of the grant, the correction or the verification

	Kind    MoveKind
	Granted Credits // of a grant; below zero when a correction withdrew credits
	Reason  string  // of a grant or a correction
	Author  string  // of a grant or a correction, from WithAuthor; "": none

	Verification             *Verification // of a move of a verification
	Held, Charged, GivenBack Credits       // Charged is below zero when a correction refunded credits
}

// Position returns the position of a move, for the next page.
func (m Move) Position() *Position { return &Position{Created: m.At, ID: m.ID} }

// MoveKind is the kind of a move.
type MoveKind string

// The three kinds of moves.
const (
	MoveGrant        MoveKind = "grant"        // credits were added
	MoveCorrection   MoveKind = "correction"   // a mistake found by an audit was corrected
	MoveVerification MoveKind = "verification" // credits were held for addresses, then charged or released
)
