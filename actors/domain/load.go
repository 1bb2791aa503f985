package domain

import (
	"sync/atomic"

	"github.com/google/uuid"

	"rollcall/ledger/quota"
)

const (
	// loadMax is how many addresses may be at receivers before domains offer small chunks. Measured: 330 bytes each, so 20
	// MB.
	loadMax = 60_000

	// outMax bounds the addresses at receivers: 40 MB.
	outMax = 2 * loadMax

	// openMax bounds the domains with an actor on a node. openMax includes domains that only wait, for example for a
	// greylist. Measured: some 2 KB each, so 130 MB.
	openMax = 65_536
)

// Load counts the domains at work on a node, and their addresses at receivers. Workspaces share both (package
// ledger/quota). When a workspace has used its share, its next domain or address waits. Load also counts the bytes that
// domains use for replies beyond their own share. Safe for concurrent use.
type Load struct {
	weight func(workspace uuid.UUID) int
	open   *quota.Pool[uuid.UUID]
	out    *quota.Pool[uuid.UUID]
	texts  atomic.Int64
}

// NewLoad makes the empty load of a node. weight returns how many shares a workspace has.
func NewLoad(weight func(workspace uuid.UUID) int) *Load {
	return &Load{weight: weight, open: quota.New[uuid.UUID](openMax), out: quota.New[uuid.UUID](outMax)}
}

// Begin counts one more domain of a workspace. The result says whether the workspace may have one more.
func (l *Load) Begin(workspace uuid.UUID) bool {
	return l.open.Take(workspace, l.weight(workspace), 1)
}

// End uncounts n domains.
func (l *Load) End(workspace uuid.UUID, n int) {
	l.open.Return(workspace, int64(n))
}

// Addresses returns how many addresses are at receivers.
func (l *Load) Addresses() int64 { return l.out.Used() }

// takeAddress counts one more address at receivers. The result says whether the workspace may have one more.
func (l *Load) takeAddress(workspace uuid.UUID) bool {
	return l.out.Take(workspace, l.weight(workspace), 1)
}

func (l *Load) giveAddresses(workspace uuid.UUID, n int) {
	l.out.Return(workspace, int64(n))
}

func (l *Load) isHeavy() bool { return l.Addresses() > loadMax }

// keepBytes counts bytes that are kept, and reports whether there is room for them.
func (l *Load) keepBytes(bytes int) bool {
	if l.texts.Add(int64(bytes)) > textsMax {
		l.texts.Add(int64(-bytes))
		return false
	}
	return true
}

func (l *Load) forgetBytes(bytes int) { l.texts.Add(int64(-bytes)) }
