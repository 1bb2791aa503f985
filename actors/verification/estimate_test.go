package verification

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"pgregory.net/rapid"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// TestFinish has each thing that an estimate rests on alone.
func TestFinish(t *testing.T) {
	at := func(q queue) map[string]*queue { return map[string]*queue{"r.test": &q} }
	const unknown = -1
	for _, c := range []struct {
		name string
		o    eta
		want time.Duration // from noon, without the settlement; unknown: nobody can say
		why  string
	}{
		{"nothing is left", eta{}, 0, ""},
		{"a known rate", eta{queues: at(queue{addresses: 30, perHour: 3600})}, 30 * time.Second, ""},
		{"half are put off for a minute", eta{queues: at(queue{addresses: 100, perHour: 3600, again: 50,
			wait: time.Minute})}, 160 * time.Second, ""},
		{"a rate that was seen", eta{queues: at(queue{addresses: 30, asked: 2})}, 15 * time.Second, ""},
		{"less than an hour's, and faster", eta{queues: at(queue{addresses: 30, perHour: 360, asked: 2})},
			15 * time.Second, ""},
		{"more than an hour's", eta{queues: at(queue{addresses: 720, perHour: 360, asked: 2})}, 2 * time.Hour, ""},
		{"the budget is used up", eta{queues: at(queue{addresses: 30, perHour: 360, asked: 2,
			cause: "budget"})}, 5 * time.Minute, ""},
		{"nothing seen yet", eta{queues: at(queue{addresses: 30, cause: "free"})}, domainTakes, ""},
		{"a rest, then a rate", eta{queues: at(queue{addresses: 30, perHour: 3600, cause: "penalty",
			until: noon.Add(time.Minute)})}, 90 * time.Second, ""},
		{"paused without end", eta{queues: at(queue{addresses: 30, cause: "paused",
			until: noon.Add(time.Minute)})}, unknown, "30 addresses wait for receiver r.test"},
		{"paused for a minute", eta{queues: at(queue{addresses: 30, perHour: 3600, cause: "paused",
			until: noon.Add(time.Minute)})}, 90 * time.Second, ""},
		{"unreached", eta{queues: at(queue{addresses: 1, cause: "unreached"})}, unknown, "unreached"},
		{"paused until tomorrow", eta{queues: at(queue{addresses: 3600, perHour: 3600, cause: "paused",
			until: noon.Add(24 * time.Hour)})}, 25 * time.Hour, ""},
		{"retries", eta{ends: noon.Add(20 * time.Minute),
			queues: at(queue{addresses: 1, perHour: 3600})}, 20 * time.Minute, ""},
		{"just begun", eta{begun: noon.Add(-time.Second), domains: 5}, unknown, "only begun"},
		{"domains to come", eta{begun: noon.Add(-time.Minute), domains: 60, addresses: 60, domainRate: 2,
			finalRate: 2}, 30*time.Second + domainTakes, ""},
		{"nothing is done", eta{begun: noon.Add(-time.Minute), domains: 60}, unknown, "60 domains"},
		{"as those at work", eta{begun: noon.Add(-time.Minute), domains: 60, addresses: 100, began: 100,
			ends: noon.Add(time.Minute)}, 3*time.Minute + domainTakes, ""},
		{"no later than it is given up", eta{deadline: noon.Add(time.Hour), ends: noon.Add(2 * time.Hour)},
			time.Hour - settleEvery, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.now = noon
			got, why := c.o.finish()
			if c.want == unknown {
				effort.ErrorIf(t, !got.IsZero() || !strings.Contains(why, c.why),
					"expected at %v (%s), want unknown (%s)", got, why, c.why)
				return
			}
			if want := noon.Add(c.want + settleEvery); !got.Equal(want) || why != "" {
				t.Errorf("expected after %v (%s), want %v", got.Sub(noon), why, c.want+settleEvery)
			}
		})
	}
}

// TestFinishIsNeverOver: an estimate is not in the past, and more work makes it no sooner.
func TestFinishIsNeverOver(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1_000_000)
		q := queue{addresses: n.Draw(t, "addresses"), perHour: n.Draw(t, "per hour"), asked: 1, cause: "allowance"}
		o := eta{now: noon, begun: noon.Add(-time.Minute), queues: map[string]*queue{"r": &q},
			domains: n.Draw(t, "domains"), addresses: n.Draw(t, "to come"), domainRate: 3, finalRate: 5}
		first, why := o.finish()
		effort.FatalIf(t, why != "" || first.Before(noon), "expected at %v (%s)", first, why)
		q.addresses++
		o.domains++
		if more, _ := o.finish(); more.Before(first) {
			t.Errorf("expected after %v, and with more work after %v", first.Sub(noon), more.Sub(noon))
		}
	})
}

// TestPace: a run that goes evenly has one pace, however long it goes on, and the memory for it is bounded.
func TestPace(t *testing.T) {
	var p throughput
	for i := range 40_000 {
		now := noon.Add(time.Duration(i) * tickEvery)
		p.note(now, 5*i, i)
		effort.FatalIf(t, len(p.samples) > samplesMax, "%d samples", len(p.samples))
		finals, done := p.rates(now, 5*i, i)
		effort.FatalIf(t, i > 0 && (math.Abs(finals-20) > 0.01 || math.Abs(done-4) > 0.01),
			"after %v: %.3f addresses and %.3f domains in a second, want 20 and 4", now.Sub(noon), finals, done)
	}
}

func TestLongest(t *testing.T) {
	var l lasted
	_, known := l.longest(1)
	effort.ErrorIf(t, known, "something is known of nothing")
	for range 90 {
		l.add(time.Second)
	}
	for range 10 {
		l.add(5 * time.Minute)
	}
	for _, c := range []struct {
		more int
		want time.Duration
	}{{1, time.Second}, {5, time.Second}, {20, 5 * time.Minute}, {1_000_000, 5 * time.Minute}} {
		if got, _ := l.longest(c.more); got < c.want || got > c.want*6/5 {
			t.Errorf("of %d more the longest takes %v, want %v", c.more, got, c.want)
		}
	}
}

// habits is how a receiver of a simulated run behaves.
type habits struct {
	perSecond float64       // answers; 0: as fast as it is asked, after a while
	latency   time.Duration // of one answer
	grey      time.Duration // how long it puts addresses off; 0: it does not
	catchAll  bool
	refusals  int // in an hour; 0: any number
	silent    bool
	untold    bool // it does not say how fast it answers
}

// counter is a receiver actor that keeps to its habits: local parts with "no" are refused, as is what nobody has.
type counter struct {
	habits
	queue   []asked
	open    map[uint64]int // probes by chunk
	batch   uint64
	task    map[string]*wire.Task // by domain
	chunks  map[string][]uint64
	client  map[string]*actor.PID
	seen    map[string]time.Time // greylisted first
	refused []time.Time
	spare   float64
	ticks   int
	ticking bool
}

type asked struct {
	domain string
	chunk  uint64
	probe  *wire.Probe
	at     time.Time
}

type (
	simTick struct{}
	pause   struct{ on bool } // as an operator's
)

const simEvery = 100 * time.Millisecond

// Receive implements actor.Actor.
func (r *counter) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		r.open, r.task = map[uint64]int{}, map[string]*wire.Task{}
		r.chunks, r.client = map[string][]uint64{}, map[string]*actor.PID{}
		r.seen = map[string]time.Time{}
	case *wire.Offer:
		name := m.GetTask().GetDomain()
		r.task[name], r.client[name] = m.GetTask(), c.Sender()
		r.chunks[name] = append(r.chunks[name], m.GetChunk())
		at := slices.IndexFunc(r.queue, func(q asked) bool { return m.Retries() && !q.probe.GetRetry() })
		if at < 0 { // due retries come before what was never asked
			at = len(r.queue)
		}
		for i, p := range m.GetProbes() {
			r.queue = slices.Insert(r.queue, at+i, asked{name, m.GetChunk(), p, time.Now()})
		}
		c.Respond(&wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Credit: 1})
		r.tick(c)
	case pause:
		r.silent = m.on
	case simTick:
		r.ticking = false
		r.work(c, time.Now())
		r.tick(c)
	}
}

func (r *counter) tick(c actor.Context) {
	if r.ticking || len(r.queue) == 0 {
		return
	}
	r.ticking = true
	root, self := c.ActorSystem().Root, c.Self()
	time.AfterFunc(simEvery, func() { root.Send(self, simTick{}) })
}

// work answers what may be answered, and tells all others that they wait.
func (r *counter) work(c actor.Context, now time.Time) {
	r.spare += r.perSecond * simEvery.Seconds()
	if r.spare > max(1, r.perSecond) {
		r.spare = max(1, r.perSecond)
	}
	results, texts := map[string]map[uint64]*wire.Results{}, map[*wire.Results]*wire.Texts{}
	for len(r.queue) > 0 && r.may(now) {
		q := r.queue[0]
		r.queue = r.queue[1:]
		byChunk := results[q.domain]
		if byChunk == nil {
			byChunk = map[uint64]*wire.Results{}
			results[q.domain] = byChunk
		}
		m := byChunk[q.chunk]
		if m == nil {
			r.batch++
			m = &wire.Results{Task: r.task[q.domain], Chunk: q.chunk, Batch: r.batch, Credit: 2}
			byChunk[q.chunk], texts[m] = m, &wire.Texts{}
		}
		m.Answers = append(m.Answers, r.answer(now, q, texts[m]))
	}
	for name, byChunk := range results {
		for _, m := range byChunk {
			m.Texts = texts[m].List()
			c.Request(r.client[name], m)
		}
	}
	if r.ticks++; r.ticks%10 == 0 {
		r.pulse(c, now)
	}
}

func (r *counter) may(now time.Time) bool {
	for len(r.refused) > 0 && now.Sub(r.refused[0]) >= time.Hour {
		r.refused = r.refused[1:]
	}
	switch {
	case r.silent || now.Sub(r.queue[0].at) < r.latency:
		return false
	case r.refusals > 0 && len(r.refused) >= r.refusals:
		return false
	case r.perSecond > 0 && r.spare < 1:
		return false
	}
	r.spare--
	return true
}

func (r *counter) answer(now time.Time, q asked, texts *wire.Texts) *wire.Answer {
	address := q.probe.GetLocal() + "@" + q.domain
	outcome, reason := smtp.Invalid, smtp.MailboxNotFound
	first, known := r.seen[address]
	switch {
	case r.grey > 0 && !known:
		r.seen[address] = now
		outcome, reason = smtp.Undecided, smtp.Greylisted
	case r.grey > 0 && now.Sub(first) < r.grey:
		outcome, reason = smtp.Undecided, smtp.Greylisted
	case r.catchAll || strings.HasPrefix(q.probe.GetLocal(), "yes"):
		outcome, reason = smtp.Valid, smtp.MailboxExists
	default:
		r.refused = append(r.refused, now)
	}
	return &wire.Answer{Ordinal: q.probe.GetOrdinal(), Outcome: uint32(outcome), Reason: uint32(reason),
		Attempts: texts.Attempts([]evidence.Attempt{{At: now, Stage: smtp.StageRcpt, Host: "mx." + q.domain,
			Code: codes[outcome], Text: outcome.String(), Outcome: outcome, Reason: reason, Rule: "sim",
			Source: "192.0.2.9"}})}
}

// pulse is the pulse of a receiver actor.
func (r *counter) pulse(c actor.Context, now time.Time) {
	open := map[string]map[uint64]bool{}
	for _, q := range r.queue {
		if open[q.domain] == nil {
			open[q.domain] = map[uint64]bool{}
		}
		open[q.domain][q.chunk] = true
	}
	m := wire.Pulse{PerHour: int64(r.perSecond * 3600)}
	switch {
	case r.untold:
		m.PerHour = 0
	case r.silent:
		m.Cause, m.PerHour, m.WaitingMs = wire.Cause_PAUSED, 0, 60_000
	case r.refusals > 0:
		// As many again will be refused as were so far, of each address that was asked.
		m.Cause, m.PerHour = wire.Cause_BUDGET, int64(2*r.refusals)
		if len(r.refused) >= r.refusals {
			m.WaitingMs = wire.Left(now, r.refused[0].Add(time.Hour))
		}
	case r.perSecond > 0:
		m.Cause = wire.Cause_ALLOWANCE
	}
	for name, chunks := range open {
		p := &wire.Pulse{Task: r.task[name], Cause: m.Cause, PerHour: m.PerHour, WaitingMs: m.WaitingMs, Credit: 1}
		for number := range chunks {
			p.Chunks = append(p.Chunks, number)
		}
		c.Request(r.client[name], p)
	}
}

// mix is a list and the receivers that it meets.
type mix struct {
	name       string
	waits      []time.Duration
	domainsMax int
	list       func(add func(address string))
	at         func(domain string) (receiver string, h habits)
	// least and most bound the ratio of the time that was said to be left and the time
	// that was, from a quarter of the run on.
	least, most float64
}

// said is an estimate at a time.
type said struct {
	at, finish time.Time
	why        string
	part       float64        // of the addresses that are final
	waits      []inspect.Wait // for what the others do
}

// TestEstimate runs lists of several kinds and says how good the estimate of their finish
// was. Time is simulated, so the figures are the same on any machine.
func TestEstimate(t *testing.T) {
	all := mixes()
	for i, m := range all {
		if (testing.Short() || effort.Raced) && i > 0 && i < len(all)-1 {
			continue // one of a rate, and everyday
		}
		t.Run(m.name, func(t *testing.T) {
			inBubble(t, 1_000_000, func(w *world) { m.run(w) })
		})
	}
}

func (m mix) run(w *world) {
	r, _ := m.starts(w, w.book)
	all, began, ended := r.listen()
	m.judge(w.t, all, began, ended)
	if v := w.sees(r.id); v.Status != ledger.Completed || !v.Expected.IsZero() {
		w.t.Errorf("at the end %s, expected %v", v.Status, v.Expected)
	}
}

// starts begins a run and gives what tells all its receivers something.
func (m mix) starts(w *world, book Book) (r *run, tell func(any)) {
	var mu sync.Mutex
	pids, at := map[string]*actor.PID{}, map[string]habits{}
	w.t.Cleanup(func() {
		for _, pid := range pids {
			_ = w.system.Root.StopFuture(pid).Wait()
		}
	})
	o := w.options(book)
	o.DomainsMax, o.Domain.GiveUpAfter = m.domainsMax, 6*time.Hour
	o.Domain.Waits = func(string) []time.Duration { return m.waits }
	o.Domain.ControlPauses = []time.Duration{2 * time.Second, 15 * time.Second}
	o.Domain.Route = func(_ context.Context, name string) (mx.Route, error) {
		receiver, h := m.at(name)
		mu.Lock()
		defer mu.Unlock()
		at[receiver] = h
		return mx.Route{Domain: name, Receiver: receiver, Expires: time.Now().Add(24 * time.Hour),
			Hosts: []mx.Host{{Name: "mx." + name, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}}, nil
	}
	o.Domain.Match = func(r mx.Route) string { return r.Receiver }
	o.Domain.Resolve = func(key string) *actor.PID {
		mu.Lock()
		defer mu.Unlock()
		if pids[key] == nil {
			h := at[key]
			pids[key] = w.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return &counter{habits: h} }))
		}
		return pids[key]
	}
	var rows []string
	m.list(func(address string) { rows = append(rows, address) })
	leased, lease := w.leases(w.node, w.uploads(rows...).ID)
	r = w.starts(o, leased, lease)
	r.id = leased.ID
	return r, func(message any) {
		mu.Lock()
		defer mu.Unlock()
		for _, pid := range pids {
			w.system.Root.Send(pid, message)
		}
	}
}

// listen asks for the estimate until the run is over.
func (r *run) listen() (all []said, began, ended time.Time) {
	r.w.t.Helper()
	began = time.Now()
	every := time.NewTicker(2100 * time.Millisecond) // never at the instant at which receivers do something
	defer every.Stop()
	for {
		select {
		case <-r.ended:
			return all, began, time.Now()
		case <-every.C:
		}
		v, ok := r.asks()
		if !ok {
			continue // it has ended
		}
		if sum := sumOf(v.Waits); len(v.Waits) > 0 && sum != int(v.Total-v.Final) {
			r.w.t.Errorf("%d of %d addresses are final, and %d wait: %+v", v.Final, v.Total, sum, v.Waits)
		}
		all = append(all, said{time.Now(), v.Finish, v.Why, float64(v.Final) / float64(max(1, v.Total)), v.Waits})
	}
}

// asks asks what the run waits for.
func (r *run) asks() (inspect.Verification, bool) {
	// Soon, since one that ends with its question unanswered would be taken to end that much later.
	answer, err := r.w.system.Root.RequestFuture(r.pid, Ask{}, time.Second).Result()
	v, ok := answer.(inspect.Verification)
	return v, ok && err == nil
}

func sumOf(waits []inspect.Wait) (n int) {
	for _, w := range waits {
		n += w.Addresses
	}
	return n
}

// judge logs how good the estimates were, and fails when they were too bad.
func (m mix) judge(t testing.TB, all []said, began, ended time.Time) {
	t.Helper()
	line := fmt.Sprintf("%-34s %8s:", m.name, ended.Sub(began).Round(time.Second))
	defer func() { // which addresses came so late, and what they waited for
		for i := 0; t.Failed() && i < len(all); i += 1 + len(all)/60 {
			s := all[i]
			t.Logf("after %s %.1f %% final, %s left as told, %+v", s.at.Sub(began), 100*s.part,
				s.finish.Sub(s.at).Round(time.Second), s.waits)
		}
	}()
	for _, part := range []float64{0.1, 0.25, 0.5, 0.75} {
		at := began.Add(time.Duration(part * float64(ended.Sub(began))))
		s := all[0]
		for _, next := range all {
			if next.at.After(at) {
				break
			}
			s = next
		}
		if s.finish.IsZero() {
			line += fmt.Sprintf("  %2.0f %%: unknown (%s)", 100*part, s.why)
			continue
		}
		ratio := float64(s.finish.Sub(s.at)) / float64(ended.Sub(s.at))
		line += fmt.Sprintf("  %2.0f %%: %.2f", 100*part, ratio)
		effort.ErrorIf(t, part >= 0.25 && (ratio < m.least || ratio > m.most),
			"at %.0f %% of the run %.2f of what was left was told, want %.2f to %.2f", 100*part, ratio, m.least, m.most)
	}
	t.Log(line)
}

// usual are the waits of the configuration's default.
var usual = []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour,
	2 * time.Hour}

func mixes() []mix {
	return []mix{
		{name: "rate-limited", waits: usual, domainsMax: 1024, least: 0.7, most: 1.4, list: addresses(1, 1500, 2),
			at: func(string) (string, habits) { return "slow.test", habits{perSecond: 5} }},
		{name: "rate-limited, untold", waits: usual, domainsMax: 1024, least: 0.7, most: 1.4, list: addresses(1, 1500, 2),
			at: func(string) (string, habits) { return "slow.test", habits{perSecond: 5, untold: true} }},
		{name: "rate-limited, all accepted", waits: usual, domainsMax: 1024, least: 0.7, most: 1.4,
			list: addresses(1, 600, 1),
			at:   func(string) (string, habits) { return "slow.test", habits{perSecond: 5, catchAll: true} }},
		{name: "greylisting for 12 minutes", waits: usual, domainsMax: 1024, least: 0.1, most: 2, list: addresses(50, 4, 2),
			at: func(d string) (string, habits) { return d, habits{perSecond: 5, grey: 12 * time.Minute} }},
		{name: "slow and greylisting", waits: usual, domainsMax: 1024, least: 0.35, most: 2, list: addresses(1, 2000, 2),
			at: func(string) (string, habits) { return "both.test", habits{perSecond: 2, grey: 4 * time.Minute} }},
		{name: "many domains at one receiver", waits: usual, domainsMax: 100, least: 0.4, most: 3, list: addresses(300, 2, 2),
			at: func(string) (string, habits) {
				return "host.test", habits{perSecond: 10, latency: 100 * time.Millisecond}
			}},
		{name: "more domains than at a time", waits: usual, domainsMax: 15, least: 0.5, most: 2, list: addresses(600, 2, 2),
			at: func(d string) (string, habits) { return d, habits{perSecond: 2, latency: 800 * time.Millisecond} }},
		{name: "greylisting, short waits", waits: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second},
			domainsMax: 1024, least: 0.3, most: 3, list: addresses(20, 10, 2),
			at: func(d string) (string, habits) { return d, habits{perSecond: 5, grey: 5 * time.Second} }},
		{name: "greylisting, usual waits", waits: usual, domainsMax: 1024, least: 0.3, most: 3, list: addresses(50, 4, 2),
			at: func(d string) (string, habits) { return d, habits{perSecond: 5, grey: 4 * time.Minute} }},
		{name: "refusals bounded", waits: usual, domainsMax: 1024, least: 0.5, most: 2, list: addresses(1, 80, 2),
			at: func(string) (string, habits) { return "strict.test", habits{perSecond: 5, refusals: 20} }},
		{name: "everyday", waits: usual, domainsMax: 1024, least: 0.3, most: 3, list: everyday, at: everydayAt},
	}
}

// addresses makes a list of domains with the same number of addresses each, of which one in a number is good.
func addresses(domains, each, good int) func(add func(string)) {
	return func(add func(string)) {
		for i := range domains * each {
			word := "no"
			if i/domains%good == 0 {
				word = "yes"
			}
			add(fmt.Sprintf("%s%d@d%d.test", word, i, i%domains))
		}
	}
}

// everyday is what customers upload: some large providers, and many domains of few.
func everyday(add func(string)) {
	for i := range 400 {
		word := "yes"
		if i%5 == 4 {
			word = "no"
		}
		name := fmt.Sprintf("own%d.test", i%130)
		if i%2 == 0 {
			name = fmt.Sprintf("provider%d.test", i%6)
		}
		add(fmt.Sprintf("%s%d@%s", word, i, name))
	}
}

func everydayAt(name string) (string, habits) {
	n := 0
	_, _ = fmt.Sscanf(name, "own%d.test", &n)
	h := habits{perSecond: 5, latency: time.Duration(100+17*n) * time.Millisecond}
	switch {
	case strings.HasPrefix(name, "provider"):
		h.perSecond, h.latency = 1, 300*time.Millisecond
	case n%10 == 3:
		h.catchAll = true
	case n%20 == 7:
		h.grey = 4 * time.Minute
	}
	return name, h
}
