package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/ledger"
)

// heartbeats is a loop around the ledger. It writes that this process lives and which members it sees, and reads what
// this process may use. Only its one goroutine may use it, except for fence and the atomic fields.
type heartbeats struct {
	node         *Node
	fence        fence
	applied      int64                // generation whose shares this node has applied
	written      int64                // value of applied in this node's row
	named        []uint64             // silent receivers that are certainly in this node's row, ascending
	voted        []ledger.Incarnation // view that was published last
	began        bool                 // there was a heartbeat
	unsure       bool                 // the ledger did not answer the last heartbeat, but may have written it
	table        *ShareTable          // of the newest snapshot
	appliedTable *ShareTable          // the table that this node has applied
	behind       int                  // heartbeats in a row that failed
	apart        apart
	unreached    map[uuid.UUID]bool // lost processes whose machine once couldn't be reached; search alone uses it

	// Other goroutines read these fields.
	snapshot  atomic.Pointer[ledger.NodeSnapshot] // the newest
	shares    atomic.Pointer[ShareTable]
	offset    atomic.Int64 // of the ledger's clock from ours, in nanoseconds
	suspended atomic.Bool  // this node uses nothing until the next good heartbeat
	searching atomic.Bool  // a search for lost processes runs
}

func newHeartbeats(n *Node) *heartbeats {
	return &heartbeats{node: n, apart: apart{lost: n.times.Lost}, fence: fence{after: n.times.Fence,
		ahead: n.times.Unacknowledged}}
}

// run sends heartbeats until ctx ends. look is signalled when the view may have changed.
func (b *heartbeats) run(ctx context.Context, look <-chan struct{}) {
	for ctx.Err() == nil {
		wait := b.round(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-look:
		}
	}
}

// round does one heartbeat and returns the time until the next.
func (b *heartbeats) round(ctx context.Context) time.Duration {
	if b.fence.up() && !b.suspend(ctx) {
		return b.node.times.Soon
	}
	b.node.refreshView()
	said := b.node.links.said()
	if err := b.writeHeartbeat(ctx); err != nil {
		return b.failed(ctx, err)
	}
	for _, session := range b.apart.compareViews(*b.snapshot.Load(), said) {
		b.node.gossip.Refuse(session) // the member works on another ledger with this ledger's identity
	}
	if b.behind > 0 {
		b.node.log.Info("heartbeats are written again", "failed", b.behind)
		b.behind = 0
	}
	b.act(ctx)
	if b.table.Settled() && slices.Equal(b.voted, b.node.lookup.view.Load().members) {
		return b.node.times.Heartbeat
	}
	return b.node.times.Soon
}

// suspend makes this node stop using receivers before others may count it out.
func (b *heartbeats) suspend(ctx context.Context) bool {
	b.table, b.appliedTable = nil, nil
	b.shares.Store(nil)
	if b.applyShares(ctx) != nil {
		return false
	}
	// A receiver may still hold sessions that this node ended. Other nodes don't ask it if this node's row names it.
	hashes, all := b.silence()
	b.suspended.Store(all && len(common(hashes, b.named)) == len(hashes))
	return true
}

// writeHeartbeat writes this node's row, reads the others' rows, and applies the shares.
func (b *heartbeats) writeHeartbeat(ctx context.Context) error {
	// A vote may change only when all processes have read the change before, or they would count the vote twice.
	if !b.began || !b.unsure && b.table.Settled() {
		b.began, b.voted = true, b.node.lookup.view.Load().members
	}
	silent, all := b.silence()
	if all { // with an incomplete list, another node would use a receiver that is missing from it
		b.written = b.applied
	}
	sent := time.Now()
	within, cancel := context.WithTimeout(ctx, b.heartbeatTime(sent))
	defer cancel()
	roll, err := b.node.peers.Book.WriteHeartbeat(within, b.row(silent))
	if b.unsure = err != nil; b.unsure {
		b.named = common(b.named, silent) // the row has the old list or the new one, so only these are certain
		return err
	}
	b.named = silent
	b.suspended.Store(false)
	b.fence.beaten(sent)
	b.snapshot.Store(&roll)
	b.offset.Store(int64(roll.Now.Sub(time.Now().Round(0))))
	b.table = ComputeShares(roll, b.node.meta.Session, b.node.times.Linger)
	b.shares.Store(b.table)
	// Receivers need to be asked only if the shares changed, or if the last time failed halfway.
	if b.appliedTable == nil || !b.table.Same(b.appliedTable) {
		b.appliedTable = nil
		if b.applyShares(ctx) != nil {
			return nil
		}
	}
	b.appliedTable, b.applied = b.table, roll.Generation
	return nil
}

// heartbeatTime bounds a heartbeat, so that the loop notices in time when the fence goes up.
func (b *heartbeats) heartbeatTime(now time.Time) time.Duration {
	if b.fence.sent.Load() == nil { // this node uses nothing yet, and does not start if its first heartbeat fails
		return max(startTimeout, b.node.times.HeartbeatWithin)
	}
	if until := b.fence.until(); !until.IsZero() {
		return min(b.node.times.HeartbeatWithin, max(until.Sub(now), b.node.times.Soon))
	}
	return b.node.times.HeartbeatWithin
}

func (b *heartbeats) applyShares(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, b.node.times.ApplyWithin)
	defer cancel()
	err := b.node.options.ApplyShares(within, b.node.Share)
	if err != nil && ctx.Err() == nil {
		b.node.log.Warn("receivers did not apply new shares in time", "err", err)
	}
	return err
}

// failed logs that a heartbeat was not written, and logs less often the longer this lasts.
func (b *heartbeats) failed(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	b.node.metrics.heartbeatsFailed.Inc()
	if b.behind++; b.behind&(b.behind-1) == 0 {
		b.node.log.Warn("heartbeat not written", "attempt", b.behind, "err", err)
	}
	if errors.Is(err, ledger.ErrOtherCluster) {
		b.node.loops.fail(err)
	}
	return b.node.times.Soon
}

func (b *heartbeats) row(silent []uint64) ledger.Heartbeat {
	n, load := b.node, b.node.options.Load()
	return ledger.Heartbeat{Incarnation: ledger.Incarnation{Session: n.meta.Session, Node: n.meta.Node},
		Cluster: n.options.Name, Name: n.meta.Name, Version: n.meta.Version, Actors: n.meta.Actors,
		Draining: n.Draining(), Started: time.UnixMilli(n.meta.Started), View: b.voted, Read: b.written, Silent: silent,
		Leases: load.Leases, Addresses: load.Addresses, Receivers: load.Receivers}
}

// writeLeave writes two things to the ledger: this process no longer uses anything, and these receivers may still
// hold its sessions.
func (b *heartbeats) writeLeave(ctx context.Context) error {
	n := b.node
	within, cancel := context.WithTimeout(ctx, silenceWithin)
	defer cancel()
	silent, _ := b.silence()
	for ; len(silent) > 0 && within.Err() == nil; silent, _ = b.silence() {
		select {
		case <-within.Done():
		case <-time.After(silenceWithin / 20):
		}
	}
	within, cancel = context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	if len(silent) > 0 && !b.fence.up() {
		if _, err := n.peers.Book.WriteHeartbeat(within, b.row(silent)); err != nil {
			return fmt.Errorf("cluster: record the receivers with silent sessions in the ledger: %w", err)
		}
	}
	if err := n.peers.Book.Leave(within, n.meta.Session); err != nil {
		return fmt.Errorf("cluster: record in the ledger that this node leaves: %w", err)
	}
	return nil
}

// silence returns the hashed keys of receivers that may still hold sessions this process has ended. all is false when
// there are more than ledger.SilentMax.
func (b *heartbeats) silence() (hashes []uint64, all bool) {
	if b.node.options.Silent == nil {
		return nil, true
	}
	for _, key := range b.node.options.Silent() {
		hashes = append(hashes, Hash(key))
	}
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	all = len(hashes) <= ledger.SilentMax
	return hashes[:min(len(hashes), ledger.SilentMax)], all
}

// common returns the values that are in both of two ascending lists.
func common(a, b []uint64) (both []uint64) {
	for _, h := range a {
		if _, found := slices.BinarySearch(b, h); found {
			both = append(both, h)
		}
	}
	return both
}

// act acts on the newest snapshot. It drains this node as long as an operator wants that, and searches for lost
// processes in a goroutine of its own.
func (b *heartbeats) act(ctx context.Context) {
	roll := b.snapshot.Load()
	if row := sessionIn(roll, b.node.meta.Session); row != nil && row.DrainAsked != b.node.drains.wished.Load() {
		if row.DrainAsked {
			b.node.log.Info("draining, as an operator asked")
		} else {
			b.node.log.Info("taking work again, as an operator asked")
		}
		b.node.wish(row.DrainAsked)
	}
	lost := slices.DeleteFunc(slices.Clone(roll.Nodes), func(row ledger.NodeRow) bool {
		return row.Session == b.node.meta.Session || !b.missing(roll, row)
	})
	if len(lost) > 0 && b.searching.CompareAndSwap(false, true) {
		b.node.loops.running.Go(func() {
			defer b.searching.Store(false)
			b.search(ctx, lost)
		})
	}
}

// missing reports whether a process has to be counted out, or may still have SMTP sessions after that.
func (b *heartbeats) missing(roll *ledger.NodeSnapshot, row ledger.NodeRow) bool {
	unseen := roll.Now.Sub(row.Seen)
	return row.Status == ledger.NodeIn && unseen >= b.node.times.Lost ||
		row.Status == ledger.NodeLost && !row.Dead && unseen < b.node.times.Linger
}

// search counts out all lost processes at the same time. It marks as dead those that certainly have no SMTP sessions.
func (b *heartbeats) search(ctx context.Context, lost []ledger.NodeRow) {
	var all sync.WaitGroup
	reached := make([]bool, len(lost))
	for i, row := range lost {
		all.Go(func() {
			var dead bool
			dead, reached[i] = b.ended(ctx, row)
			if dead || row.Status == ledger.NodeIn {
				b.retire(ctx, row, dead)
				b.node.loops.wake()
			}
		})
	}
	all.Wait()
	unreached := map[uuid.UUID]bool{}
	for i, row := range lost {
		unreached[row.Session] = !reached[i]
	}
	b.unreached = unreached
}

func (b *heartbeats) retire(ctx context.Context, row ledger.NodeRow, dead bool) {
	within, cancel := context.WithTimeout(ctx, b.node.times.HeartbeatWithin)
	defer cancel()
	if err := b.node.peers.Book.Retire(within, row.Session, b.node.times.Lost, dead); err != nil {
		b.node.log.Warn("lost node not retired", "node", row.Name, "err", err)
		return
	}
	b.node.log.Warn("node lost", "node", row.Name, "seen", row.Seen, "dead", dead)
}

// ended reports whether a process without heartbeats certainly has no SMTP sessions: a later process of its node has
// its address, nothing listens at its address, or the process confirms that itself. Its system then told the receivers
// that the sessions ended. This may have been in vain if reached is false: since the process was lost, its machine once
// couldn't be reached, so it was cut off or without power.
func (b *heartbeats) ended(ctx context.Context, row ledger.NodeRow) (ended, reached bool) {
	reached = !b.unreached[row.Session]
	if reached && b.isReplaced(row) {
		return true, true
	}
	switch err := dial(ctx, row.Actors, b.node.times.Ask); {
	case errors.Is(err, syscall.ECONNREFUSED): // the machine is up, and the process is gone
		return reached, reached
	case err != nil:
		return false, false
	}
	state, err := askState(b.node.system, row.Session, row.Actors, b.node.times.Ask)
	return err == nil && state.GetSuspended(), reached
}

// isReplaced reports whether a later process of the node has its address. This process can't know whether the machine
// of an earlier one was ever unreachable: it goes by whether others have counted the earlier one out, and whether the
// machine has started anew.
func (b *heartbeats) isReplaced(row ledger.NodeRow) bool {
	roll := b.snapshot.Load()
	return slices.ContainsFunc(roll.Nodes, func(other ledger.NodeRow) bool {
		return other.Status == ledger.NodeIn && other.Node == row.Node &&
			other.Actors == row.Actors && other.Started.After(row.Started) &&
			(other.Session != b.node.meta.Session || row.Status == ledger.NodeIn && upFor() > roll.Now.Sub(row.Seen))
	})
}

// upFor is how long this machine has been up; for ever, where the system doesn't tell in /proc/uptime (proc_uptime(5)).
func upFor() time.Duration {
	text, _ := os.ReadFile("/proc/uptime")
	var seconds float64
	if _, err := fmt.Sscan(string(text), &seconds); err != nil {
		return math.MaxInt64
	}
	return time.Duration(seconds * float64(time.Second))
}

// sessionIn returns the row of a session that the snapshot lists as a member, or nil.
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
	system     *actor.ActorSystem
	changed    func()
	generation func() int64  // the generation that this node has read
	life       time.Duration // of an answer: Times.LinkLife
	within     time.Duration // an answer must come: Times.Ask

	mu         sync.Mutex
	answered   map[uuid.UUID]time.Time // guarded by mu; when the last answer came
	heartbeats map[uuid.UUID]int64     // guarded by mu; from the last answer, see said
	asked      map[uuid.UUID]bool      // guarded by mu; an answer is awaited
}

func newLinks(system *actor.ActorSystem, t Times, turn func() int64, changed func()) *links {
	return &links{system: system, generation: turn, changed: changed, life: t.LinkLife, within: t.Ask,
		answered: map[uuid.UUID]time.Time{}, heartbeats: map[uuid.UUID]int64{}, asked: map[uuid.UUID]bool{}}
}

// linked reports whether a member answered a short while ago.
func (l *links) linked(session uuid.UUID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.answered[session]
	return ok && time.Since(at) < l.life
}

// said returns when the ledger took the last heartbeat of each member, as the members report it, in milliseconds by
// the ledger's clock.
func (l *links) said() map[uuid.UUID]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.heartbeats)
}

// ask asks every other member, unless an earlier question still waits for its answer. It forgets former members.
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
	for session := range l.answered {
		if !present[session] {
			delete(l.answered, session)
			delete(l.heartbeats, session)
		}
	}
}

// touch asks one member. It ignores the answer of another process at that address.
func (l *links) touch(session uuid.UUID, address string) {
	state, err := askState(l.system, session, address, l.within)
	l.mu.Lock()
	before, known := l.answered[session]
	delete(l.asked, session)
	if err == nil {
		l.answered[session], l.heartbeats[session] = time.Now(), state.GetHeartbeat()
	}
	news := err == nil && (!known || time.Since(before) >= l.life) || err != nil && known && time.Since(before) >= l.life
	l.mu.Unlock()
	// If a member knows a newer generation, this node reads that generation at once, because changes settle only when
	// all have read them.
	if news || state.GetGeneration() > l.generation() {
		l.changed()
	}
}
