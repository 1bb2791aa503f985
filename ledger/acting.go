package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"
)

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
