package scheduler

import (
	"container/heap"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

var (
	onlySeed  = flag.Uint64("seed", 0, "of TestFamilies: the only world that is played of each family")
	allWorlds = flag.Int("worlds", 0, "of TestFamilies: how many worlds are played of each family")
	fromSeed  = flag.Uint64("from", 0, "of TestFamilies: the first that is played is the one after it")
)

// family is a kind of worlds, and which share of them has to be as wanted, less than are in the long run.
type family struct {
	name   string
	about  string // what is wanted, in words
	worlds int    // in a default run
	share  float64
	draw   func(*rand.Rand) *drawn
}

// Figures of how a world went. Of the first two the wanted is the least, of the others the most.
const (
	usedPart     = iota // of what could be asked, from the second on that is looked at
	worstTen            // the same in the worst ten seconds
	putOffPart          // of all RCPTs, by a limit
	timeTaken           // until all have an outcome, as a multiple of the ideal
	rcptsAsked          // as a multiple of the ideal
	connsOpened         // an address
	askedAtFirst        // RCPTs and connections of the first minute, where nobody is answered
	askedInVain         // the same after it, by the second
	unheard             // addresses that were asked three minutes ago, and whose clients weren't told since
	figuresAll
)

type figures [figuresAll]float64

var figureNames = [figuresAll]string{"used", "worst 10 s", "put off", "time / ideal", "RCPTs / ideal",
	"connections an address", "first minute", "then by the second", "unheard"}

// drawn is a world drawn at random, whose truth is known.
type drawn struct {
	told      throttle.Limits
	stated    bool
	far       *unknownReceiver
	waits     []time.Duration // of the clients
	turn      time.Duration
	jitter    time.Duration
	domains   int
	tenants   int
	hosts     int
	addresses int           // 0: as many as the span has time for
	span      time.Duration // how long it is looked at, at most
	from      int           // the second from which it counts what is used
	spare     time.Duration // that may be lost beside the ideal, as with an outage
	others    bool          // nobody waits for addresses that can't get an outcome
	takeover  time.Duration // when the scheduler is thrown away; 0: never
	against   *drawn        // by whose ideal it is judged; nil: its own
	wanted    figures       // 0: not looked at
	what      string
}

// perSession returns how many addresses a second a session can ask.
func (w *drawn) perSession() float64 { return 1 / (3*w.turn + w.jitter/4).Seconds() }

// rate returns how many addresses a second a scheduler could ask that knew all limits.
func (w *drawn) rate() float64 {
	l := w.far.limit
	n := min(w.told.RcptRate.PerSecond(), float64(w.told.Connections)*w.perSession(),
		w.told.ConnectionRate.PerSecond()*float64(w.told.RcptsPerConnection))
	if l.rcpts.Events > 0 {
		n = min(n, l.rcpts.PerSecond())
	}
	if s := w.far.slow; s.refusals {
		n = min(n, float64(w.told.Connections)/(1/w.perSession()+w.far.invalid*s.by.Seconds()))
	}
	if l.ofDomain.Events > 0 { // the domains are asked one after the other
		n = min(n, l.ofDomain.PerSecond())
	}
	if l.sessions > 0 {
		n = min(n, float64(l.sessions)*w.perSession())
	}
	if l.opens.Events > 0 {
		n = min(n, l.opens.PerSecond()*float64(w.told.RcptsPerConnection))
	}
	if k := float64(max(l.inSession, w.far.slow.after)); k > 0 {
		lasts := k/w.perSession() + 5*w.turn.Seconds()
		n = min(n, w.told.ConnectionRate.PerSecond()*k, float64(w.told.Connections)*k/lasts)
	}
	for _, o := range w.far.odd {
		if o.cut && o.share > 0 { // each costs a session, and another one when it is looked at again
			n = min(n, w.told.ConnectionRate.PerSecond()/o.share/2)
		}
	}
	return n
}

// idealQueue is a heap of addresses by the time at which they are due.
type idealQueue []*idealCase

type idealCase struct {
	first, due float64 // seconds
	odd        *oddOf
	grey       float64
	waits      int
}

func (q idealQueue) Len() int           { return len(q) }
func (q idealQueue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q idealQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *idealQueue) Push(v any)        { *q = append(*q, v.(*idealCase)) }
func (q *idealQueue) Pop() any {
	v := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return v
}

// ideal plays the list of one who knows all limits: what is due goes first, each address that is deferred comes back
// after the waits of the clients, and as soon as one that was greylisted has passed the others wait for as long as it
// did. It returns how long that takes until all have an outcome, and how many RCPTs.
func (w *drawn) ideal() (seconds float64, rcpts int) {
	later, next, open, knows := idealQueue{}, 0, 0, map[float64]float64{}
	each, reopen := 1/w.rate(), 2*w.turn.Seconds()/float64(w.told.Connections)
	t := 5 * w.turn.Seconds()
	cases := make([]*idealCase, w.addresses)
	for i := range cases {
		tenant := i % w.tenants
		address := fmt.Sprintf("a%d.%d@d%d.example", tenant, i/w.tenants/w.domains, i/w.tenants%w.domains)
		cases[i] = &idealCase{odd: w.far.oddAt(tenant, address), grey: w.far.grey.Seconds()}
		if o := cases[i].odd; o != nil && o.grey > 0 {
			cases[i].grey = o.grey.Seconds()
		}
		if w.far.isKnown(address) {
			cases[i].odd, cases[i].grey = nil, 0
		}
		if o := cases[i].odd; o == nil || !o.stays() {
			open++
		}
	}
	for open > 0 || next < len(cases) {
		var c *idealCase
		switch {
		case len(later) > 0 && later[0].due <= t:
			c = heap.Pop(&later).(*idealCase)
		case next < len(cases):
			c = cases[next]
			next++
			c.first = t
		default:
			t = later[0].due
			continue
		}
		rcpts++
		t += each
		if c.odd != nil && c.odd.cut {
			t = max(t, t-each+w.turn.Seconds()*3/float64(w.told.Connections)+reopen)
		}
		waited, known := knows[c.grey]
		switch stays := c.odd != nil && c.odd.grey == 0; {
		case !stays && t-each-c.first >= c.grey:
			open--
			if passed := t - each - c.first; c.grey > 0 && (!known || passed < waited) {
				knows[c.grey] = passed
				for _, o := range later {
					if o.grey == c.grey {
						o.due = min(o.due, max(t, o.first+passed))
					}
				}
				heap.Init(&later)
			}
			continue
		case stays && !c.odd.stays():
			open--
			continue
		case !stays && known && c.first+waited > t:
			c.due = c.first + waited
		default:
			c.due = t + w.waits[min(c.waits, len(w.waits)-1)].Seconds()
			c.waits++
		}
		heap.Push(&later, c)
	}
	return t, rcpts
}

// begin makes the trial of a world, with all that there is to ask.
func (w *drawn) begin(t tester, seed uint64) *trial {
	if w.addresses == 0 {
		w.addresses = int(w.rate() * w.span.Seconds())
	}
	tr := newTrial(t, w.told, w.stated, w.far, seed)
	tr.turn, tr.jitter, tr.waits = w.turn, w.jitter, w.waits
	tr.remember, tr.others = w.takeover > 0, w.others
	tr.beginScheduler(w.stated, w.waits)
	for d := range w.domains {
		for tenant := range w.tenants {
			tr.add(tenant, fmt.Sprintf("d%d.example", d), w.addresses/w.domains/w.tenants,
				hosts([]string{"mx1.example", "mx2.example"}[:w.hosts]...))
		}
	}
	if w.addresses = tr.all; w.against == nil {
		w.against = w
	}
	w.against.addresses = tr.all
	if w.takeover > 0 {
		tr.after(w.takeover, tr.takeOver)
	}
	return tr
}

func sorted(list []time.Time) []time.Time {
	slices.SortFunc(list, time.Time.Compare)
	return list
}

// silenceMost is for how long a client that waits may hear nothing.
const silenceMost = 10 * time.Second

// lateMost is how many times the ideal is waited for.
const lateMost = 2

// play runs a world and judges it.
func (w *drawn) play(t tester, seed uint64) (figures, *trial) {
	tr, span := w.begin(t, seed), w.span
	if w.wanted[timeTaken] > 0 {
		ideal, _ := w.against.ideal()
		span = w.spare + time.Duration(lateMost*ideal*float64(time.Second)) + takeoverSpare
	}
	tr.play(begin.Add(span))
	checkRate(t, "RCPTs, "+w.what, sorted(tr.sent), w.told.RcptRate)
	checkRate(t, "connections, "+w.what, sorted(tr.dials), w.told.ConnectionRate)
	if tr.wrong > 0 {
		t.Errorf("%d outcomes are not true: seed %d, %s", tr.wrong, seed, w.what)
	}
	for _, one := range tr.tasks {
		if w.wanted[askedInVain] > 0 && len(one.out) > 0 && tr.now.Sub(one.heard) > silenceMost {
			t.Errorf("%s hears nothing since %s: seed %d, %s", one.name, one.heard.Sub(begin), seed, w.what)
			break
		}
	}
	return w.judge(tr), tr
}

// fewPutOff deferrals are always allowed, even in a short list: a limit can't be found without some.
const fewPutOff = 30

// judge returns the figures of a world that was played.
func (w *drawn) judge(tr *trial) (f figures) {
	end := tr.now.Sub(begin)
	to := int(end / time.Second)
	if all := tr.between(0, to+1); w.wanted[timeTaken] > 0 {
		ideal, rcpts := w.against.ideal()
		if w.takeover > 0 {
			end -= takeoverSpare
		}
		f[timeTaken] = (end - w.spare).Seconds() / ideal
		f[rcptsAsked] = float64(all.asked) / float64(rcpts)
		f[connsOpened] = float64(all.opens) / float64(tr.all)
	}
	if first, after := tr.between(0, 60), tr.between(60, to); to > 60 {
		f[askedAtFirst] = float64(first.asked + first.opens)
		f[askedInVain] = float64(after.asked+after.opens) / float64(to-60)
	}
	for _, one := range tr.tasks {
		for _, c := range one.cases {
			if !c.since.IsZero() && tr.now.Sub(c.since) > 3*time.Minute {
				f[unheard]++
			}
		}
	}
	if tr.drained > 0 { // the end, when little is left, says nothing
		to = min(to, tr.drained)
	}
	all, x := tr.between(0, to), tr.between(w.from, to)
	secs := float64(to-w.from) - w.spare.Seconds()
	if over := int(w.takeover / time.Second); over > w.from && over < to {
		secs -= takeoverSpare.Seconds()
	}
	f[usedPart] = float64(x.useful()) / max(1, secs) / w.rate()
	f[putOffPart] = float64(all.limited) / float64(max(100*fewPutOff, all.asked))
	f[worstTen] = 1
	for k := w.from; k+10 <= to; k++ {
		if over := int(w.takeover / time.Second); w.takeover > 0 && k+10 > over && k < over+15 {
			continue
		}
		ten := tr.between(k, k+10)
		f[worstTen] = min(f[worstTen], float64(ten.useful())/10/w.rate())
	}
	return f
}

// useful returns how many of the RCPTs the receiver answered or could have answered.
func (s seconds) useful() int { return s.asked - s.limited - s.down - s.ill }

// takeoverSpare is how much time a takeover may cost.
const takeoverSpare = 15 * time.Second

// meets reports whether the figures are as wanted.
func (w *drawn) meets(f figures) bool {
	for i, wanted := range w.wanted {
		atLeast := i == usedPart || i == worstTen
		if wanted > 0 && (atLeast && f[i] < wanted || !atLeast && f[i] > wanted) {
			return false
		}
	}
	return true
}

// say tells what is looked at of a world's figures.
func (w *drawn) say(f figures) string {
	out := []string{}
	for i, wanted := range w.wanted {
		if wanted > 0 {
			out = append(out, fmt.Sprintf("%s %.3f (%.2f)", figureNames[i], f[i], wanted))
		}
	}
	return strings.Join(out, ", ")
}

// seeds returns the seeds of the family's worlds in this run.
func (f *family) seeds() []uint64 {
	if *onlySeed > 0 {
		return []uint64{*onlySeed}
	}
	n := effort.Cases(f.worlds)
	if *allWorlds > 0 {
		n = *allWorlds
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = *fromSeed + uint64(i+1)
	}
	return list
}

// drawWorld draws the world of a seed.
func (f *family) drawWorld(seed uint64) *drawn {
	h := fnv.New64a()
	_, _ = h.Write([]byte(f.name))
	return f.draw(rand.New(rand.NewPCG(seed, h.Sum64())))
}

// TestFamilies plays drawn worlds of each family. One world is played again by
// go test ./actors/receiver/scheduler -run TestFamilies/NAME -seed N -v
func TestFamilies(t *testing.T) {
	table := []string{"| family | wanted | as wanted | median, worst |", "|---|---|---|---|"}
	for _, family := range effort.Some(families()) {
		t.Run(family.name, func(t *testing.T) {
			met, all, first := 0, []figures{}, (*drawn)(nil)
			for _, seed := range family.seeds() {
				w := family.drawWorld(seed)
				if first == nil {
					first = w
				}
				f, _ := w.play(t, seed)
				verdict := "BAD"
				if w.meets(f) {
					verdict = "as wanted"
					met++
				}
				all = append(all, f)
				t.Logf("seed %d: %s: %s; %s", seed, verdict, w.say(f), w.what)
			}
			enough := len(all) >= family.worlds // fewer, as with -short, show nothing
			if enough && family.share == 0 && !family.ends(all) {
				t.Error("half of the worlds take more than half as long again as they have to")
			}
			row := fmt.Sprintf("| %s | %s | %d of %d | %s |", family.name, family.about, met, len(all), summary(first, all))
			table = append(table, row)
			if enough && float64(met) < family.share*float64(len(all)) {
				t.Errorf("%d of %d worlds are as wanted, %.0f %% should be", met, len(all), 100*family.share)
			}
		})
	}
	text := strings.Join(table, "\n")
	if t.Log("\n" + text); effort.Long() {
		fmt.Println(text)
	}
}

// TestUnknownSiteIsBegunGently: one with a stated limit is asked at full rate at once.
func TestUnknownSiteIsBegunGently(t *testing.T) {
	for _, stated := range []bool{false, true} {
		told := openedWide()
		told.RcptRate = rate(5, time.Second)
		tr := newTrial(t, told, stated, &unknownReceiver{}, 1)
		tr.turn = 20 * time.Millisecond
		tr.add(0, "d.example", 1000, hosts("mx1.example"))
		tr.play(begin.Add(23 * time.Second))
		if n := tr.between(0, 3).asked; n == 0 || (n > 6) != stated {
			t.Errorf("stated %v: %d RCPTs at first", stated, n)
		}
		if n := tr.between(3, 23).asked; n < 75 {
			t.Errorf("stated %v: %d RCPTs in twenty seconds", stated, n)
		}
	}
}

// ends reports whether half of some worlds, where time is looked at, are not far from the ideal.
func (f *family) ends(all []figures) bool {
	far := 0
	for _, one := range all {
		if one[timeTaken] > 1.5 {
			far++
		}
	}
	return 2*far <= len(all)
}

// summary returns the median and the worst of each wanted figure.
func summary(w *drawn, all []figures) string {
	out := []string{}
	for i, wanted := range w.wanted {
		if wanted == 0 {
			continue
		}
		list := make([]float64, len(all))
		for k, f := range all {
			list[k] = f[i]
		}
		slices.Sort(list)
		worst := list[len(list)-1]
		if i == usedPart || i == worstTen {
			worst = list[0]
		}
		out = append(out, fmt.Sprintf("%s %.3f, %.3f", figureNames[i], list[len(list)/2], worst))
	}
	return strings.Join(out, "; ")
}

// TestRetriesMeetAnySecond: if one RCPT a second passes, retries right after a good answer would all be deferred.
func TestRetriesMeetAnySecond(t *testing.T) {
	putOffAtMost(t, 34, func(seed uint64, w *drawn) {
		w.far.limit.rcpts, w.far.limit.countsBad, w.far.limit.fixed = rate(1, time.Second), false, seed%2 == 0
		w.told.RcptRate, w.addresses = rate(5, time.Second), 60
	})
}

// TestAPenaltyIsKnownAgain: after a penalty a row of bad answers is the next one, whoever is asked again in it.
func TestAPenaltyIsKnownAgain(t *testing.T) {
	putOffAtMost(t, 34, func(seed uint64, w *drawn) {
		l := &w.far.limit
		l.rcpts, l.countsBad, l.penalty = rate(int(1+seed%2), time.Second), true, secondsOf(int(10+seed%3*5))
		w.told.RcptRate, w.addresses = rate(5*l.rcpts.Events, time.Second), 40
	})
}

// putOffAtMost plays forty worlds with low limits. At most most per cent of their RCPTs may be deferred.
func putOffAtMost(t *testing.T, most int, change func(seed uint64, w *drawn)) {
	t.Helper()
	asked, limited := 0, 0
	for seed := range uint64(40) {
		w := drawLow(rand.New(rand.NewPCG(seed, 1)))
		change(seed, w)
		_, tr := w.play(t, seed)
		played := tr.between(0, 1000)
		asked, limited = asked+played.asked, limited+played.limited
	}
	t.Logf("%d of %d are put off", limited, asked)
	effort.ErrorIf(t, 100*limited > most*asked, "%d of %d are put off", limited, asked)
}
