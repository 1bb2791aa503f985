package scheduler

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/wire"
)

const (
	// chunksPerTask is how many open chunks a task may have here: one is asked and one waits, so that sessions never run
	// dry. As many again may wait for acknowledgements. Chunks of due retries count separately, with the same bound.
	chunksPerTask = 2

	// queueMax bounds the probes that wait here, over all tasks: 100 bytes each, 20 MB. At the bound offers are refused as
	// full, and nothing is lost. Due retries may exceed it by half.
	queueMax = 200_000

	// retiredMax bounds the tasks without chunks whose finished chunks or answers are remembered: 1.5 KB each, 15 MB.
	// Above retiredMax only the epochs of the oldest tasks are kept.
	retiredMax = 10_000

	// epochsMax bounds the remembered epochs of verifications: some 50 bytes each. Beyond epochsMax the oldest epochs are
	// forgotten, and a stale owner's probes may be asked once more.
	epochsMax = 200_000

	rememberFor    = time.Minute      // how long a finished chunk is remembered, against late copies of its offer
	taskMemory     = 10 * time.Minute // how long a task's epoch is remembered; no owner works so long without its lease
	resendEvery    = 2 * time.Second  // unacknowledged results are sent again after this
	resendFor      = time.Minute      // unacknowledged results are dropped after this; a living client offers again
	shareWait      = 3 * time.Second  // the wait in a pulse while our share is zero
	heartbeatEvery = time.Second      // a client that hears nothing for 5 s takes us for dead
	flushEvery     = 200 * time.Millisecond

	// behindFor is how long we believe a client's reported backlog without a new offer.
	behindFor = 10 * time.Second
)

// Client offers a task's chunks and gets the answers.
type Client struct {
	Name    string // unique to the client
	Address string // address of the client's node
	ID      string // its actor's id there; a handle would keep an ended actor in memory
}

// task is the scheduler's state of one task. A task without open chunks remembers only its finished chunks. After
// rememberFor only the epoch of its verification is remembered.
type task struct {
	key      wire.TaskKey
	epoch    int64
	client   Client
	space    uuid.UUID // the workspace, as the newest offer names it
	tenant   string    // the workspace in the form that Pace compares
	chunks   []*chunk
	queue    *hostQueue        // queue of the newest chunk
	done     []doneChunk       // oldest first
	beatAt   time.Time         // when the client last got a pulse, or results again
	owed     time.Time         // since when results wait for a message of the client; zero: none wait
	known    map[uint32]answer // final answers, by ordinal, that an earlier owner didn't acknowledge
	notified bool              // the client has got Moved
	until    time.Time         // when it may be forgotten
	retired  bool              // the task is in tasks.retired
	owing    bool              // the task is in tasks.owing
	behind   behind
}

// behind is a task's backlog at its client, by its newest offer.
type behind struct {
	n     int
	since time.Time // when the oldest address began to wait
	at    time.Time // when the backlog was reported
}

type doneChunk struct {
	number uint64
	until  time.Time
}

// belongTo notes the workspace of a task. No workspace is the zero workspace.
func (t *task) belongTo(workspace []byte) {
	if id, _ := uuid.FromBytes(workspace); id != t.space || t.tenant == "" {
		t.space, t.tenant = id, string(id[:])
	}
}

func (t *task) findChunk(number uint64) *chunk {
	for _, c := range t.chunks {
		if c.number == number {
			return c
		}
	}
	return nil
}

// knows reports whether a chunk is here, or was finished lately.
func (t *task) knows(now time.Time, number uint64) bool {
	for len(t.done) > 0 && now.After(t.done[0].until) {
		t.done = t.done[1:]
	}
	for _, d := range t.done {
		if d.number == number {
			return true
		}
	}
	return t.findChunk(number) != nil
}

// open returns how many chunks have unanswered probes.
func (t *task) open() int {
	unanswered, _ := t.count(false)
	retries, _ := t.count(true)
	return unanswered + retries
}

// count returns how many chunks have unanswered probes, and how many chunks there are. retries chooses between chunks
// of due retries and other chunks.
func (t *task) count(retries bool) (open, all int) {
	for _, c := range t.chunks {
		if c.retries != retries {
			continue
		}
		if all++; c.open > 0 {
			open++
		}
	}
	return open, all
}

type tasks struct {
	all     map[wire.TaskKey]*task
	busy    map[*task]struct{}    // tasks with chunks
	retired fairqueue.FIFO[*task] // tasks without chunks, and some that have new ones
	owing   fairqueue.FIFO[*task] // tasks with unacknowledged answers, and some that have new chunks
	epochs  epochs                // epochs of forgotten tasks
	stale   bool                  // queues still hold dropped probes
	waiters map[*task]struct{}    // tasks with a backlog at their client
	behind  int                   // backlog of all waiters
	fair    *fairqueue.Queue[*Probe]
}

func newTasks(fair *fairqueue.Queue[*Probe]) tasks {
	return tasks{all: map[wire.TaskKey]*task{}, busy: map[*task]struct{}{}, waiters: map[*task]struct{}{}, fair: fair}
}

// hasRoom reports whether n more probes of a task, due retries or other probes, may be queued. A small task always has
// room.
func (t *tasks) hasRoom(k *task, n int, retries bool) bool {
	most := queueMax
	if retries {
		most += queueMax / 2
	}
	open, all := k.count(retries)
	return all < 2*chunksPerTask && open < chunksPerTask &&
		n <= t.fair.Room(t.fair.Flow(k.space, k.key.Verification), most)
}

// countCredit returns how many more chunks of a task are welcome now. Due retries don't count.
func (t *tasks) countCredit(k *task) uint32 {
	if !t.hasRoom(k, wire.AddressesMax, false) {
		return 0
	}
	open, _ := k.count(false)
	return uint32(chunksPerTask - open)
}

func (t *tasks) noteBacklog(k *task, b behind) {
	t.behind += b.n - k.behind.n
	if k.queue != nil {
		k.queue.behind += b.n - k.behind.n
	}
	k.behind = b
	if b.n > 0 {
		t.waiters[k] = struct{}{}
	} else {
		delete(t.waiters, k)
	}
}

// moveTo notes the hosts of a task's newest addresses.
func (t *tasks) moveTo(k *task, l *hostQueue) {
	if k.queue == l {
		return
	}
	if k.queue != nil {
		k.queue.behind -= k.behind.n
	}
	k.queue = l
	l.behind += k.behind.n
}

// claimTask returns the task of an offer, and drops the chunks of an older owner. Another client with the same epoch is
// a restarted domain actor, which numbers its chunks from the start. Nil: the offer is from an older owner.
func (t *tasks) claimTask(key wire.TaskKey, epoch int64, from Client) *task {
	k := t.all[key]
	switch {
	case k == nil && epoch < t.epochs.of(key.Verification):
		return nil
	case k == nil:
		k = &task{key: key}
		t.all[key] = k
	case epoch < k.epoch:
		return nil
	case epoch > k.epoch || from.Name != k.client.Name:
		t.dropChunks(k)
	}
	k.epoch, k.client = epoch, from
	return k
}

// dropChunks forgets the chunks of a task. Unacknowledged answers, and probes on the wire, are kept for the next owner.
func (t *tasks) dropChunks(k *task) {
	for _, c := range k.chunks {
		for _, r := range c.sent {
			c.answers = append(c.answers, answersOf(r)...)
		}
		for _, a := range c.answers {
			k.keepAnswer(a)
		}
		c.dropped, c.answers, c.sent = true, nil, nil
		t.stale = t.stale || c.open > 0
	}
	k.chunks, k.done, k.owed = nil, nil, time.Time{}
	delete(t.busy, k)
	t.noteBacklog(k, behind{})
}

// forgetChunk ends a finished chunk.
func (t *tasks) forgetChunk(now time.Time, c *chunk) {
	k := c.task
	if i := slices.Index(k.chunks, c); i >= 0 {
		k.chunks = slices.Delete(k.chunks, i, i+1)
	}
	k.done = append(k.done, doneChunk{number: c.number, until: now.Add(rememberFor)})
	t.retireTask(now, k)
}

// retireTask begins the wait until a task without chunks is forgotten.
func (t *tasks) retireTask(now time.Time, k *task) {
	if len(k.chunks) > 0 {
		return
	}
	delete(t.busy, k)
	k.until = now.Add(rememberFor)
	if !k.retired {
		k.retired = true
		t.retired.Push(k)
	}
}

// sweep forgets retired tasks that have expired or are too many.
func (t *tasks) sweep(now time.Time) {
	for k := range t.waiters {
		if len(k.chunks) == 0 && now.Sub(k.behind.at) >= behindFor {
			t.noteBacklog(k, behind{})
		}
	}
	for t.retired.Len() > 0 {
		k := t.retired.Peek()
		if len(k.chunks) == 0 && now.Before(k.until) && t.retired.Len()+t.owing.Len() <= retiredMax {
			break // later ones have not expired either
		}
		t.retired.Pop()
		k.retired = false
		switch {
		case len(k.chunks) > 0:
		case len(k.known) == 0:
			t.keepEpoch(now, k)
		case !k.owing:
			k.owing, k.until = true, now.Add(taskMemory)
			t.owing.Push(k)
		}
	}
	for t.owing.Len() > 0 {
		k := t.owing.Peek()
		if len(k.chunks) == 0 && !k.retired && now.Before(k.until) && t.owing.Len() <= retiredMax {
			break
		}
		t.owing.Pop()
		k.owing = false
		if len(k.chunks) == 0 && !k.retired {
			t.keepEpoch(now, k)
		}
	}
	t.epochs.dropOld(now)
}

// wakeToSweep schedules the next sweep, not before at.
func (t *tasks) wakeToSweep(e *env, at time.Time) {
	if t.retired.Len() == 0 {
		return
	}
	if until := t.retired.Peek().until; until.After(at) {
		at = until
	}
	e.wakeAt(at)
}

// keepEpoch forgets a task except for its epoch.
func (t *tasks) keepEpoch(now time.Time, k *task) {
	t.noteBacklog(k, behind{})
	delete(t.all, k.key)
	t.epochs.remember(now, k.key.Verification, k.epoch)
}

// epochs are the newest epochs of verifications whose tasks are forgotten. Two maps alternate. So an epoch is kept for
// one to two times taskMemory, and needs no time of its own.
type epochs struct {
	young, old map[uuid.UUID]int64
	turned     time.Time
}

// of returns the newest epoch of a verification; 0: no epoch is remembered.
func (e *epochs) of(verification uuid.UUID) int64 {
	return max(e.young[verification], e.old[verification])
}

func (e *epochs) remember(now time.Time, verification uuid.UUID, epoch int64) {
	if len(e.young) >= epochsMax/2 {
		e.old, e.young, e.turned = e.young, nil, now
	}
	if e.young == nil {
		e.young = map[uuid.UUID]int64{}
	}
	if len(e.young)+len(e.old) == 0 {
		e.turned = now
	}
	e.young[verification] = max(e.young[verification], epoch)
}

// dropOld forgets the older map when it is time.
func (e *epochs) dropOld(now time.Time) {
	if now.Sub(e.turned) >= taskMemory {
		e.old, e.young, e.turned = e.young, nil, now
	}
}
