package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	// OverridesMax bounds the active overrides, because every node reads them all each second. Guess.
	OverridesMax = 1000

	// OverrideMin is the shortest time of an override.
	OverrideMin = time.Second

	// OverrideMax is the longest time of an override. Longer changes belong into the throttle file.
	OverrideMax = 31 * 24 * time.Hour

	// OperatorTextMax bounds each text of an operator, and the fields of an override with all values, in bytes.
	OperatorTextMax = 1000

	// LogLinesMax bounds one page of the operator log. Guess: more than a person reads.
	LogLinesMax = 1000

	// WeightMax bounds the weight of a workspace; the least is 1.
	WeightMax = 100
)

// ThrottleOverride is a temporary change of the limits of a receiver or a source.
type ThrottleOverride struct {
	ID             uuid.UUID         // chosen by the caller; a repeat with it is the same override
	Key            string            // name of a throttle.Rule; the ledger does not interpret it
	Fields         map[string]string // as throttle.Override.Texts; the ledger does not interpret them
	Author, Reason string            // the author comes from WithAuthor
	Created        time.Time
	Expires        time.Time
}

// Clearing ends overrides before their time.
type Clearing struct {
	Key    string    // "": any; then an ID is required
	ID     uuid.UUID // of one of them; the nil UUID: all of the key
	Only   string    // a field: only overrides that set just this field; "": all
	Reason string
}

// Settings is what operators have set for every node.
type Settings struct {
	Now       time.Time          // by the ledger's clock
	Overrides []ThrottleOverride // active ones, oldest first
	Weights   map[uuid.UUID]int  // of workspaces with another weight than 1
}

// LogLine is one line of the operator log.
type LogLine struct {
	ID        uuid.UUID
	At        time.Time
	Action    string    // such as "throttle set"
	Author    string    // self-chosen; "": none
	Workspace uuid.UUID // nil UUID: it concerns none
	Subject   string    // the changed thing
	Old, New  string    // its old and new value
	Reason    string
}

// LogQuery asks for one page of the operator log, newest first.
type LogQuery struct {
	Before time.Time // only earlier lines; zero: from the newest
	After  uuid.UUID // the last line already read with the time Before
	Limit  int       // 1 to LogLinesMax
}

// Operators is the part for the operators of the service. WithAuthor names the author; every change writes its line
// of the operator log in the same transaction.
type Operators interface {
	// SetOverride stores an override for a time from OverrideMin to OverrideMax. Created and Expires come from the
	// ledger's clock, Author from the context. If repeated with the same ID, key and fields, it returns the stored
	// one while that is active. Errors: ErrIllegal if a value is out of bounds, or the ID is that of another or ended
	// override; ErrTooManyOverrides.
	SetOverride(ctx context.Context, o ThrottleOverride, holds time.Duration) (ThrottleOverride, error)
	// ClearOverrides ends active overrides and returns them, oldest first. ErrIllegal.
	ClearOverrides(ctx context.Context, c Clearing) ([]ThrottleOverride, error)
	// Settings returns the settings that every node follows. It is cheap enough to call every second.
	Settings(ctx context.Context) (Settings, error)
	// SetWeight sets a workspace's turns per turn of other workspaces: 1 to WeightMax. ErrNoSuchWorkspace, ErrIllegal.
	SetWeight(ctx context.Context, workspace uuid.UUID, weight int) (Workspace, error)
	// SetLimits changes the limits of a workspace. ErrNoSuchWorkspace, ErrIllegal.
	SetLimits(ctx context.Context, c LimitsChange) (Usage, error)
	// Usage returns the limits and usage of a workspace. ErrNoSuchWorkspace.
	Usage(ctx context.Context, workspace uuid.UUID) (Usage, error)
	// Correct audits the ledger and corrects the findings about one subject. Repeated with the same ID it returns
	// the first correction. ErrNothingFound, ErrUncorrectable, and ErrIllegal for an invalid call.
	Correct(ctx context.Context, c CorrectionCall) (Correction, error)
	// Note writes a line about an action outside the ledger. It fills in At, Author and a missing ID; a given ID is
	// written only once. ErrIllegal for a line without an action and for texts above OperatorTextMax.
	Note(ctx context.Context, l LogLine) error
	// OperatorLog returns one page. ErrIllegal for a Limit out of range.
	OperatorLog(ctx context.Context, q LogQuery) ([]LogLine, error)
}

type authorKey struct{}

// WithAuthor sets the author of a context's changes, for the operator log.
func WithAuthor(ctx context.Context, author string) context.Context {
	return context.WithValue(ctx, authorKey{}, author)
}

// Author returns the author of a context's changes; "": none was set.
func Author(ctx context.Context) string {
	author, _ := ctx.Value(authorKey{}).(string)
	return author
}

// CheckOperatorText returns ErrIllegal when a text of an operator cannot be stored.
func CheckOperatorText(what, text string) error {
	if len(text) > OperatorTextMax {
		return fmt.Errorf("%s of %d bytes, %d are allowed: %w", what, len(text), OperatorTextMax, ErrIllegal)
	}
	if err := CheckText(text); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Check returns ErrIllegal when an override cannot be stored for that time.
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

// Covers reports whether a clearing applies to an override.
func (c Clearing) Covers(o ThrottleOverride) bool {
	_, sets := o.Fields[c.Only]
	return (c.Key == "" || c.Key == o.Key) && (c.ID == uuid.Nil || c.ID == o.ID) &&
		(c.Only == "" || sets && len(o.Fields) == 1)
}

// Check checks whether a clearing names what to clear. ErrIllegal.
func (c Clearing) Check() error {
	if c.Key == "" && c.ID == uuid.Nil {
		return fmt.Errorf("name a key or an override to clear: %w", ErrIllegal)
	}
	return CheckOperatorText("reason", c.Reason)
}

// Check returns ErrIllegal when a line cannot be stored.
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

// Acting is the session that makes a change, and the role its user needs. Every changing transaction first reads
// both from the ledger, because a node's knowledge may be outdated: ErrNoSuchSession, ErrNotAllowed.
type Acting struct {
	Session   Hash
	Idle      time.Duration // longest time that a session stays valid unused
	User      uuid.UUID     // instead of Session: a user with any valid session; of an upload, see Upload.MadeBy
	Workspace uuid.UUID     // Nil: a change of the user's own data
	Role      Role          // the lowest sufficient role in Workspace
}

type actingKey struct{}

// WithActing sets the session that makes a context's changes.
func WithActing(ctx context.Context, a Acting) context.Context {
	return context.WithValue(ctx, actingKey{}, a)
}

// ActingOf returns the session that makes a context's changes, if any.
func ActingOf(ctx context.Context) (Acting, bool) {
	a, ok := ctx.Value(actingKey{}).(Acting)
	return a, ok
}
