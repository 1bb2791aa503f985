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

// heartbeats is the loop that tells the ledger that this process lives and what it
// sees, and learns there what it may use. One goroutine, but for what is said to
// be safe.
type heartbeats struct {
	node     *Node
	fence    fence
	complied int64                // turn up to which this node keeps to what it read
	told     int64                // the same, as the ledger was told
	named    []uint64             // silent receivers that are surely in this node's row, ascending
	voted    []ledger.Incarnation // view that was published last
	began    bool                 // there was a heartbeat
	unsure   bool                 // the ledger did not answer the last heartbeat: it may have been written
	table    *share.Table         // as of the newest roll
	kept     *share.Table         // that this node keeps to
	behind   int                  // heartbeats in a row that failed
	apart    apart
}

func newHeartbeats(n *Node) *heartbeats {
	return &heartbeats{node: n, apart: apart{lost: n.times.Lost}, fence: fence{after: n.times.Fence,
		ahead: n.times.Unacknowledged}}
}

// run beats until ctx ends. look is signalled when the view may be another.
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

// round is one heartbeat; it gives the time until the next.
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

// rest makes this node use nothing, before others may count it out.
func (b *heartbeats) rest(ctx context.Context) bool {
	b.table, b.kept = nil, nil
	b.node.shares.Store(nil)
	if b.comply(ctx) != nil {
		return false
	}
	// Receivers may hold what this node has ended. Nobody uses those that its row names.
	hashes, all := b.node.silence()
	b.node.rested.Store(all && len(common(hashes, b.named)) == len(hashes))
	return true
}

// writeHeartbeat writes that we live, reads what the others wrote, and keeps to it.
func (b *heartbeats) writeHeartbeat(ctx context.Context) error {
	// A vote changes when all have read the one before, or they would count it twice.
	if !b.began || !b.unsure && b.table.Settled() {
		b.began, b.voted = true, b.node.lookup.view.Load().members
	}
	silent, all := b.node.silence()
	if all { // else somebody would count on a receiver that is not named
		b.told = b.complied
	}
	sent := time.Now()
	within, cancel := context.WithTimeout(ctx, b.heartbeatTime(sent))
	defer cancel()
	roll, err := b.node.peers.Book.WriteHeartbeat(within, b.node.heartbeatOf(b.voted, b.told, silent))
	if b.unsure = err != nil; b.unsure {
		b.named = common(b.named, silent) // the row is one or the other
		return err
	}
	b.named = silent
	b.node.rested.Store(false)
	b.fence.beaten(sent)
	b.node.snapshot.Store(&roll)
	b.node.offset.Store(int64(roll.Now.Sub(time.Now().Round(0))))
	b.table = share.Compute(roll, b.node.meta.Session, b.node.times.Rest)
	b.node.shares.Store(b.table)
	// Looking at every receiver is for when something has changed, or may have been
	// kept to in part.
	if b.kept == nil || !b.table.Same(b.kept) {
		b.kept = nil
		if b.comply(ctx) != nil {
			return nil
		}
	}
	b.kept, b.complied = b.table, roll.Generation
	return nil
}

// heartbeatTime bounds a heartbeat: so that the fence is noticed when it goes up.
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
		b.node.log.Warn("receivers are slow to keep to new shares", "err", err)
	}
	return err
}

// failed says that the ledger did not take a heartbeat, with fewer lines the
// longer it lasts.
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

// heartbeatOf is what this process says of itself.
func (n *Node) heartbeatOf(view []ledger.Incarnation, read int64, silent []uint64) ledger.Heartbeat {
	load := n.options.Load()
	return ledger.Heartbeat{Incarnation: ledger.Incarnation{Session: n.meta.Session, Node: n.meta.Node},
		Cluster: n.options.Name, Name: n.meta.Name, Version: n.meta.Version, Actors: n.meta.Actors,
		Draining: n.Draining(), Started: time.UnixMilli(n.meta.Started), View: view, Read: read, Silent: silent,
		Leases: load.Leases, Addresses: load.Addresses, Receivers: load.Receivers}
}

// silence returns the keys of which receivers may hold sessions that this process has ended,
// hashed, and whether these are all: the ledger takes no more than so many.
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

// tend does what the newest roll asks for: it drains this node while an operator
// wants it, and looks beside the heartbeats after those that are lost.
func (n *Node) tend(ctx context.Context) {
	roll := n.snapshot.Load()
	if row := sessionIn(roll, n.meta.Session); row != nil && row.DrainAsked != n.wished.Load() {
		if row.DrainAsked {
			n.log.Info("draining, as an operator asked for")
		} else {
			n.log.Info("taking work again, as an operator asked for")
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

// search counts out those that are lost, all at a time, and says who of them has no
// SMTP sessions any more.
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

// ended reports whether a process that the ledger does not hear of is known to have
// no SMTP sessions: a later life of its node has its address, nothing listens
// there any more, or it says so itself.
func (n *Node) ended(ctx context.Context, row ledger.NodeRow) bool {
	for _, other := range n.snapshot.Load().Nodes {
		if other.Status == ledger.NodeIn && other.Node == row.Node &&
			other.Actors == row.Actors && other.Started.After(row.Started) {
			return true
		}
	}
	return n.refuses(ctx, row.Actors) || n.rests(row.Session, row.Actors)
}

// sessionIn returns the row of a session in a roll; nil: there is none that is in.
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

// links knows which members answer over actor traffic. Gossip alone may see a
// member that nobody can send a message to: another network, a certificate that
// does not fit. Safe for concurrent use.
type links struct {
	system  *actor.ActorSystem
	changed func()
	turn    func() int64  // that this node has read
	life    time.Duration // of an answer: Times.LinkLife
	within  time.Duration // an answer comes: Times.Ask

	mu         sync.Mutex
	heard      map[uuid.UUID]time.Time // guarded by mu; the last answer
	heartbeats map[uuid.UUID]int64     // guarded by mu; of the last answer, see said
	asked      map[uuid.UUID]bool      // guarded by mu; a question is out
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

// said returns when members say that their ledger took their last heartbeat, by the ledger's
// clock in milliseconds.
func (l *links) said() map[uuid.UUID]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.heartbeats)
}

// ask asks every member but this one that no question is out to, and forgets who
// is a member no more.
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

// touch puts one question. What another process at that address says does not count.
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
	// A turn that a member knows is read sooner than by the next heartbeat, because
	// it settles when all have read it.
	if news || state.GetTurn() > l.turn() {
		l.changed()
	}
}
