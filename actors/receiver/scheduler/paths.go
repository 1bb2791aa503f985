package scheduler

import (
	"cmp"
	"errors"
	"hash/fnv"
	"iter"
	"math"
	"net/netip"
	"slices"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/inspect"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// paths are our sources and the receiver's hosts, with their state.
type paths struct {
	*env
	all      sources // the sources in this receiver's order
	routes   map[string]*route
	receiver pause
	restored *restored      // stored hosts without a route yet; nil: none
	others   []facts.Source // the stored state of other nodes' sources
	othersAt time.Time
}

// sources are our sources in the order of a receiver: see orderSources.
type sources []*egressPath

// eachAccepting yields the sources that the receiver accepts.
func (all sources) eachAccepting(now time.Time) iter.Seq[*egressPath] {
	return func(yield func(*egressPath) bool) {
		for _, o := range all {
			if !now.Before(o.until) && !yield(o) {
				return
			}
		}
	}
}

func newPaths(e *env, b throttle.RateBounds, now time.Time) *paths {
	ps := &paths{env: e, routes: map[string]*route{}, all: orderSources(e.key, e.options.Sources, e.limits)}
	for _, o := range ps.all {
		o.beginRate(b, now)
	}
	return ps
}

func (o *egressPath) beginRate(b throttle.RateBounds, now time.Time) {
	o.pace = throttle.NewPace(b, now)
	rate, _ := o.pace.Permits()
	o.rcpts = throttle.NewWindow(rate, now)
}

// errFamily says that an operator forbids a host's address family.
var errFamily = errors.New("addresses of this family are not to be dialled (address_family)")

// reaches reports whether an address of this family may be dialled.
func reaches(f throttle.Family, at netip.Addr) bool {
	switch f {
	case throttle.FamilyV4:
		return at.Unmap().Is4()
	case throttle.FamilyV6:
		return !at.Unmap().Is4()
	}
	return true
}

const (
	// suspendFirst is the shortest suspension of a source at a receiver that refuses it. Each following suspension lasts a
	// quarter of the time since the first refusal, up to suspendMost. So a block costs at most a quarter more than its
	// length, or 15 s. A block of a day is tried 37 times, a longer one every four hours.
	suspendFirst = 15 * time.Second
	suspendMost  = 4 * time.Hour

	// suspendUnreported is the longest suspension of our sources that clients don't hear of.
	suspendUnreported = 20 * time.Second

	// queuesInRow: if this many queues of a receiver refuse a source, with no answer about an address in between, the
	// source is suspended at the whole receiver. Customers of one operator have their own block lists. Three don't agree
	// by chance.
	queuesInRow = 3
)

// errNoSource says that none of our sources has an address of a host's family.
var errNoSource = errors.New("no source address of this family is configured")

// egressPath is one of our sources at this receiver: its rate, suspension and refusals there.
type egressPath struct {
	*egress.Source
	index    int // number of the source in the pool
	name     string
	refusals *throttle.Budget
	pace     *throttle.Pace
	rcpts    *throttle.Window // keeps to the rate by the time of sending, like allowance.rcpts
	pause    throttle.Pause   // the pause that an operator has set for the source
	grey     throttle.Greylist

	cause      evidence.Cause      // why the rate last changed, for evidence
	suspension                     // suspension of the source at the whole receiver
	takenAt    time.Time           // when the pool last heard that the receiver accepts the source
	asking     int                 // number of sessions that are asking
	refusing   map[string]struct{} // queues that refused the source, with no answer about an address since
}

// place is the host that was asked and the source that asked.
type place struct {
	route *route
	host  *candidate
	path  *egressPath
}

// suspension keeps a source from a receiver. The zero value is no suspension.
type suspension struct {
	until time.Time // the source isn't used before this time
	count int       // suspensions in a row, with no answer about an address in between
	last  Judgement // the newest refusal
}

// extend suspends the source again. The time is a quarter of what the suspensions in a row have lasted, and lies
// between first and most.
func (r *suspension) extend(now time.Time, judged Judgement, first, most time.Duration) {
	var wait, lasted time.Duration
	for range r.count + 1 {
		lasted += wait
		if wait = max(first, lasted/4); wait >= most {
			wait = most
			break
		}
	}
	r.until = now.Add(max(judged.Verdict.Wait, wait))
	r.count++
	r.last = judged
}

// orderSources returns a node's sources in the order of a receiver. A receiver's first source is always the same,
// because greylisting remembers a source. The first source differs between receivers (rendezvous hashing).
func orderSources(key string, s *egress.Pool, a throttle.Limits) sources {
	out := make([]*egressPath, s.Len())
	score := make(map[*egressPath]uint64, len(out))
	for i := range out {
		o := &egressPath{Source: s.Source(i), index: i, name: s.Source(i).Name(),
			refusals: throttle.NewBudget(a.RefusedPerHour, a.RefusedShare, s.Hour),
			refusing: map[string]struct{}{}}
		h := fnv.New64a()
		_, _ = h.Write([]byte(key + " " + o.name))
		out[i], score[o] = o, h.Sum64()
	}
	slices.SortStableFunc(out, func(a, b *egressPath) int { return cmp.Compare(score[a], score[b]) })
	return out
}

// readSourcePauses reads which of our sources an operator has paused.
func (ps *paths) readSourcePauses() {
	for _, o := range ps.all {
		pause := ps.options.Sources.Limits(o.index).Pause
		if pause == throttle.PauseYes && o.pause != pause {
			ps.halt(Halt{path: o})
		}
		o.pause = pause
	}
}

// sourceBlocked returns why a source may not be used now for another reason than this receiver, and until when.
func (ps *paths) sourceBlocked(now time.Time, o *egressPath) status.Blocked {
	if o.pause == throttle.PauseYes || o.pause == throttle.PauseDrain {
		return status.Blocked{Cause: wire.Cause_PAUSED}
	}
	today, waits := ps.options.ledgerTime(now), ps.fair.Queued() > 0
	if left, next := ps.options.Sources.Remaining(o.index, ps.key, today, waits); left == 0 {
		return status.Blocked{Cause: wire.Cause_NO_SOURCE, Until: now.Add(next)}
	}
	if ok, until := ps.options.Sources.Usable(o.index, ps.key, now); !ok {
		return status.Blocked{Cause: wire.Cause_NO_SOURCE, Until: until}
	}
	return status.Blocked{}
}

// allSuspended reports whether all our sources are suspended because many receivers refuse them.
func (all sources) allSuspended(now time.Time, pool *egress.Pool, key string) bool {
	return !slices.ContainsFunc(all, func(o *egressPath) bool {
		usable, _ := pool.Usable(o.index, key, now)
		return usable
	})
}

// waitsForSources reports whether a queue without a usable host waits for sources that are suspended, paused, or at
// their daily cap. The time is the end of the wait; zero: not known.
func (ps *paths) waitsForSources(now time.Time, l *route) (bool, time.Time) {
	var soonest time.Time
	waits := false
	for _, c := range l.candidates {
		if now.Before(c.until) || !reaches(ps.limits.Family, c.at) {
			continue
		}
		for _, o := range ps.all {
			if !o.Reaches(c.at) || l.suspensionOf(now, o) != nil {
				continue
			}
			if b := ps.sourceBlocked(now, o); !b.Free() {
				waits = true
				if soonest.IsZero() || b.Until.Before(soonest) {
					soonest = b.Until
				}
			}
		}
	}
	return waits, soonest
}

// choosePath returns the source that may dial a host of a queue now; nil: none.
func (ps *paths) choosePath(now time.Time, l *route, at netip.Addr) *egressPath {
	for _, o := range ps.all {
		if !o.Reaches(at) || l.suspensionOf(now, o) != nil {
			continue
		}
		if ps.sourceBlocked(now, o).Free() {
			return o
		}
	}
	return nil
}

// sourcesUnavailable returns why all our sources that the receiver accepts are paused, suspended, or at their daily
// cap. Until is when; zero for a pause.
func (ps *paths) sourcesUnavailable(now time.Time) (first status.Blocked) {
	for o := range ps.all.eachAccepting(now) {
		b := ps.sourceBlocked(now, o)
		switch {
		case b.Free():
			return b
		case first.Free(), first.Until.IsZero(), !b.Until.IsZero() && b.Until.Before(first.Until):
			first = b
		}
	}
	return first
}

// mayBeRefused reports whether a source has refusals left in this hour. If no source has, mayBeRefused returns when one
// will; zero: when an open probe is answered.
func (ps *paths) mayBeRefused(now time.Time) (bool, time.Time) {
	var soonest time.Time
	usable := false
	for o := range ps.all.eachAccepting(now) {
		usable = true
		n, next := o.refusals.Ready(now)
		if resumes := o.pace.Explain().Until; now.Before(resumes) {
			n, next = 0, later(resumes, next)
		}
		if n > 0 {
			return true, time.Time{}
		}
		soonest = sooner(soonest, next)
	}
	return !usable, soonest // if no source is usable, the queues find out
}

// nextCandidate returns the best candidate of a queue that may be dialled now, and its source. nextCandidate chooses a
// candidate that is set aside only if there is no other, or if the receiver greylists: each host may have its own
// greylist, so the first host is asked again.
func (ps *paths) nextCandidate(now time.Time, l *route) (best *candidate, from *egressPath) {
	for _, c := range l.candidates {
		if best != nil && now.Before(c.aside) || now.Before(c.until) || !reaches(ps.limits.Family, c.at) {
			continue
		}
		o := ps.choosePath(now, l, c.at)
		if o == nil {
			continue
		}
		if best, from = c, o; !now.Before(c.aside) || o.pace.Greylisting() {
			break
		}
	}
	return best, from
}

// prefersOtherHost reports whether a place's host should be left for another one.
func prefersOtherHost(ps *paths, now time.Time, at place) bool {
	if at.path.pace.Greylisting() {
		best, _ := ps.nextCandidate(now, at.route)
		return best != nil && best.host != at.host.host
	}
	return now.Before(at.host.aside) && ps.otherHost(now, at.route, at.path, at.host.host) != nil
}

// otherHost returns a candidate of another host that a source may dial now; nil: none.
func (ps *paths) otherHost(now time.Time, l *route, o *egressPath, host string) *candidate {
	for _, c := range l.candidates {
		if c.host != host && !now.Before(c.until) && !now.Before(c.aside) && o.Reaches(c.at) &&
			reaches(ps.limits.Family, c.at) {
			return c
		}
	}
	return nil
}

// hostUnavailable returns why a candidate may not be dialled, until when, and whether this is temporary. If the reason
// is permanent, none of our sources can reach the candidate. The source that is usable first decides the time.
func (ps *paths) hostUnavailable(now time.Time, l *route, c *candidate) (judged Judgement, until time.Time,
	temporary bool) {
	if now.Before(c.until) {
		return c.last, c.until, true
	}
	if !reaches(ps.limits.Family, c.at) {
		judged = ps.options.Judge(evidence.Raw{At: now, Stage: smtp.StageConnect, Host: c.host, Err: errFamily})
		return judged, now.Add(ps.penaltyWait(judged.Verdict, len(ps.options.Waits))), false
	}
	first := ps.all.suspendedAt(now, l, c)
	if first == nil {
		judged = ps.options.Judge(evidence.Raw{At: now, Stage: smtp.StageConnect, Host: c.host, Err: errNoSource})
		return judged, now.Add(ps.penaltyWait(judged.Verdict, len(ps.options.Waits))), false
	}
	return first.last, first.until, true
}

// suspendedAt returns, of the suspensions that keep our sources from a candidate, the one that ends first; nil: there
// are none.
func (all sources) suspendedAt(now time.Time, l *route, c *candidate) (first *suspension) {
	for _, o := range all {
		if r := l.suspensionOf(now, o); r != nil && o.Reaches(c.at) && (first == nil || r.until.Before(first.until)) {
			first = r
		}
	}
	return first
}

// hostsUnavailable returns the answer to the probes of a queue that has no host to dial: ask again when the first host
// may be dialled. why has a reason for each host, and last the reason of that first host. If a host's addresses differ,
// a reason other than "no mail at all" (RFC 7504 §3) is taken, because all addresses must say that.
func (ps *paths) hostsUnavailable(now time.Time, l *route) (judged Judgement, why []Judgement) {
	reasons, untils := map[string]Judgement{}, map[string]time.Time{}
	var names []string
	first, until := "", time.Time{}
	for _, c := range l.candidates {
		one, free, _ := ps.hostUnavailable(now, l, c)
		if known, ok := reasons[c.host]; !ok || known.Verdict.Reason == smtp.NoMailService {
			reasons[c.host] = one
		}
		if _, ok := untils[c.host]; !ok {
			names = append(names, c.host)
		}
		untils[c.host] = free
		if until.IsZero() || free.Before(until) {
			first, until = c.host, free
		}
	}
	for _, name := range names {
		if name != first {
			why = append(why, reasons[name])
		}
	}
	judged = reasons[first]
	why = append(why, judged)
	judged.Verdict.Outcome, judged.Verdict.Action = smtp.Undecided, verdict.ActRetry
	judged.Verdict.Wait = until.Sub(now)
	return judged, why
}

// blameSource counts a refusal of a source in the node's pool.
func (ps *paths) blameSource(now time.Time, o *egressPath, judged Judgement) {
	if r := judged.Verdict.Reason; r != smtp.SourceBlocked && r != smtp.SourceIdentity {
		return
	}
	o.takenAt = time.Time{}
	if ps.options.Sources.NoteBlocked(o.index, ps.key, now, judged.Verdict.Reason) {
		ps.options.Metrics.sourcesOut.Inc()
		ps.options.Log.Error("source is refused by many receivers and speaks to none for a while; "+
			"look at its name, its return path and the block lists", "source", o.name, "reason",
			judged.Verdict.Reason.String())
	}
}

// noteTaken notes that the receiver answered about an address that one of our sources asked.
func (ps *paths) noteTaken(now time.Time, l *route, o *egressPath) {
	if r := l.refusals[o]; r != nil {
		r.count = 0
	}
	o.count = 0
	clear(o.refusing)
	if o.takenAt.Equal(now) {
		return
	}
	o.takenAt = now
	ps.options.Sources.NoteAnswered(o.index, ps.key, now)
}

// setRefusalBudgets sets how many refusals each source may cause in an hour.
func (ps *paths) setRefusalBudgets(a throttle.Limits) {
	for _, o := range ps.all {
		o.refusals.Set(a.RefusedPerHour, a.RefusedShare)
	}
}

func (ps *paths) sourceStatus(now time.Time, sessions map[*egressPath]int) []inspect.ReceiverSource {
	out := make([]inspect.ReceiverSource, 0, len(ps.all))
	for _, o := range ps.all {
		one := inspect.ReceiverSource{Source: o.name, State: "spare", Sessions: sessions[o]}
		budget, _ := o.refusals.Ready(now)
		one.Budget = max(0, budget)
		one.Rate = o.rateStatus()
		ok, until := ps.options.Sources.Usable(o.index, ps.key, now)
		_, resumes := o.pace.Permits()
		switch pause := ps.options.Sources.Limits(o.index).Pause; {
		case pause == throttle.PauseYes:
			one.State = "paused"
		case pause == throttle.PauseDrain:
			one.State = "draining"
		case now.Before(o.until):
			one.State, one.Until, one.Reason = "suspended", o.until, o.last.Verdict.Reason.String()
		case !ok:
			one.State, one.Until = "suspended", until
		case now.Before(resumes):
			one.State, one.Until = "suspended", resumes
		case one.Sessions > 0:
			one.State = "used"
		}
		out = append(out, one)
	}
	return out
}

func (o *egressPath) rateStatus() inspect.RateStatus {
	e := o.pace.Explain()
	return inspect.RateStatus{Rate: e.Rate, Floor: e.Floor, Ceiling: e.Ceiling, Edge: e.Edge, Phase: string(e.Phase),
		Since: e.Since, Why: e.Why}
}

// firstToResume returns the source that may ask again first, if all that the receiver accepts pause briefly; nil: one
// may ask now.
func (all sources) firstToResume(now time.Time) (first *egressPath) {
	for o := range all.eachAccepting(now) {
		resumes := o.pace.Explain().Until
		if !now.Before(resumes) {
			return nil
		}
		if first == nil || resumes.Before(first.pace.Explain().Until) {
			first = o
		}
	}
	return first
}

// slowedPath returns the source whose learned rate limits how fast we ask; nil: the configured limits decide.
func (all sources) slowedPath(now time.Time) *egressPath {
	for o := range all.eachAccepting(now) {
		if o.pace.Limits(now) {
			return o
		}
		return nil
	}
	return nil
}

// answered returns how many addresses were lately accepted and refused, from the source in use.
func (all sources) answered() (accepted, refused int) {
	for _, o := range all {
		if accepted, refused = o.refusals.Answered(); accepted+refused > 0 {
			break
		}
	}
	return accepted, refused
}

// permittedRate returns how many RCPTs a second may be sent now, not counting short pauses: the lower of the configured
// rate and the sources' learned rates.
func (all sources) permittedRate(now time.Time, allowed throttle.Rate) float64 {
	found := 0.0
	for o := range all.eachAccepting(now) {
		rate, _ := o.pace.Permits()
		found = max(found, rate.PerSecond())
	}
	return min(allowed.PerSecond(), found)
}

// refusalWeight returns how many RCPTs one refusal from a source is worth; 1: refusals aren't scarce there.
func (ps *paths) refusalWeight(o *egressPath) float64 {
	return o.refusals.WeighRefusal(min(ps.limits.RcptRate.PerSecond(), o.pace.Lasting()))
}

// chargeRefusal charges a refusal to the flow and the tenant whose address was refused, if refusals are scarce. So
// tenants, and the files of a tenant, share refusals by weight.
func (qs *queues) chargeRefusal(now time.Time, l *hostQueue, o *egressPath, p *Probe) {
	if w := qs.paths.refusalWeight(o); w > 1 && !p.chunk.gone() {
		l.ChargeScarce(now, qs.flowOf(p.chunk.task), w-1, w*float64(o.refusals.CountAllowed()))
	}
}

// perHourByRefusals returns how many addresses can be asked in an hour if a part of them is refused. The result depends
// on how many wait, because the refusal budget is renewed each hour.
func (ps *paths) perHourByRefusals(now time.Time, part float64, wait int) float64 {
	for o := range ps.all.eachAccepting(now) {
		if wait == 0 || ps.limits.RefusedShare > 0 {
			continue
		}
		if t := o.refusals.TimeFor(int(math.Ceil(float64(wait)*part)), now); t > 0 {
			return float64(wait) / t.Hours()
		}
		return math.Inf(1)
	}
	return float64(ps.limits.RefusedPerHour) / part / ps.options.Sources.Hour.Of(time.Hour).Hours()
}
