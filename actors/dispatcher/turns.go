package dispatcher

import (
	"maps"
	"slices"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/quota"
)

// turns says whose verification is leased next. Workspaces are served in turn, as often in a
// round as they weigh, and each has a share of the leases: who has it is passed over until
// something ends. It is plain Go. Mailbox only.
type turns struct {
	leases *quota.Pool[uuid.UUID]
	weight func(workspace uuid.UUID) int
	served map[uuid.UUID]int // in this round
}

func newTurns(leases int, weight func(uuid.UUID) int) turns {
	return turns{leases: quota.New[uuid.UUID](int64(leases)), weight: weight, served: map[uuid.UUID]int{}}
}

// except lists the workspaces that get nothing now.
func (t *turns) except() []uuid.UUID {
	out := map[uuid.UUID]struct{}{}
	for _, workspace := range t.leases.Full(t.weight) {
		out[workspace] = struct{}{}
	}
	for workspace, times := range t.served {
		if times >= t.weight(workspace) {
			out[workspace] = struct{}{}
		}
	}
	list := slices.Collect(maps.Keys(out))
	return list[:min(len(list), ledger.ExceptMax)]
}

// took notes a lease; false: it is more than the share of its workspace.
func (t *turns) took(workspace uuid.UUID) bool {
	t.served[workspace]++
	return t.leases.Take(workspace, t.weight(workspace), 1)
}

// round begins another round, and reports whether that changes anything.
func (t *turns) round() bool {
	changes := len(t.served) > 0
	clear(t.served)
	return changes
}

// ended gives a lease back.
func (t *turns) ended(workspace uuid.UUID) { t.leases.Return(workspace, 1) }
