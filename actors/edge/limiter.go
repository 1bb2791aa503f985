package edge

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
)

const (
	// askTimeout is how long a request waits for the key's actor before it is counted
	// here. Guess: many round trips of a network, and few people notice it.
	askTimeout = 250 * time.Millisecond

	// ownerLife is how long an actor is believed to be the one to ask. One that ended
	// or whose node is gone is forgotten at once; this is for one that lives on where
	// it does not belong any more.
	ownerLife = 10 * time.Second

	// An actor that cannot be found is looked for again after a pause, twice as long
	// each time.
	pauseFirst = 10 * time.Millisecond
	pauseMax   = time.Second

	// findingMax bounds how many actors are looked for at once. Each may take a
	// second, when nodes are lost; requests do not wait for that.
	findingMax = 64

	// findWithin is how old a wish to find an actor may get: nobody waits any more.
	findWithin = pauseMax + askTimeout

	// linesMax bounds the keys that a node knows of; some 700 bytes each. At the
	// bound those that would begin anew the same are forgotten, and then any that
	// nothing waits for.
	linesMax = 1 << 16
)

// Limiter asks the actors of the keys on behalf of one node's requests. It is the
// API's Limiter. Safe for concurrent use.
type Limiter struct {
	options Options
	system  *actor.ActorSystem
	resolve func(kind, identity string) *actor.PID
	node    nodeID
	inbox   *actor.PID // gets the answers
	number  atomic.Uint64
	slots   chan struct{} // a token per look for an owner

	ended chan struct{} // closed by Stop
	stop  sync.Once
	work  sync.WaitGroup

	mu    sync.RWMutex
	lines map[string]*line // guarded by mu; by key
}

// Start makes a limiter on a node's actor system. resolve finds a virtual actor by
// kind and identity; it may block for a second, and nil means that there is none now.
func Start(system *actor.ActorSystem, resolve func(kind, identity string) *actor.PID,
	o Options) (*Limiter, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if system == nil || resolve == nil {
		return nil, fmt.Errorf("%w: system and resolve are needed", ErrOptions)
	}
	l := &Limiter{options: o, system: system, resolve: resolve, node: nodeID(uuid.New()),
		slots: make(chan struct{}, findingMax), ended: make(chan struct{}), lines: map[string]*line{}}
	l.inbox = system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return newInbox(l) }))
	l.work.Go(l.renew)
	return l, nil
}

// Stop tells the actors that this node holds nothing any more, and returns when
// nothing of the limiter runs; the error is ctx's. It is called when no request is in
// work; what comes later is counted by this node's part. Twice is fine.
func (l *Limiter) Stop(ctx context.Context) error {
	l.stop.Do(func() {
		close(l.ended)
		l.leave(time.Now())
	})
	done := make(chan struct{})
	go func() {
		l.work.Wait()
		_ = l.system.Root.StopFuture(l.inbox).Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave says of every key that we hold nothing.
func (l *Limiter) leave(now time.Time) {
	for _, s := range l.all() {
		s.mu.Lock()
		if s.owner != nil && s.told > 0 && len(s.asked)+len(s.waiting) == 0 {
			s.held = 0
			l.ask(s, now)
		}
		s.mu.Unlock()
	}
}

// Read takes one token of a key's reads: 0, or the time to wait for one.
func (l *Limiter) Read(key string) time.Duration { return l.token(key, wantRead) }

// Create takes one token of a key's creates: 0, or the time to wait for one.
func (l *Limiter) Create(key string) time.Duration { return l.token(key, wantCreate) }

func (l *Limiter) token(key string, w want) time.Duration {
	if _, ok, wait := l.take(key, w); !ok {
		return max(wait, 1)
	}
	return 0
}

// Download takes a slot for one download of a key; false when all are used. The
// function gives it back, must be called once, and does not block.
func (l *Limiter) Download(key string) (release func(), ok bool) {
	s, ok, _ := l.take(key, wantDownload)
	if !ok {
		return nil, false
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held--
		l.push(s, time.Now())
	}, true
}

// take asks for what one request wants and waits for the answer.
func (l *Limiter) take(key string, w want) (s *line, ok bool, wait time.Duration) {
	s = l.line(key)
	defer s.mu.Unlock()
	now := time.Now()
	if int(w) < rates && now.Before(s.empty[w]) {
		return s, false, s.empty[w].Sub(now)
	}
	if s.broken || l.over() {
		l.options.Metrics.fallbacks.WithLabelValues(limitNames[w]).Inc()
		ok, wait = s.grant(now, w, l.part(key))
		s.probe = true
		l.push(s, now)
		return s, ok, wait
	}
	mine := &waiter{want: w, done: make(chan struct{})}
	s.waiting = append(s.waiting, mine)
	l.push(s, now)
	s.mu.Unlock()
	timer := time.NewTimer(askTimeout)
	defer timer.Stop()
	select {
	case <-mine.done:
	case <-timer.C:
	}
	s.mu.Lock()
	if !mine.settled {
		l.fail(s, time.Now())
	}
	return s, mine.ok, mine.wait
}

// part is what this node may use of a key's limits without its actor.
func (l *Limiter) part(key string) Limits { return l.options.Limits.part(l.options.Share(key)) }

// over says whether Stop was called.
func (l *Limiter) over() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// line gives the line of a key, locked.
func (l *Limiter) line(key string) *line {
	for {
		l.mu.RLock()
		s := l.lines[key]
		l.mu.RUnlock()
		if s == nil {
			s = l.add(key)
		}
		s.mu.Lock()
		if !s.gone {
			return s
		}
		s.mu.Unlock()
	}
}

func (l *Limiter) add(key string) *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.lines[key]; s != nil {
		return s
	}
	if len(l.lines) >= linesMax {
		l.makeRoom(time.Now())
	}
	s := &line{key: key, limits: l.options.Limits}
	l.lines[key] = s
	return s
}

// makeRoom forgets lines; mu is held.
func (l *Limiter) makeRoom(now time.Time) {
	forget := func(s *line, all bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy() || !all && !s.blank(now) {
			return
		}
		s.gone = true
		l.watch(s, nil)
		delete(l.lines, s.key)
	}
	for _, s := range l.lines {
		forget(s, false)
	}
	for _, s := range l.lines {
		if len(l.lines) < linesMax/8*7 {
			break
		}
		forget(s, true)
	}
}

// all gives the lines that there are.
func (l *Limiter) all() []*line {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := make([]*line, 0, len(l.lines))
	for _, s := range l.lines {
		all = append(all, s)
	}
	return all
}

// push does what is next for a line, whose lock is held: nothing, look for the owner, or ask.
func (l *Limiter) push(s *line, now time.Time) {
	if s.number != 0 {
		if now.Sub(s.sent) < askTimeout {
			return
		}
		l.options.Metrics.asks.WithLabelValues("timed_out").Inc() // nobody waited for it
		s.lost(now)
		l.watch(s, nil)
	}
	if !s.asks() || l.over() {
		return
	}
	if s.owner == nil || now.Sub(s.found) >= ownerLife {
		l.find(s, now)
	}
	if s.owner != nil {
		l.ask(s, now)
	}
}

// ask sends what a line has to ask.
func (l *Limiter) ask(s *line, now time.Time) {
	question := s.question(now, l.node, l.number.Add(1))
	l.system.Root.RequestWithCustomSender(s.owner, question, l.inbox)
}

// fail ends the wait for an owner that does not answer.
func (l *Limiter) fail(s *line, now time.Time) {
	if s.number != 0 {
		l.options.Metrics.asks.WithLabelValues("timed_out").Inc()
	}
	l.watch(s, nil)
	for w, n := range s.fail(now, l.part(s.key)) {
		l.options.Metrics.fallbacks.WithLabelValues(limitNames[w]).Add(float64(n))
	}
	l.push(s, now)
}

// find looks for the owner of a line, unless that is under way or must rest.
func (l *Limiter) find(s *line, now time.Time) {
	if s.finding {
		return
	}
	s.finding = true
	if now.Before(s.retry) {
		l.options.Guard.After(s.retry.Sub(now), "limiter", func() { l.look(s, now) }, func() { l.unfound(s) })
		return
	}
	l.work.Add(1)
	l.options.Guard.Go("limiter", func() {
		defer l.work.Done()
		l.look(s, now)
	}, func() { l.unfound(s) })
}

// unfound says that looking for the owner failed by a fault of ours.
func (l *Limiter) unfound(s *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.finding, s.found, s.probe = false, now, false
	s.rest(now)
}

// look looks for the owner, and what waits for it goes on.
func (l *Limiter) look(s *line, asked time.Time) {
	owner := l.owner(s.key, asked)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.finding, s.found = false, now
	if owner == nil {
		s.probe = false
		s.rest(now) // an old owner stays until the next look
	} else {
		l.watch(s, owner)
	}
	l.push(s, now)
}

// owner resolves a key when it is its turn; nil: nobody waits any more, or there is none now.
func (l *Limiter) owner(key string, asked time.Time) *actor.PID {
	l.slots <- struct{}{}
	defer func() { <-l.slots }()
	if l.over() || time.Since(asked) >= findWithin {
		return nil
	}
	return l.resolve(kind, key)
}

// watch makes owner the one to ask, nil: nobody, and has its end reported.
func (l *Limiter) watch(s *line, owner *actor.PID) {
	if s.owner != nil && owner != nil && s.owner.Equal(owner) {
		return
	}
	if s.owner != nil {
		l.system.Root.Send(l.inbox, unwatch{s.owner})
	}
	if s.setOwner(owner); owner != nil {
		l.system.Root.Send(l.inbox, watch{s.key, owner})
	}
}

// known gives the line of a key, locked; nil for one that is forgotten.
func (l *Limiter) known(key string) *line {
	l.mu.RLock()
	s := l.lines[key]
	l.mu.RUnlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return nil
	}
	return s
}

// answered takes an answer of an owner.
func (l *Limiter) answered(m *Answer) {
	s := l.known(m.Key)
	if s == nil {
		return
	}
	defer s.mu.Unlock()
	now := time.Now()
	if s.answered(now, m) {
		l.options.Metrics.asks.WithLabelValues("answered").Inc()
		l.push(s, now)
	}
}

// moved takes the news that an owner is no more.
func (l *Limiter) moved(key string, owner *actor.PID) {
	s := l.known(key)
	if s == nil {
		return
	}
	defer s.mu.Unlock()
	if s.owner == nil || !s.owner.Equal(owner) {
		return
	}
	if s.number != 0 {
		l.options.Metrics.asks.WithLabelValues("moved").Inc()
	}
	now := time.Now()
	s.setOwner(nil)
	s.lost(now)
	l.push(s, now)
}

// renew tells the owners from time to time what we hold.
func (l *Limiter) renew() {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.ended:
			return
		case <-tick.C:
		}
		for _, s := range l.all() {
			_ = l.options.Guard.Run("limiter", func() { l.renewLine(s) })
		}
	}
}

func (l *Limiter) renewLine(s *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held > 0 || s.told > 0 {
		s.renew = true
		l.push(s, time.Now())
	}
}
