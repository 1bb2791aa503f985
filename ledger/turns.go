package ledger

import (
	"context"

	"github.com/google/uuid"
)

// Strangers is the tenant of questions that are asked before anybody knows whose they are, such as
// those about API keys.
var Strangers = uuid.Max

// tenantKey is the name of the tenant in a context.
type tenantKey struct{}

// WithTenant says whose work the calls with ctx are. Calls wait in turn by tenant, so that the many of one
// do not delay the few of another. Without a tenant they are the node's own and go before all
// others: its heartbeats, leases, sweeps, and what operators ask.
func WithTenant(ctx context.Context, workspace uuid.UUID) context.Context {
	return context.WithValue(ctx, tenantKey{}, workspace)
}

// TenantOf gives the tenant of ctx; uuid.Nil for the node's own work.
func TenantOf(ctx context.Context) uuid.UUID {
	workspace, _ := ctx.Value(tenantKey{}).(uuid.UUID)
	return workspace
}
