package ledger

import (
	"context"

	"github.com/google/uuid"
)

// Strangers is the tenant of questions whose tenant is not known yet, such as those about API keys.
var Strangers = uuid.Max

// tenantKey is the name of the tenant in a context.
type tenantKey struct{}

// WithTenant names the tenant of the calls with ctx. Calls wait in turn by tenant, so that many calls of one do not
// delay the few of another. Calls without a tenant are the node's own and go before all others: its heartbeats,
// leases, sweeps, and what operators ask.
func WithTenant(ctx context.Context, workspace uuid.UUID) context.Context {
	return context.WithValue(ctx, tenantKey{}, workspace)
}

// TenantOf returns the tenant of ctx; uuid.Nil for the node's own work.
func TenantOf(ctx context.Context) uuid.UUID {
	workspace, _ := ctx.Value(tenantKey{}).(uuid.UUID)
	return workspace
}
