package engine

import (
	"context"
	"math"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// writeGate makes transactions of one process wait for each other here and not in the database. Those that change
// the account of one workspace take turns before they take a session. One that met conflicts repeatedly runs
// alone in its workspace. It also waits for transactions of other workspaces, for aloneTime at most: the rows
// of a small table share one page of an index, where all of them conflict.
type writeGate struct {
	node  *semaphore.Weighted // the places of all lanes together
	mu    sync.Mutex
	locks map[uuid.UUID]*workspaceLock
}

// workspaceLock is the gate of one workspace, kept while transactions use it.
type workspaceLock struct {
	users   int                 // transactions that run or wait
	account *semaphore.Weighted // for one
	places  *semaphore.Weighted // for many at once, or for one alone
}

// placesMax is all places of a lane, or of the node.
const placesMax = math.MaxInt32

func newWriteGate() *writeGate {
	return &writeGate{node: semaphore.NewWeighted(placesMax), locks: map[uuid.UUID]*workspaceLock{}}
}

// account waits for the turn at the account of a workspace, until ctx ends.
func (g *writeGate) account(ctx context.Context, workspace uuid.UUID) (leave func(), err error) {
	l := g.join(workspace)
	if err := l.account.Acquire(ctx, 1); err != nil {
		g.quit(workspace)
		return nil, err
	}
	return func() {
		l.account.Release(1)
		g.quit(workspace)
	}, nil
}

// enter waits for a place in a workspace, or for all of its places, until ctx ends. A transaction that is alone
// there also gets all places of the node if they are free soon; only says whether it did.
func (g *writeGate) enter(ctx context.Context, workspace uuid.UUID, alone bool) (leave func(), only bool, err error) {
	l, places := g.join(workspace), int64(1)
	if alone {
		places = placesMax
	}
	if err := l.places.Acquire(ctx, places); err != nil {
		g.quit(workspace)
		return nil, false, err
	}
	taken, err := g.enterNode(ctx, alone)
	leave = func() {
		g.node.Release(taken)
		l.places.Release(places)
		g.quit(workspace)
	}
	if err != nil {
		leave()
		return nil, false, err
	}
	return leave, taken == placesMax, nil
}

// enterNode takes a place of the node, or all places if they are free soon. It waits no longer, because a
// transaction that is running may itself wait for a lock.
func (g *writeGate) enterNode(ctx context.Context, alone bool) (places int64, err error) {
	if alone {
		soon, cancel := context.WithTimeout(ctx, aloneTime)
		defer cancel()
		if g.node.Acquire(soon, placesMax) == nil {
			return placesMax, nil
		}
	}
	if err := g.node.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	return 1, nil
}

// join finds the lane of a workspace.
func (g *writeGate) join(workspace uuid.UUID) *workspaceLock {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.locks[workspace]
	if l == nil {
		l = &workspaceLock{account: semaphore.NewWeighted(1), places: semaphore.NewWeighted(placesMax)}
		g.locks[workspace] = l
	}
	l.users++
	return l
}

// quit forgets the lane of a workspace when nobody uses it.
func (g *writeGate) quit(workspace uuid.UUID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.locks[workspace]
	if l.users--; l.users == 0 {
		delete(g.locks, workspace)
	}
}
