package verification

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"rollcall/actors/domain"
	"rollcall/actors/intake"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const (
	// Outcomes are settled after settleEvery or at settleAt of them, whichever is first.
	settleEvery = time.Second
	settleAt    = 1000

	// crashesMax is how often a domain's actor may crash before its addresses become unknown, which is free: the fault
	// is ours.
	crashesMax = 3

	// unsettledMax bounds the outcomes that wait for the ledger. At this number no address is offered and no domain is
	// begun until half of them are settled. An outcome takes some 700 bytes, so all take 11 MB.
	unsettledMax = 4 * ledger.SettlementMax

	// heldMax bounds the domains with an actor, including those that only wait for a time, such as for a greylist.
	// Guess: 2 KB each, 64 MB.
	heldMax = 32_768
)

// plan keeps which addresses are open, answered and settled, and which domain is next. It is plain Go. Mailbox only.
type plan struct {
	file       *intake.File
	order      []uint32 // ordinals that are not settled, domain by domain
	starts     []uint32 // where each domain begins in order; one more at the end
	ids        []uint32 // domain ids in the order of work
	next       int      // first of ids that was never begun
	began      int      // addresses of the domains that were begun
	final      int      // addresses that were answered in this run
	throughput throughput
	durations  lasted           // how long the finished small domains took
	open       map[string]*work // domains that have an actor, by name
	waiting    int              // how many domains in open only wait for a time
	busy       int              // sum of the others' weights
	crowded    bool             // the workspace has as many domains at work on this node as it may
	answered   bitset           // addresses with a final outcome, settled or not
	batched    []ledger.Result  // the first of pending, which are being settled
	entries    []evidence.Entry // how the outcomes of pending came about
	since      time.Time        // of the oldest of pending

	outcomes
	left map[string]*domain.Parked // the parked state of domains that weren't begun
}

// outcomes are those that the ledger doesn't have yet.
type outcomes struct {
	pending []*domain.Final // as they came
	behind  atomic.Bool     // there are too many: the domains wait for the ledger
}

type work struct {
	id      uint32
	size    int // addresses that were open when it was begun
	left    int // addresses that are not answered
	crashes int
	begun   time.Time
	waits   domain.Waits // what it waits for
	quiet   time.Time    // nothing to do before; zero: busy
}

// bitset is one bit for each ordinal.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) has(i uint32) bool { return b[i/64]&(1<<(i%64)) != 0 }

func (b bitset) set(i uint32) { b[i/64] |= 1 << (i % 64) }

func (b bitset) count() int {
	n := 0
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// newPlan groups the unsettled addresses by domain, in the order in which the domains first appear in the file.
func newPlan(f *intake.File, settled bitset) *plan {
	domains := len(f.Domains())
	p := &plan{file: f, answered: settled, open: map[string]*work{}, starts: make([]uint32, domains+1)}
	for i := range f.Len() {
		if !settled.has(uint32(i)) {
			p.starts[f.DomainID(i)+1]++
		}
	}
	for id := range domains {
		if p.starts[id+1] > 0 {
			p.ids = append(p.ids, uint32(id))
		}
		p.starts[id+1] += p.starts[id]
	}
	p.order = make([]uint32, p.starts[domains])
	fill := slices.Clone(p.starts)
	for i := range f.Len() {
		if !settled.has(uint32(i)) {
			id := f.DomainID(i)
			p.order[fill[id]] = uint32(i)
			fill[id]++
		}
	}
	return p
}

// takeUp restores the state of a parked run.
func (p *plan) takeUp(list []domain.Parked) {
	p.left = make(map[string]*domain.Parked, len(list))
	for i := range list {
		p.left[list[i].Domain] = &list[i]
	}
}

func (p *plan) remaining() int { return len(p.order) - p.final }

// wholeDomain is the number of addresses from which a domain counts as a whole one at work. A smaller one counts as a
// fraction: it is done after a few round trips, most of them for opening its session.
const wholeDomain = 32

// weight returns what a domain counts for at work, in parts of wholeDomain.
func (w *work) weight() int { return min(w.size, wholeDomain) }

// mayBegin reports whether another domain may be begun: while fewer than busyMax are at work. Domains that only wait
// take memory alone.
func (p *plan) mayBegin(busyMax int) bool {
	return p.next < len(p.ids) && p.busy/wholeDomain < busyMax && len(p.open) < heldMax && !p.behind.Load()
}

// begin starts the next domain; false: none may be begun.
func (p *plan) begin(busyMax int) (string, bool) {
	if !p.mayBegin(busyMax) {
		return "", false
	}
	id := p.ids[p.next]
	p.next++
	name := p.file.Domains()[id]
	size := int(p.starts[id+1] - p.starts[id])
	p.began += size
	w := &work{id: id, size: size, left: size}
	p.open[name] = w
	p.busy += w.weight()
	return name, true
}

// ordinals returns what is still open of a domain.
func (p *plan) ordinals(w *work) []uint32 {
	all := p.order[p.starts[w.id]:p.starts[w.id+1]]
	if slices.ContainsFunc(all, p.answered.has) {
		all = slices.DeleteFunc(slices.Clone(all), p.answered.has)
	}
	return all
}

// take notes final outcomes, which belong to the plan from then on. A repeated one is ignored.
func (p *plan) take(now time.Time, finals []domain.Final) {
	before := len(p.pending)
	for i := range finals {
		if f := &finals[i]; int(f.Ordinal) < p.file.Len() && !p.answered.has(f.Ordinal) {
			p.answered.set(f.Ordinal)
			p.pending = append(p.pending, f)
		}
	}
	p.final += len(p.pending) - before
	if before == 0 {
		p.since = now
	}
	if len(p.pending) >= unsettledMax {
		p.behind.Store(true)
	}
}

// operatorOf returns the operator of the host last asked about an address.
func operatorOf(c *evidence.Case) smtp.Operator {
	for i := len(c.Attempts) - 1; i >= 0; i-- {
		if host := c.Attempts[i].Host; host != "" {
			return smtp.OperatorOf(host)
		}
	}
	return 0
}

// giveUp ends the open addresses of a domain whose actor keeps crashing.
func (p *plan) giveUp(now time.Time, w *work) {
	var finals []domain.Final
	for _, ordinal := range p.ordinals(w) {
		finals = append(finals, domain.Final{Ordinal: ordinal, Outcome: smtp.Unknown, Reason: smtp.Internal,
			At: now, Case: evidence.Case{GaveUp: true, Why: smtp.Internal}})
	}
	p.take(now, finals)
}

// batch returns what to settle now; nil: nothing yet. It stays the same until settled is called: a failed attempt may
// have been committed, and the ledger recognizes a repeat only if it is equal.
func (p *plan) batch(now time.Time, atOnce bool) []ledger.Result {
	if len(p.batched) == 0 {
		if len(p.pending) == 0 || !atOnce && len(p.pending) < settleAt && now.Sub(p.since) < settleEvery {
			return nil
		}
		p.fillBatch()
	}
	return p.batched
}

// fillBatch makes a batch, in file order, of as many of pending as one settlement takes.
func (p *plan) fillBatch() {
	batch := p.firstPending(min(len(p.pending), ledger.SettlementMax, evidence.EntriesMax))
	slices.SortFunc(batch, func(a, b *domain.Final) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	p.batched, p.entries = slices.Grow(p.batched, len(batch)), slices.Grow(p.entries, len(batch))
	var text strings.Builder   // of all addresses
	text.Grow(32 * len(batch)) // which most of them don't fill
	for _, f := range batch {
		from := text.Len()
		p.file.SpellTo(&text, int(f.Ordinal))
		p.batched = append(p.batched, ledger.Result{Ordinal: int64(f.Ordinal), Outcome: f.Outcome,
			Reason: f.Reason, At: f.At, Email: text.String()[from:], Operator: operatorOf(&f.Case)})
		p.entries = append(p.entries, evidence.Entry{Ordinal: int64(f.Ordinal), Case: f.Case})
	}
}

// firstPending returns the first pending outcomes, at most most, whose evidence fits into one settlement.
func (p *plan) firstPending(most int) []*domain.Final {
	size := 0
	for i, f := range p.pending[:most] {
		if size += evidence.Size(&f.Case); i > 0 && size > evidence.RawMax {
			return p.pending[:i]
		}
	}
	return p.pending[:most]
}

// settled drops the batch, which the ledger has now, and reports whether the ledger has caught up by it.
func (p *plan) settled(now time.Time) bool {
	n := len(p.batched)
	clear(p.pending[:n])
	if p.pending = p.pending[n:]; len(p.pending) == 0 {
		p.pending = nil
	}
	clear(p.batched)
	clear(p.entries)
	p.since, p.batched, p.entries = now, p.batched[:0], p.entries[:0]
	return len(p.pending) <= unsettledMax/2 && p.behind.CompareAndSwap(true, false)
}

// noteWait notes until when a domain only waits; zero: it is busy.
func (p *plan) noteWait(w *work, until time.Time) {
	if !w.quiet.IsZero() {
		p.waiting--
		p.busy += w.weight()
	}
	if w.quiet = until; !until.IsZero() {
		p.waiting++
		p.busy -= w.weight()
	}
}

func (p *plan) end(name string) {
	if w := p.open[name]; w != nil {
		p.noteWait(w, time.Time{})
		p.busy -= w.weight()
		delete(p.open, name)
	}
}

// quiet returns until when nothing can be done; false: something can.
func (p *plan) quiet() (time.Time, bool) {
	begun := p.next == len(p.ids) || len(p.open) == heldMax || p.crowded
	if !begun || len(p.open) == 0 || p.waiting < len(p.open) || len(p.pending) > 0 {
		return time.Time{}, false
	}
	var first time.Time
	for _, w := range p.open {
		if first.IsZero() || w.quiet.Before(first) {
			first = w.quiet
		}
	}
	return first, true
}

// loaded is the result of reading a verification. It has no plan if intake ended it or credits are missing.
type loaded struct {
	state ledger.Verification
	plan  *plan
	left  *leftover // of an earlier run; nil: nothing
}

// load reads the file and does everything before the first question to a receiver. It retries until ctx ends: only the
// ledger can fail.
func load(ctx context.Context, o Options, v ledger.Verification, l ledger.Lease) (loaded, error) {
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		done, err := loadOnce(ctx, o, v, l)
		if err == nil || final(err) || ctx.Err() != nil {
			return done, err
		}
		o.Log.Warn("file not read yet", "verification", v.ID, "err", err)
		select {
		case <-ctx.Done():
			return loaded{}, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// errChanged means that a file reads differently than when its credits were held. The customer can't repair that.
var errChanged = errors.New("verification: the file is read differently than before")

// final reports whether a refusal of the ledger is permanent.
func final(err error) bool {
	return errors.Is(err, ledger.ErrStaleEpoch) || errors.Is(err, ledger.ErrIllegal) ||
		errors.Is(err, ledger.ErrNoSuchVerification) || errors.Is(err, errChanged)
}

func loadOnce(ctx context.Context, o Options, v ledger.Verification, l ledger.Lease) (loaded, error) {
	if v.Status == ledger.Cancelling {
		return loaded{state: v}, nil
	}
	within, span := o.Tracer.Begin(ctx, tracing.Intake)
	span.ID(tracing.Verification, v.ID)
	f, err := readFile(within, o, v)
	if f != nil {
		span.Count(tracing.Addresses, int64(f.Len()))
	}
	span.Count(tracing.Bytes, v.Bytes)
	span.End(err != nil)
	preparing := v.Status == ledger.Preparing
	if defect := (*intake.Defect)(nil); errors.As(err, &defect) && preparing {
		return refuse(ctx, o, l, defect)
	} else if defect != nil {
		return loaded{}, fmt.Errorf("%w: %w", errChanged, defect)
	}
	if err != nil {
		return loaded{}, err
	}
	if !preparing && (f.Rows() != v.Rows || int64(f.Len()) != v.Total) {
		return loaded{}, fmt.Errorf("%w: %d rows of %d addresses, were %d of %d", errChanged, f.Rows(), f.Len(), v.Rows, v.Total)
	}
	if preparing {
		if v, err = o.Book.Prepare(ctx, l, f.Rows(), f.Duplicates(), int64(f.Len())); err != nil {
			return loaded{}, fmt.Errorf("prepare verification: %w", err)
		}
		o.Log.Info("file read", "verification", v.ID, "rows", v.Rows, "addresses", v.Total, "status", v.Status)
		if v.Status != ledger.Verifying {
			return loaded{state: v}, nil
		}
	}
	settled := newBitset(f.Len())
	err = o.Book.Settled(ctx, v.ID, func(ordinals []int64) error {
		for _, ordinal := range ordinals {
			settled.set(uint32(ordinal))
		}
		return nil
	})
	if err != nil {
		return loaded{}, fmt.Errorf("read settlements: %w", err)
	}
	if left := f.Len() - settled.count(); settled.count() > 0 {
		o.Log.Info("verification resumed", "verification", v.ID, "settlement", v.Settlements, "left", left)
	}
	left, err := takeUp(ctx, o, v)
	if err != nil {
		return loaded{}, err
	}
	return loaded{state: v, plan: newPlan(f, settled), left: left}, nil
}

func readFile(ctx context.Context, o Options, v ledger.Verification) (*intake.File, error) {
	r, err := o.Book.OpenFile(ctx, v.ID)
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	defer r.Close()
	limits := intake.Limits{RowsMax: o.RowsMax}
	if v.Status != ledger.Preparing {
		limits.RowsMax = v.Rows // it was accepted before, perhaps by a node with another limit
	}
	f, err := intake.Read(r, limits)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return f, nil
}

func refuse(ctx context.Context, o Options, l ledger.Lease, d *intake.Defect) (loaded, error) {
	v, err := o.Book.Refuse(ctx, l, ledger.Issue{Code: d.Code, Message: d.Message, Row: d.Row,
		Text: d.Shown(ledger.IssueTextMax)})
	if err != nil {
		return loaded{}, fmt.Errorf("refuse file: %w", err)
	}
	o.Log.Info("file refused", "verification", v.ID, "reason", d.Code, "row", d.Row)
	return loaded{state: v}, nil
}
