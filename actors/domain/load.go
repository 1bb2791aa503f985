package domain

import (
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"rollcall/ledger/quota"
)

const (
	// loadMax is how many addresses may be at receivers before domains offer little
	// at a time. Measured: 330 bytes each, so 20 MB.
	loadMax = 60_000

	// outMax bounds the addresses at receivers: 40 MB.
	outMax = 2 * loadMax

	// openMax bounds the domains with an actor on a node, including those that only wait, such as for a greylist.
	// Measured: some 2 KB each, so 130 MB.
	openMax = 65_536
)

// Load is what the domains of a node have at work: how many there are, and how many of their addresses are at
// receivers. Workspaces share both, see package ledger/quota: a domain begins later, and an address is offered later,
// when its workspace has its share. It also counts the bytes of the answers that domains keep beyond their own share.
// The zero Load has none. Safe for concurrent use.
type Load struct {
	// Weight is how many shares a workspace has, where others have one. Nil: each has one. It is set before anything
	// else is done.
	Weight func(workspace uuid.UUID) int

	once  sync.Once
	open  *quota.Pool[uuid.UUID]
	out   *quota.Pool[uuid.UUID]
	texts atomic.Int64
}

func (l *Load) pools() (open, out *quota.Pool[uuid.UUID]) {
	l.once.Do(func() {
		l.open, l.out = quota.New[uuid.UUID](openMax), quota.New[uuid.UUID](outMax)
		if l.Weight == nil {
			l.Weight = func(uuid.UUID) int { return 1 }
		}
	})
	return l.open, l.out
}

// Begin reports whether a workspace may have another domain at work, and counts it.
func (l *Load) Begin(workspace uuid.UUID) bool {
	open, _ := l.pools()
	return open.Take(workspace, l.Weight(workspace), 1)
}

// End uncounts n domains.
func (l *Load) End(workspace uuid.UUID, n int) {
	open, _ := l.pools()
	open.Return(workspace, int64(n))
}

// Addresses is how many are at receivers.
func (l *Load) Addresses() int64 {
	_, out := l.pools()
	return out.Used()
}

// takeAddress reports whether a workspace may have another address at receivers, and counts it.
func (l *Load) takeAddress(workspace uuid.UUID) bool {
	_, out := l.pools()
	return out.Take(workspace, l.Weight(workspace), 1)
}

func (l *Load) giveAddresses(workspace uuid.UUID, n int) {
	_, out := l.pools()
	out.Return(workspace, int64(n))
}

func (l *Load) isHeavy() bool { return l.Addresses() > loadMax }

// keepBytes reserves room for so many bytes more, and reports whether there was any.
func (l *Load) keepBytes(bytes int) bool {
	if l.texts.Add(int64(bytes)) > textsMax {
		l.texts.Add(int64(-bytes))
		return false
	}
	return true
}

func (l *Load) forgetBytes(bytes int) { l.texts.Add(int64(-bytes)) }
