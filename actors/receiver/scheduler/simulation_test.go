package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// TestSchedulerLosesNothing simulates a receiver of any manners, sessions that are lost, and clients that offer twice,
// acknowledge late, cancel, crash, and are followed by new owners. Every probe of a chunk that was accepted and not
// dropped gets exactly one answer, no limit is ever broken, and in the end nothing is left.
func TestSchedulerLosesNothing(t *testing.T) {
	for seed := range effort.Seeds(t, 40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { loseNothing(t, rand.New(rand.NewPCG(seed, 2))) })
	}
}

func loseNothing(t *testing.T, r *rand.Rand) {
	between := func(least, most int) int { return least + r.IntN(most-least+1) }
	one := func(of ...int) int { return of[r.IntN(len(of))] }
	perSecond := func(least, most int) throttle.Rate {
		return throttle.Rate{Events: between(least, most), Per: time.Second}
	}
	a := throttle.Limits{SessionAge: 5 * time.Minute, IdleTime: 2 * time.Second,
		Connections:         between(1, 6),
		ConnectionRate:      perSecond(2, 30),
		RcptRate:            perSecond(5, 300),
		RcptsPerConnection:  one(1, 5, 50, 1_000_000),
		RcptsPerTransaction: one(1, 3, 100),
		RefusedPerSession:   one(1, 8, 1_000_000),
		RefusedPerHour:      one(150, 1_000_000, 1_000_000),
		RefusedShare:        throttle.ShareMax,
	}
	w := newWorld(t, a, r.Uint64())
	w.turn = time.Duration(one(1, 20, 100)) * time.Millisecond
	w.jitter = time.Duration(one(0, 5, 200)) * time.Millisecond
	w.misbehave(between(0, 40))
	c := newCrowd(w, between(1, 30), r.IntN(2) == 0)
	for range 24 { // hours: what is asked slowly isn't lost
		if w.run(w.now.Add(time.Hour)); c.unanswered() == 0 {
			break
		}
	}
	c.check()
	slices.SortFunc(w.rcpts, time.Time.Compare)
	checkRate(t, "rcpts", w.rcpts, a.RcptRate)
	checkRate(t, "dials", w.dials, a.ConnectionRate)
	w.checkEmpty()
}

// misbehave makes the receiver do something bad about as often as permille says.
func (w *world) misbehave(permille int) {
	bad := []smtp.Reply{
		{}, {}, // a lost connection
		{Code: 421, Enhanced: smtp.EnhancedCode{4, 3, 2}, Lines: []string{"closing"}},
		{Code: 421, Enhanced: smtp.EnhancedCode{4, 5, 0}, Lines: []string{"Too many errors, bye"}},
		{Code: 450, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{"slow down"}},
		{Code: 452, Enhanced: smtp.EnhancedCode{4, 5, 3}, Lines: []string{"too many recipients"}},
		{Code: 550, Lines: []string{"too many invalid recipients"}},
		{Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 1}, Lines: []string{"relay access denied"}},
		{Code: 530, Enhanced: smtp.EnhancedCode{5, 7, 0}, Lines: []string{"issue STARTTLS first"}},
		{Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 1}, Lines: []string{"blocked using some list"}},
		{Code: 354},
	}
	w.reply = func(*Probe, *simSession) smtp.Reply {
		switch n := w.rand.IntN(1000); {
		case n < permille:
			return bad[w.rand.IntN(len(bad))]
		case n < 600:
			return smtp.Reply{Code: 250}
		case n < 950:
			return smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Lines: []string{"no such user"}}
		}
		return smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{"greylisted"}}
	}
	w.greet = func(host string) error {
		switch n := w.rand.IntN(1000); {
		case host == "mx3.example" && n < 20*permille:
			return errors.New("connection refused")
		case n < permille:
			return &smtp.Failure{Stage: smtp.StageGreeting, Reply: smtp.Reply{Code: 421, Lines: []string{"busy"}}}
		case n < 2*permille:
			return &smtp.Failure{Stage: smtp.StageTLS, Err: errors.New("bad record")}
		}
		return nil
	}
}

// crowd is the clients of a scheduler.
type crowd struct {
	w      *world
	owners []*owner
	loose  bool // cancels, crashes and new epochs happen
}

// owner is one client working on one task.
type owner struct {
	name   string
	task   *wire.Task
	route  []*wire.Host
	left   int // chunks to offer
	credit uint32
	chunk  uint64
	chunks map[uint64]*given
	heard  bool      // the scheduler has answered it
	last   time.Time // when it did so last
	gone   bool      // its chunks are nobody's any more
}

// given is a chunk as its owner sees it.
type given struct {
	offer    *wire.Offer
	since    time.Time
	accepted bool
	left     map[uint32]bool
	batches  map[uint64]bool
}

func newCrowd(w *world, tasks int, loose bool) *crowd {
	c := &crowd{w: w, loose: loose}
	w.hear = c.hear
	routes := [][]*wire.Host{hosts("mx1.example"), hosts("mx1.example", "mx2.example"),
		hosts("mx3.example", "mx1.example")}
	for n := range tasks {
		c.add(&wire.Task{Verification: id(byte(n % 3)), Epoch: 1, Domain: fmt.Sprintf("d%d.example", n)},
			routes[w.rand.IntN(len(routes))])
	}
	return c
}

func (c *crowd) add(task *wire.Task, route []*wire.Host) {
	o := &owner{name: fmt.Sprintf("owner%d", len(c.owners)), task: task, route: route, credit: 1,
		left: 1 + c.w.rand.IntN(8), chunks: map[uint64]*given{}}
	c.owners = append(c.owners, o)
	c.act(o)
}

// act is what an owner does every second while it has something left.
func (c *crowd) act(o *owner) {
	if o.gone {
		return
	}
	if o.left > 0 && o.credit > 0 {
		o.credit--
		o.left--
		o.chunk++
		m := offerOf(0, o.task.GetDomain(), o.chunk, 1+c.w.rand.IntN(100), o.route)
		m.Task = o.task
		g := &given{offer: m, since: c.w.now, left: map[uint32]bool{}, batches: map[uint64]bool{}}
		for _, p := range m.GetProbes() {
			g.left[p.GetOrdinal()] = true
		}
		o.chunks[o.chunk] = g
		c.offer(o, g)
		c.watch(o, o.chunk)
	}
	for _, number := range slices.Sorted(maps.Keys(o.chunks)) {
		g := o.chunks[number]
		if c.w.rand.IntN(10) == 0 && c.w.now.Sub(g.since) < rememberFor/2 {
			c.offer(o, g) // again: the acknowledgement is late
		}
	}
	if o.heard && c.loose && c.w.rand.IntN(15) == 0 {
		c.change(o)
		return
	}
	if o.left > 0 || c.w.rand.IntN(3) > 0 {
		c.w.after(time.Second, func() { c.act(o) })
		o.credit = max(1, o.credit)
	}
}

// watch gives up a chunk at a silent receiver, as a domain does.
func (c *crowd) watch(o *owner, number uint64) {
	c.w.after(10*time.Second, func() {
		if g := o.chunks[number]; g == nil || len(g.left) == 0 || o.gone {
			return
		}
		if c.w.now.Sub(o.last) > 5*time.Second {
			c.missed(o, &wire.Pulse{})
		}
		c.watch(o, number)
	})
}

func (c *crowd) offer(o *owner, g *given) {
	c.w.after(time.Millisecond, func() {
		if !o.gone {
			c.w.scheduler.Offer(c.w.now, Client{Name: o.name}, g.offer)
		}
	})
}

// change ends an owner in one of the ways in which owners end.
func (c *crowd) change(o *owner) {
	o.gone = true
	cancel := &wire.Cancel{Task: o.task}
	switch c.w.rand.IntN(3) {
	case 0:
		c.w.scheduler.queues.cancelTask(c.w.now, cancel)
	case 1: // crashed, and begun anew by its parent
		c.add(o.task, o.route)
	case 2: // taken over by another node; the old owner does not know it yet
		next := &wire.Task{Verification: o.task.GetVerification(), Epoch: o.task.GetEpoch() + 1,
			Domain: o.task.GetDomain()}
		c.add(next, o.route)
		c.w.after(10*time.Millisecond, func() {
			c.w.scheduler.Offer(c.w.now, Client{Name: o.name}, offerTo(o.task, o.route))
			c.w.scheduler.queues.cancelTask(c.w.now, cancel)
		})
	}
}

func offerTo(task *wire.Task, route []*wire.Host) *wire.Offer {
	m := offerOf(0, task.GetDomain(), 77, 3, route)
	m.Task = task
	return m
}

func (c *crowd) hear(to Client, msg proto.Message) {
	var o *owner
	for _, one := range c.owners {
		if one.name == to.Name {
			o = one
		}
	}
	o.last = c.w.now
	switch m := msg.(type) {
	case *wire.OfferAck:
		c.acknowledged(o, m)
	case *wire.Results:
		c.results(o, m)
	case *wire.Pulse:
		o.credit = m.GetCredit()
		c.missed(o, m)
	}
}

// missed gives up the chunks that a heartbeat does not name for long, as a domain does.
func (c *crowd) missed(o *owner, m *wire.Pulse) {
	if o.gone {
		return
	}
	for number, g := range o.chunks {
		if g.accepted && len(g.left) > 0 && !slices.Contains(m.GetChunks(), number) &&
			c.w.now.Sub(g.since) > 5*time.Second {
			delete(o.chunks, number)
			o.left++
			c.w.after(time.Second, func() { c.act(o) })
		}
	}
}

func (c *crowd) acknowledged(o *owner, m *wire.OfferAck) {
	if o.gone {
		if m.GetChunk() == 77 && m.GetRefusal() != wire.Refusal_STALE_EPOCH {
			c.w.t.Errorf("an offer of an older epoch was answered with %s", m.GetRefusal())
		}
		return
	}
	o.credit, o.heard = m.GetCredit(), true
	g := o.chunks[m.GetChunk()]
	switch {
	case g == nil: // the answer to a second copy
	case m.GetRefusal() == wire.Refusal_NONE:
		g.accepted = true
	case m.GetRefusal() == wire.Refusal_FULL && !g.accepted:
		delete(o.chunks, m.GetChunk())
		o.left++
	default:
		c.w.t.Errorf("offer of %s refused: %s", o.name, m.GetRefusal())
	}
}

func (c *crowd) results(o *owner, m *wire.Results) {
	if o.gone {
		return // sent before it was
	}
	if m.GetTask().GetEpoch() != o.task.GetEpoch() {
		c.w.t.Errorf("results of epoch %d to an owner of %d", m.GetTask().GetEpoch(), o.task.GetEpoch())
	}
	o.credit = m.GetCredit()
	g := o.chunks[m.GetChunk()]
	if g == nil { // late: it was given up
		c.w.after(time.Millisecond, func() {
			c.w.scheduler.queues.takeAck(c.w.now, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
		})
		return
	}
	if !g.batches[m.GetBatch()] {
		g.batches[m.GetBatch()] = true
		for _, a := range m.GetAnswers() {
			if !g.left[a.GetOrdinal()] {
				c.w.t.Errorf("%s: chunk %d: a second answer to %d", o.name, m.GetChunk(), a.GetOrdinal())
			}
			delete(g.left, a.GetOrdinal())
		}
	}
	for range c.w.rand.IntN(3) { // none: it was lost, and the results come again
		c.w.after(time.Millisecond, func() {
			c.w.scheduler.queues.takeAck(c.w.now, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
		})
	}
}

// unanswered counts the probes without an answer of chunks that were offered and not dropped, and those not offered yet.
func (c *crowd) unanswered() (n int) {
	for _, o := range c.owners {
		if o.gone {
			continue
		}
		n += o.left
		for _, g := range o.chunks {
			n += len(g.left)
		}
	}
	return n
}

// check wants that every probe of a chunk that was accepted and not dropped has its answer.
func (c *crowd) check() {
	for _, o := range c.owners {
		for number, g := range o.chunks {
			if !o.gone && g.accepted && len(g.left) > 0 {
				c.w.t.Errorf("%s: chunk %d: %d of %d without an answer", o.name, number, len(g.left),
					len(g.offer.GetProbes()))
			}
		}
	}
}
