package dispatcher

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/quota"
)

// waiter is a leased verification that is not begun yet.
type waiter struct {
	state ledger.Verification
	since time.Time
}

// admissionQueue holds leased verifications until there is memory for their files. It is plain Go. Mailbox only.
//
// Small files have a part of the memory for themselves, so that they pass large ones without end. In the rest of it, a
// workspace may have as many large files at work as its weight; a file no longer counts once nearly all of it is
// answered. When a large file has waited for overtakeMax, large files begin in the order they came, and room is kept
// for the first.
type admissionQueue struct {
	waiters []waiter // oldest first
	small   *quota.Pool[uuid.UUID]
	large   *quota.Pool[uuid.UUID]
	busy    map[uuid.UUID]int // large files at work, by workspace
	weight  func(workspace uuid.UUID) int
}

const (
	// smallBytes is the largest size of a small file. Guess: 40,000 addresses, 3 MB of memory.
	smallBytes = 1 << 20

	// smallShare is the part of the memory that small files have for themselves.
	smallShare = 4
)

// newAdmissionQueue makes a queue that admits files of most bytes at a time.
func newAdmissionQueue(most int64, weight func(uuid.UUID) int) admissionQueue {
	return admissionQueue{small: quota.New[uuid.UUID](most / smallShare),
		large: quota.New[uuid.UUID](most - most/smallShare), busy: map[uuid.UUID]int{}, weight: weight}
}

// isSmall reports whether a file needs little memory.
func (l *admissionQueue) isSmall(bytes int64) bool { return bytes <= min(smallBytes, l.small.Size()) }

func (l *admissionQueue) join(now time.Time, v ledger.Verification) {
	l.waiters = append(l.waiters, waiter{v, now})
}

// next takes the first whose file fits.
func (l *admissionQueue) next(now time.Time) (ledger.Verification, bool) {
	kept := false // free memory for a large file
	for i, w := range l.waiters {
		small := l.isSmall(w.state.Bytes)
		if !small && kept {
			continue
		}
		if l.take(w.state, small) {
			l.waiters = slices.Delete(l.waiters, i, i+1)
			return w.state, true
		}
		turn := l.busy[w.state.Workspace] < l.weight(w.state.Workspace)
		kept = kept || !small && turn && now.Sub(w.since) > overtakeMax
	}
	return ledger.Verification{}, false
}

// take reserves the memory for a file if there is enough; the first file is always admitted, however large.
func (l *admissionQueue) take(v ledger.Verification, small bool) bool {
	weight := l.weight(v.Workspace)
	switch {
	case small:
		if !l.small.Take(v.Workspace, weight, v.Bytes) {
			return false
		}
	case l.large.Used() == 0 && v.Bytes > l.large.Size():
		l.large.Take(v.Workspace, weight, l.large.Size())
		l.busy[v.Workspace]++
	case l.busy[v.Workspace] >= weight || !l.large.Take(v.Workspace, weight, v.Bytes):
		return false
	default:
		l.busy[v.Workspace]++
	}
	return true
}

func (l *admissionQueue) leave(id uuid.UUID) {
	l.waiters = slices.DeleteFunc(l.waiters, func(w waiter) bool { return w.state.ID == id })
}

// nearly notes that a file that was begun is nearly done: its workspace may begin another.
func (l *admissionQueue) nearly(workspace uuid.UUID, bytes int64) {
	if l.isSmall(bytes) {
		return
	}
	if l.busy[workspace]--; l.busy[workspace] <= 0 {
		delete(l.busy, workspace)
	}
}

// ended frees the memory of a verification that was begun; nearly reports whether that was noted before.
func (l *admissionQueue) ended(workspace uuid.UUID, bytes int64, nearly bool) {
	if l.isSmall(bytes) {
		l.small.Return(workspace, bytes)
		return
	}
	l.large.Return(workspace, min(bytes, l.large.Size()))
	if !nearly {
		l.nearly(workspace, bytes)
	}
}

// bytes is the size of the files at work.
func (l *admissionQueue) bytes() int64 { return l.small.Used() + l.large.Used() }

// workspaceRounds says whose verification is leased next. In a round each workspace is served as many times as its
// weight. Each has a share of the leases; one that uses all of it is passed over until one of its leases ends. It is
// plain Go. Mailbox only.
type workspaceRounds struct {
	leases *quota.Pool[uuid.UUID]
	weight func(workspace uuid.UUID) int
	served map[uuid.UUID]int // in this round
}

func newWorkspaceRounds(leases int, weight func(uuid.UUID) int) workspaceRounds {
	return workspaceRounds{leases: quota.New[uuid.UUID](int64(leases)), weight: weight, served: map[uuid.UUID]int{}}
}

// except lists the workspaces that get nothing now.
func (t *workspaceRounds) except() []uuid.UUID {
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

// noteLease notes a lease, and returns false if it exceeds the share of its workspace.
func (t *workspaceRounds) noteLease(workspace uuid.UUID) bool {
	t.served[workspace]++
	return t.leases.Take(workspace, t.weight(workspace), 1)
}

// round begins another round and reports whether a workspace can be served again.
func (t *workspaceRounds) round() bool {
	changes := len(t.served) > 0
	clear(t.served)
	return changes
}

// ended gives a lease back.
func (t *workspaceRounds) ended(workspace uuid.UUID) { t.leases.Return(workspace, 1) }
