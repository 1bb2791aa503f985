package ledger

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// UnpaidWithin is how long a verification that never held a credit counts against Limits.Unpaid.
const UnpaidWithin = 24 * time.Hour

// Limits bound what a workspace may have, so that none fills the ledger for the others. In
// those that were set for one workspace 0 is the default.
type Limits struct {
	// Open is the number of its verifications that are not final.
	Open int64 `json:"open"`
	// Stored is the sum of the declared bytes of those whose upload is not erased.
	Stored int64 `json:"stored"`
	// Unpaid is the number of those that were created within UnpaidWithin and never held a
	// credit: that are not prepared yet, were refused or cancelled before, or wait for credits.
	Unpaid int64 `json:"unpaid"`
}

// Or fills in what is not set.
func (l Limits) Or(defaults Limits) Limits {
	for _, field := range []struct {
		own     *int64
		instead int64
	}{{&l.Open, defaults.Open}, {&l.Stored, defaults.Stored}, {&l.Unpaid, defaults.Unpaid}} {
		if *field.own == 0 {
			*field.own = field.instead
		}
	}
	return l
}

// String is how a line of the operator log has limits of a workspace.
func (l Limits) String() string {
	text := func(n int64) string {
		if n == 0 {
			return "default"
		}
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("open=%s stored=%s unpaid=%s", text(l.Open), text(l.Stored), text(l.Unpaid))
}

// Usage is a workspace with its limits and what it has at a moment.
type Usage struct {
	Workspace
	Own  Limits // 0: the default
	Used Limits
}

// LimitsChange is what an operator sets for a workspace: every field that is not nil, and
// 0 is the default.
type LimitsChange struct {
	Workspace            uuid.UUID
	Open, Stored, Unpaid *int64
	Reason               string
}

// Apply returns limits as they are after a change.
func (c LimitsChange) Apply(l Limits) Limits {
	for _, field := range []struct{ to, from *int64 }{{&l.Open, c.Open}, {&l.Stored, c.Stored}, {&l.Unpaid, c.Unpaid}} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	return l
}

// Check reports whether a change can be made. ErrIllegal.
func (c LimitsChange) Check() error {
	if l := c.Apply(Limits{}); min(l.Open, l.Stored, l.Unpaid) < 0 {
		return fmt.Errorf("limits %s, none may be negative: %w", l, ErrIllegal)
	}
	return CheckOperatorText("reason", c.Reason)
}

// Later is a refusal that ends by itself.
type Later struct {
	Err   error
	After time.Duration // when to ask again
}

// Error implements error.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the refusal.
func (l *Later) Unwrap() error { return l.Err }
