package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/cluster/share"
	"rollcall/ledger"
)

// heartbeats is the loop that writes to the ledger that this process lives and which members it sees, and reads there
// what it may use. Only its one goroutine may use it, apart from fence.
type heartbeats struct {
	node     *Node
	fence    fence
	complied int64                // generation up to which this node complies
	told     int64                // the same, as written to the ledger
	named    []uint64             // silent receivers that are certainly in this node's row, ascending
	voted    []ledger.Incarnation // view that was published last
	began    bool                 // there was a heartbeat
	unsure   bool                 // the ledger did not answer the last heartbeat: it may have been written
	table    *share.Table         // of the newest snapshot
	kept     *share.Table         // the table that this node complies with
	behind   int                  // heartbeats in a row that failed
	apart    apart
}

func newHeartbeats(n *Node) *heartbeats {
	return &heartbeats{node: n, apart: apart{lost: n.times.Lost}, fence: fence{after: n.times.Fence,
		ahead: n.times.Unacknowledged}}
}

// run sends heartbeats until ctx ends. look is signalled when the view may have changed.
func (b *heartbeats) run(ctx context.Context, look <-chan struct{}) {
	for ctx.Err() == nil {
		wait := b.round(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-look:
		}
		timer.Stop()
	}
}

// round does one heartbeat and returns the time until the next.
func (b *heartbeats) round(ctx context.Context) time.Duration {
	if b.fence.up() && !b.rest(ctx) {
		return b.node.times.Soon
	}
	b.node.refreshView()
	said := b.node.links.said()
	if err := b.writeHeartbeat(ctx); err != nil {
		return b.failed(ctx, err)
	}
	b.node.part(*b.node.snapshot.Load(), said)
	if b.behind > 0 {
		b.node.log.Info("ledger takes heartbeats again", "failed", b.behind)
		b.behind = 0
	}
	b.node.tend(ctx)
	if b.table.Settled() && slices.Equal(b.voted, b.node.lookup.view.Load().members) {
		return b.node.times.Heartbeat
	}
	return b.node.times.Soon
}

// rest makes this node use nothing before others may count it out.
func (b *heartbeats) rest(ctx context.Context) bool {
	b.table, b.kept = nil, nil
	b.node.shares.Store(nil)
	if b.comply(ctx) != nil {
		return false
	}
	// Receivers may still hold sessions that this node ended. The other nodes spare receivers that its row names.
	hashes, all := b.node.silence()
	b.node.rested.Store(all && len(common(hashes, b.named)) == len(hashes))
	return true
}

// writeHeartbeat writes this node's row, reads the others' rows, and complies with the result.
func (b *heartbeats) writeHeartbeat(ctx context.Context) error {
	// A vote may change only when all have read the one before, or they would count it twice.
	if !b.began || !b.unsure && b.table.Settled() {
		b.began, b.voted = true, b.node.lookup.view.Load().members
	}
	silent, all := b.node.silence()
	if all { // otherwise somebody would use a receiver that is not named
		b.told = b.complied
	}
	sent := time.Now()
	within, cancel := context.WithTimeout(ctx, b.heartbeatTime(sent))
	defer cancel()
	roll, err := b.node.peers.Book.WriteHeartbeat(within, b.node.heartbeatOf(b.voted, b.told, silent))
	if b.unsure = err != nil; b.unsure {
		b.named = common(b.named, silent) // the row has the old list or the new one
		return err
	}
	b.named = silent
	b.node.rested.Store(false)
	b.fence.beaten(sent)
	b.node.snapshot.Store(&roll)
	b.node.offset.Store(int64(roll.Now.Sub(time.Now().Round(0))))
	b.table = share.Compute(roll, b.node.meta.Session, b.node.times.Rest)
	b.node.shares.Store(b.table)
	// Receivers need to comply only if the shares changed, or if the last time failed halfway.
	if b.kept == nil || !b.table.Same(b.kept) {
		b.kept = nil
		if b.comply(ctx) != nil {
			return nil
		}
	}
	b.kept, b.complied = b.table, roll.Generation
	return nil
}

// heartbeatTime bounds a heartbeat, so that the loop notices in time when the fence goes up.
func (b *heartbeats) heartbeatTime(now time.Time) time.Duration {
	if b.fence.sent.Load() == nil { // nothing is used yet, and a node whose first heartbeat fails does not start
		return max(startTimeout, b.node.times.HeartbeatWithin)
	}
	if until := b.fence.until(); !until.IsZero() {
		return min(b.node.times.HeartbeatWithin, max(until.Sub(now), b.node.times.Soon))
	}
	return b.node.times.HeartbeatWithin
}

func (b *heartbeats) comply(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, b.node.times.ComplyWithin)
	defer cancel()
	err := b.node.options.Comply(within, b.node.Share)
	if err != nil && ctx.Err() == nil {
		b.node.log.Warn("receivers did not apply new shares in time", "err", err)
	}
	return err
}

// failed logs that the ledger did not take a heartbeat, less often the longer this lasts.
func (b *heartbeats) failed(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	b.node.metrics.heartbeatsFailed.Inc()
	if b.behind++; b.behind&(b.behind-1) == 0 {
		b.node.log.Warn("ledger did not take a heartbeat", "attempt", b.behind, "err", err)
	}
	if errors.Is(err, ledger.ErrOtherCluster) {
		b.node.fail(err)
	}
	return b.node.times.Soon
}

// heartbeatOf returns this process's heartbeat.
func (n *Node) heartbeatOf(view []ledger.Incarnation, read int64, silent []uint64) ledger.Heartbeat {
	load := n.options.Load()
	return ledger.Heartbeat{Incarnation: ledger.Incarnation{Session: n.meta.Session, Node: n.meta.Node},
		Cluster: n.options.Name, Name: n.meta.Name, Version: n.meta.Version, Actors: n.meta.Actors,
		Draining: n.Draining(), Started: time.UnixMilli(n.meta.Started), View: view, Read: read, Silent: silent,
		Leases: load.Leases, Addresses: load.Addresses, Receivers: load.Receivers}
}

// silence returns the hashed keys of receivers that may still hold sessions this process has ended. all is false when
// there are more than ledger.SilentMax.
func (n *Node) silence() (hashes []uint64, all bool) {
	if n.options.Silent == nil {
		return nil, true
	}
	for _, key := range n.options.Silent() {
		hashes = append(hashes, share.Hash(key))
	}
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	all = len(hashes) <= ledger.SilentMax
	return hashes[:min(len(hashes), ledger.SilentMax)], all
}

// common returns what is in both of two ascending lists.
func common(a, b []uint64) (both []uint64) {
	for _, h := range a {
		if _, found := slices.BinarySearch(b, h); found {
			both = append(both, h)
		}
	}
	return both
}

// tend acts on the newest snapshot: it drains this node while an operator wants that, and starts a search for lost
// processes beside the heartbeats.
func (n *Node) tend(ctx context.Context) {
	roll := n.snapshot.Load()
	if row := sessionIn(roll, n.meta.Session); row != nil && row.DrainAsked != n.wished.Load() {
		if row.DrainAsked {
			n.log.Info("draining, as an operator asked")
		} else {
			n.log.Info("taking work again, as an operator asked")
		}
		n.wish(row.DrainAsked)
	}
	lost := slices.DeleteFunc(slices.Clone(roll.Nodes), func(row ledger.NodeRow) bool {
		return row.Session == n.meta.Session || !n.missing(roll, row)
	})
	if len(lost) > 0 && n.searching.CompareAndSwap(false, true) {
		n.running.Go(func() {
			defer n.searching.Store(false)
			n.search(ctx, lost)
		})
	}
}

// missing reports whether a process has to be counted out, or may still have SMTP
// sessions after that.
func (n *Node) missing(roll *ledger.NodeSnapshot, row ledger.NodeRow) bool {
	unseen := roll.Now.Sub(row.Seen)
	return row.Status == ledger.NodeIn && unseen >= n.times.Lost ||
		row.Status == ledger.NodeLost && !row.Dead && unseen < n.times.Rest
}

// search counts out the lost processes, all at the same time, and marks those dead that certainly have no SMTP
// sessions.
func (n *Node) search(ctx context.Context, lost []ledger.NodeRow) {
	var all sync.WaitGroup
	for _, row := range lost {
		all.Go(func() {
			dead := n.ended(ctx, row)
			if dead || row.Status == ledger.NodeIn {
				n.retire(ctx, row, dead)
				n.wake()
			}
		})
	}
	all.Wait()
}

func (n *Node) retire(ctx context.Context, row ledger.NodeRow, dead bool) {
	within, cancel := context.WithTimeout(ctx, n.times.HeartbeatWithin)
	defer cancel()
	if err := n.peers.Book.Retire(within, row.Session, n.times.Lost, dead); err != nil {
		n.log.Warn("lost node not counted out", "node", row.Name, "err", err)
		return
	}
	n.log.Warn("node lost", "node", row.Name, "seen", row.Seen, "dead", dead)
}

// ended reports whether a process without heartbeats certainly has no SMTP sessions: a later process of its node has
// its address, nothing listens there, or it says so itself.
func (n *Node) ended(ctx context.Context, row ledger.NodeRow) bool {
	for _, other := range n.snapshot.Load().Nodes {
		if other.Status == ledger.NodeIn && other.Node == row.Node &&
			other.Actors == row.Actors && other.Started.After(row.Started) {
			return true
		}
	}
	return n.refuses(ctx, row.Actors) || n.rests(row.Session, row.Actors)
}

// sessionIn returns the row of a session that is a member by the snapshot; nil: there is none.
func sessionIn(roll *ledger.NodeSnapshot, session uuid.UUID) *ledger.NodeRow {
	if roll == nil {
		return nil
	}
	for i, row := range roll.Nodes {
		if row.Session == session && row.Status == ledger.NodeIn {
			return &roll.Nodes[i]
		}
	}
	return nil
}

// links knows which members answer over actor traffic. A member that gossip sees may be unreachable for messages:
// another network, a wrong certificate. Safe for concurrent use.
type links struct {
	system  *actor.ActorSystem
	changed func()
	turn    func() int64  // the generation that this node has read
	life    time.Duration // of an answer: Times.LinkLife
	within  time.Duration // an answer comes: Times.Ask

	mu         sync.Mutex
	heard      map[uuid.UUID]time.Time // guarded by mu; when the last answer came
	heartbeats map[uuid.UUID]int64     // guarded by mu; from the last answer, see said
	asked      map[uuid.UUID]bool      // guarded by mu; an answer is awaited
}

func newLinks(system *actor.ActorSystem, t Times, turn func() int64, changed func()) *links {
	return &links{system: system, turn: turn, changed: changed, life: t.LinkLife, within: t.Ask,
		heard: map[uuid.UUID]time.Time{}, heartbeats: map[uuid.UUID]int64{}, asked: map[uuid.UUID]bool{}}
}

// linked reports whether a member answered a short while ago.
func (l *links) linked(session uuid.UUID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.heard[session]
	return ok && time.Since(at) < l.life
}

// said returns the times at which, by the members' own words, their ledger took their last heartbeat, in milliseconds
// by the ledger's clock.
func (l *links) said() map[uuid.UUID]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.heartbeats)
}

// ask asks every other member whose answer is not awaited already, and forgets former members.
func (l *links) ask(members []gossip.Member, self uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	present := make(map[uuid.UUID]bool, len(members))
	for _, m := range members {
		present[m.Session] = true
		if m.Session != self && !l.asked[m.Session] {
			l.asked[m.Session] = true
			go l.touch(m.Session, m.Actors)
		}
	}
	for session := range l.heard {
		if !present[session] {
			delete(l.heard, session)
			delete(l.heartbeats, session)
		}
	}
}

// touch asks one member. An answer of another process at that address does not count.
func (l *links) touch(session uuid.UUID, address string) {
	state, err := askState(l.system, session, address, l.within)
	l.mu.Lock()
	before, known := l.heard[session]
	delete(l.asked, session)
	if err == nil {
		l.heard[session], l.heartbeats[session] = time.Now(), state.GetBeat()
	}
	news := err == nil && (!known || time.Since(before) >= l.life) ||
		err != nil && known && time.Since(before) >= l.life
	l.mu.Unlock()
	// If a member knows a newer generation this node reads it at once, because changes settle only when all have read
	// them.
	if news || state.GetTurn() > l.turn() {
		l.changed()
	}
}
