package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	// OverridesMax bounds the overrides that hold at a time: every node reads them all
	// each second. Guess.
	OverridesMax = 1000

	// OverrideMin is the shortest that an override holds.
	OverrideMin = time.Second

	// OverrideMax is the longest. What shall hold for longer than a month belongs into
	// the throttle file.
	OverrideMax = 31 * 24 * time.Hour

	// OperatorTextMax bounds every text of an operator, in bytes, and the fields of an
	// override with their values together.
	OperatorTextMax = 1000

	// LogLinesMax bounds one page of the operator log. Guess: more than a person reads.
	LogLinesMax = 1000

	// WeightMax bounds the weight of a workspace; the least is 1.
	WeightMax = 100
)

// ThrottleOverride is a change of what a receiver is asked, or a source does, for a time.
type ThrottleOverride struct {
	ID             uuid.UUID         // chosen by who sets it: sent again it is the same override
	Key            string            // name of a throttle.Rule; the ledger does not look inside
	Fields         map[string]string // as throttle.Override.Texts; the ledger does not look inside
	Author, Reason string            // the author is filled in, as WithAuthor says
	Created        time.Time
	Expires        time.Time
}

// Clearing ends overrides before their time.
type Clearing struct {
	Key    string    // "": whatever it is; then there must be an ID
	ID     uuid.UUID // of one of them; the nil UUID: all of the key
	Only   string    // a field: only those that set nothing else; "": whatever they set
	Reason string
}

// Settings is what operators have changed and every node follows.
type Settings struct {
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
	Limit  int       // 1 to LogLinesMax
}

// Operators is the part for who runs the service. Who does it is told by WithAuthor;
// every change writes its line of the operator log in the same transaction.
type Operators interface {
	// SetOverride keeps an override for so long, OverrideMin to OverrideMax: Created and
	// Expires are filled in by the ledger's clock, Author by the context. The same ID, key
	// and fields again answer what is kept, while it holds. ErrIllegal for bounds that are
	// not kept to and for an ID that was used for another or for one that was cleared or is
	// over, ErrTooManyOverrides.
	SetOverride(ctx context.Context, o ThrottleOverride, holds time.Duration) (ThrottleOverride, error)
	// ClearOverrides ends those that hold and answers them, oldest first. ErrIllegal.
	ClearOverrides(ctx context.Context, c Clearing) ([]ThrottleOverride, error)
	// Settings reads what every node follows. It is cheap enough for every second.
	Settings(ctx context.Context) (Settings, error)
	// SetWeight says how many turns a workspace has for one of another: 1 to WeightMax.
	// ErrNoSuchWorkspace, ErrIllegal.
	SetWeight(ctx context.Context, workspace uuid.UUID, weight int) (Workspace, error)
	// SetLimits changes the limits of a workspace. ErrNoSuchWorkspace, ErrIllegal.
	SetLimits(ctx context.Context, c LimitsChange) (Usage, error)
	// Usage reads what a workspace may have and what it has. ErrNoSuchWorkspace.
	Usage(ctx context.Context, workspace uuid.UUID) (Usage, error)
	// Correct audits, and sets right what it finds about one subject. The same ID again answers
	// what was done. ErrNothingFound, ErrUncorrectable, and ErrIllegal for a call that is none.
	Correct(ctx context.Context, c CorrectionCall) (Correction, error)
	// Note writes a line about what the ledger does not do itself; At and Author are
	// filled in, and the ID unless it is given: then the line is written once. ErrIllegal
	// for a line without an action and for texts above OperatorTextMax.
	Note(ctx context.Context, l LogLine) error
	// OperatorLog gives one page. ErrIllegal for another Limit.
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

// CheckOperatorText reports whether a text of an operator can be kept. ErrIllegal.
func CheckOperatorText(what, text string) error {
	if len(text) > OperatorTextMax {
		return fmt.Errorf("%s of %d bytes, %d are allowed: %w", what, len(text), OperatorTextMax, ErrIllegal)
	}
	if err := CheckText(text); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Check reports whether an override can be kept for so long. ErrIllegal.
func (o ThrottleOverride) Check(holds time.Duration) error {
	switch {
	case o.ID == uuid.Nil:
		return fmt.Errorf("an override without an id: %w", ErrIllegal)
	case o.Key == "":
		return fmt.Errorf("an override without a key: %w", ErrIllegal)
	case len(o.Fields) == 0:
		return fmt.Errorf("an override that sets no field: %w", ErrIllegal)
	case holds < OverrideMin || holds > OverrideMax:
		return fmt.Errorf("an override for %s, %s to %s are allowed: %w", holds, OverrideMin, OverrideMax, ErrIllegal)
	}
	fields := 0
	for field, value := range o.Fields {
		if field == "" {
			return fmt.Errorf("a field without a name: %w", ErrIllegal)
		}
		if err := CheckText(field + value); err != nil {
			return err
		}
		fields += len(field) + len(value)
	}
	if fields > OperatorTextMax {
		return fmt.Errorf("fields of %d bytes, %d are allowed: %w", fields, OperatorTextMax, ErrIllegal)
	}
	for what, text := range map[string]string{"key": o.Key, "author": o.Author, "reason": o.Reason} {
		if err := CheckOperatorText(what, text); err != nil {
			return err
		}
	}
	return nil
}

// Covers reports whether a clearing is about an override.
func (c Clearing) Covers(o ThrottleOverride) bool {
	_, sets := o.Fields[c.Only]
	return (c.Key == "" || c.Key == o.Key) && (c.ID == uuid.Nil || c.ID == o.ID) &&
		(c.Only == "" || sets && len(o.Fields) == 1)
}

// Check reports whether a clearing says what it is about. ErrIllegal.
func (c Clearing) Check() error {
	if c.Key == "" && c.ID == uuid.Nil {
		return fmt.Errorf("name a key or an override to clear: %w", ErrIllegal)
	}
	return CheckOperatorText("reason", c.Reason)
}

// Check reports whether a line can be noted. ErrIllegal.
func (l LogLine) Check() error {
	if l.Action == "" {
		return fmt.Errorf("a line without an action: %w", ErrIllegal)
	}
	for what, text := range map[string]string{"action": l.Action, "subject": l.Subject, "old": l.Old,
		"new": l.New, "reason": l.Reason} {
		if err := CheckOperatorText(what, text); err != nil {
			return err
		}
	}
	return nil
}

// Acting is in whose session a change is made, and what its user has to be for it. Every transaction that changes
// something reads both first, so that nobody acts on by what a node believes: ErrNoSuchSession, ErrNotAllowed.
type Acting struct {
	Session   Hash
	Idle      time.Duration // how long a session holds unused
	User      uuid.UUID     // in place of Session: whoever has any session that holds; of an upload, see Upload.MadeBy
	Workspace uuid.UUID     // Nil: a change of the user's own
	Role      Role          // the least in Workspace
}

type actingKey struct{}

// WithActing makes the changes of a context those of a session.
func WithActing(ctx context.Context, a Acting) context.Context {
	return context.WithValue(ctx, actingKey{}, a)
}

// ActingOf returns the session that makes the changes of a context; false: none does.
func ActingOf(ctx context.Context) (Acting, bool) {
	a, ok := ctx.Value(actingKey{}).(Acting)
	return a, ok
}
