package dashboard

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/ledger"
)

// Patterns returns the routes, for tests.
func Patterns() (all []string) {
	for _, r := range routes {
		all = append(all, r.pattern)
	}
	return all
}

// BrowserName and the others are exported for tests of their own.
var (
	BrowserName = browserName
	LocalPath   = localPath
)

// NewWaits returns a function that counts the waits of a verification's open addresses.
func NewWaits(ask func(context.Context, string) (inspect.Verification, error), now func() time.Time) func(context.Context, uuid.UUID) int {
	c := newWaitsCache(Options{Waits: ask, Now: now, Log: slog.New(slog.DiscardHandler)})
	return func(ctx context.Context, id uuid.UUID) int { return len(c.get(ctx, id)) }
}

// NewBreakdowns returns a function that returns the ledger's breakdown of a final verification.
func NewBreakdowns(book ledger.Book) func(context.Context, ledger.Verification) (ledger.Breakdown, error) {
	b := newBreakdowns()
	return func(ctx context.Context, v ledger.Verification) (ledger.Breakdown, error) { return b.get(ctx, book, v) }
}

// EveryOf is exported for a test of its own.
var EveryOf = everyOf

// LiveView is the content of a part.
type LiveView = liveView
