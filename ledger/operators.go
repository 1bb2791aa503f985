package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"
)

const (
	// OverridesMax bounds the overrides that hold at a time: every node reads them all
	// each second. Guess.
	OverridesMax = 1000

	// OverrideMin and OverrideMax bound how long an override holds. What shall hold for
	// longer than a month belongs into the throttle file.
	OverrideMin = time.Second
	OverrideMax = 31 * 24 * time.Hour

	// OperatorTextMax bounds every text of an operator, in bytes.
	OperatorTextMax = 1000

	// WeightMax bounds the weight of a workspace; the least is 1.
	WeightMax = 100
)

// ThrottleOverride is a change of what a receiver is asked, or a source does, for a time.
type ThrottleOverride struct {
	ID             uuid.UUID         // chosen by who sets it: sent again it is the same override
	Key            string            // name of a shaping.Rule; the ledger does not look inside
	Fields         map[string]string // as shaping.Override.Texts; the ledger does not look inside
	Author, Reason string
	Created        time.Time
	Expires        time.Time
}

// Clearing ends overrides before their time.
type Clearing struct {
	Key    string
	ID     uuid.UUID // of one of them; the nil UUID: all of the key
	Only   string    // a field: only those that set nothing else; "": whatever they set
	Reason string
}

// Tuning is what operators have changed and every node follows.
type Tuning struct {
	Now       time.Time          // by the ledger's clock
	Overrides []ThrottleOverride // those that hold, oldest first
	Weights   map[uuid.UUID]int  // of workspaces whose weight is not 1
}

// LogLine is one line of the operator log.
type LogLine struct {
	ID        uuid.UUID
	At        time.Time
	Action    string    // as "throttle set"
	Author    string    // as they named themselves; "": nobody did
	Workspace uuid.UUID // nil UUID: it concerns none
	Subject   string    // what was changed
	Old, New  string    // what it was, and what it is now
	Reason    string
}

// LogQuery asks for one page of the operator log, newest first.
type LogQuery struct {
	Before time.Time // lines before; zero: from the newest
	After  uuid.UUID // the last line that was seen, of those of exactly Before
	Limit  int       // 1 to 1,000
}

// Operators is the part for who runs the service. Who does it is told by WithAuthor;
// every change writes its line of the operator log in the same transaction.
type Operators interface {
	// SetOverride keeps an override until its Expires, of which Created is filled in by the
	// ledger's clock. The same ID again answers what is kept. ErrIllegal for bounds that are
	// not kept to, ErrTooManyOverrides.
	SetOverride(ctx context.Context, o ThrottleOverride, holds time.Duration) (ThrottleOverride, error)
	// ClearOverrides ends those that hold and answers them.
	ClearOverrides(ctx context.Context, c Clearing) ([]ThrottleOverride, error)
	// Tuning reads what every node follows. It is cheap enough for every second.
	Tuning(ctx context.Context) (Tuning, error)
	// SetWeight says how many turns a workspace has for one of another: 1 to WeightMax.
	// ErrNoSuchWorkspace, ErrIllegal.
	SetWeight(ctx context.Context, workspace uuid.UUID, weight int) (Workspace, error)
	// Note writes a line about what the ledger does not do itself; ID, At and Author are
	// filled in. ErrIllegal for texts above OperatorTextMax.
	Note(ctx context.Context, l LogLine) error
	// OperatorLog gives one page.
	OperatorLog(ctx context.Context, q LogQuery) ([]LogLine, error)
}

type authorKey struct{}

// WithAuthor says who makes the changes of a context, for the operator log.
func WithAuthor(ctx context.Context, author string) context.Context {
	return context.WithValue(ctx, authorKey{}, author)
}

// Author is who makes the changes of a context; "": nobody said.
func Author(ctx context.Context) string {
	author, _ := ctx.Value(authorKey{}).(string)
	return author
}
