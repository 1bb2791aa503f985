package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
	"rollcall/smtp"
)

// Breakdown reads all outcomes of a final verification once and counts them.
func (s files) Breakdown(ctx context.Context, workspace, id uuid.UUID) (ledger.Breakdown, error) {
	v, err := s.withResults(ctx, workspace, id)
	if err == nil && !v.Status.Final() {
		err = fmt.Errorf("it is %s: %w", v.Status, ledger.ErrIllegal)
	}
	count := tally{reasons: map[ledger.ReasonCount]int64{}, domains: map[string]*unknowns{}, most: ledger.BreakdownDomains}
	if err == nil {
		err = s.walk(ctx, v, func(b *ledger.Batch) error {
			count.add(b)
			return nil
		})
	}
	if err != nil {
		return ledger.Breakdown{}, fmt.Errorf("break down the results of verification %s: %w", id, err)
	}
	down := count.breakdown()
	down.Verification = v.Verification
	return down, nil
}

// tally counts outcomes. Its memory is bounded by the number of domains.
type tally struct {
	reasons map[ledger.ReasonCount]int64 // keys without counts
	domains map[string]*unknowns
	most    int  // bound of domains; above it, the half with fewer unknown addresses is dropped
	forgot  bool // some domains were dropped
	folded  []byte
}

// unknowns counts the unknown addresses of a domain.
type unknowns struct {
	all     int64
	reasons []ledger.ReasonCount
}

// add counts the results of a batch.
func (c *tally) add(b *ledger.Batch) {
	for i := range b.Len() {
		c.reasons[ledger.ReasonCount{Outcome: b.Outcomes[i], Reason: b.Reasons[i]}]++
		if b.Outcomes[i] == smtp.Unknown {
			c.domain(b.Email(i)).count(b.Reasons[i])
		}
	}
}

func (c *tally) domain(email []byte) *unknowns {
	c.folded = c.folded[:0]
	ascii := true
	for _, b := range email[bytes.LastIndexByte(email, '@')+1:] {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		ascii = ascii && b < 0x80
		c.folded = append(c.folded, b)
	}
	if !ascii {
		if name, err := smtp.ParseDomain(string(c.folded)); err == nil {
			c.folded = append(c.folded[:0], name...)
		}
	}
	if d := c.domains[string(c.folded)]; d != nil {
		return d
	}
	if len(c.domains) == c.most {
		c.forget()
	}
	d := &unknowns{}
	c.domains[string(c.folded)] = d
	return d
}

// forget drops the half of the domains with fewer unknown addresses.
func (c *tally) forget() {
	for _, name := range c.byUnknown()[c.most/2:] {
		delete(c.domains, name)
	}
	c.forgot = true
}

// byUnknown returns the domains' names, most unknown addresses first.
func (c *tally) byUnknown() []string {
	return slices.SortedFunc(maps.Keys(c.domains), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.domains[b].all, c.domains[a].all), cmp.Compare(a, b))
	})
}

func (u *unknowns) count(r smtp.Reason) {
	u.all++
	at := slices.IndexFunc(u.reasons, func(c ledger.ReasonCount) bool { return c.Reason == r })
	if at < 0 {
		at, u.reasons = len(u.reasons), append(u.reasons, ledger.ReasonCount{Outcome: smtp.Unknown, Reason: r})
	}
	u.reasons[at].Count++
}

// mostFirst sorts counts; equal ones always have the same order.
func mostFirst(a, b ledger.ReasonCount) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
}

func (c *tally) breakdown() ledger.Breakdown {
	down := ledger.Breakdown{Reasons: []ledger.ReasonCount{}, Worst: []ledger.DomainCount{}, AtLeast: c.forgot}
	for key, n := range c.reasons {
		key.Count = n
		down.Reasons = append(down.Reasons, key)
	}
	slices.SortFunc(down.Reasons, mostFirst)
	names := c.byUnknown()
	for _, name := range names[:min(len(names), ledger.WorstDomains)] {
		d := c.domains[name]
		down.Worst = append(down.Worst, ledger.DomainCount{Domain: name, Unknown: d.all,
			Reason: slices.MinFunc(d.reasons, mostFirst).Reason})
	}
	return down
}

// recentFirst is how many settlements the first query of a page reads. Each further one reads twice as many as the
// query before, up to recentMost. A settlement of a large file usually fills a page.
const (
	recentFirst = 2
	recentMost  = 64
)

// recentSettlements finds the newest of some settlements, recentOf the newest with a given outcome.
const (
	recentSettlements = `SELECT number, payload FROM settlements WHERE verification = ? AND number <= ? AND number >= ?`
	recentInOrder     = ` ORDER BY number DESC LIMIT ?`
)

var recentOf = [...]string{
	smtp.Undecided: recentSettlements + recentInOrder,
	smtp.Valid:     recentSettlements + ` AND count_valid > 0` + recentInOrder,
	smtp.Invalid:   recentSettlements + ` AND count_invalid > 0` + recentInOrder,
	smtp.CatchAll:  recentSettlements + ` AND count_catch_all > 0` + recentInOrder,
	smtp.Unknown:   recentSettlements + ` AND count_unknown > 0` + recentInOrder,
	smtp.Error:     recentSettlements + ` AND count_error > 0` + recentInOrder,
}

// RecentResults returns one page of outcomes, newest first. Settled outcomes never change, so each query may use its
// own snapshot. Memory holds the page and one settlement.
func (s files) RecentResults(ctx context.Context, q ledger.RecentQuery) (ledger.RecentPage, error) {
	page, err := s.recent(ctx, q)
	return page, ledger.Wrap(err, "read recent results of verification %s", q.Verification)
}

func (s files) recent(ctx context.Context, q ledger.RecentQuery) (ledger.RecentPage, error) {
	if err := q.Check(); err != nil {
		return ledger.RecentPage{}, err
	}
	v, err := s.withResults(ctx, q.Workspace, q.Verification)
	if err != nil {
		return ledger.RecentPage{}, err
	}
	r := recent{query: q, find: []byte(ledger.FoldEmail(q.Find)), next: ledger.RecentPlace{Settlement: v.Settlements},
		page: ledger.RecentPage{Verification: v.Verification, Results: []ledger.RecentResult{}}}
	if q.From != nil && q.From.Settlement <= v.Settlements {
		r.next = *q.From
	}
	last := max(r.next.Settlement-ledger.RecentPassed, 0) // the first settlement that is not read
	for most := recentFirst; r.next.Settlement > last && !r.full(); most = min(2*most, recentMost) {
		before := r.page.Looked
		err := s.view(ctx, func(t *tx) error {
			return t.Each(r.take, recentOf[q.Outcome], q.Verification[:], r.next.Settlement, last+1,
				min(most, ledger.RecentLooked-before))
		})
		if cut := errors.Is(err, engine.ErrUnavailable) && r.page.Looked > before; cut && ctx.Err() == nil {
			continue // continue where it was interrupted
		}
		if err != nil {
			return ledger.RecentPage{}, err
		}
		if r.page.Looked == before { // no further settlement has any
			r.next = ledger.RecentPlace{Settlement: last}
		}
	}
	if r.next.Settlement > 0 {
		r.page.Next = &r.next
	}
	return r.page, nil
}

// withResults reads a verification of a workspace and checks that its results still exist.
func (s files) withResults(ctx context.Context, workspace, id uuid.UUID) (v *transitions.Row, err error) {
	err = s.view(ctx, func(t *tx) (err error) {
		v, err = t.ReadOf(workspace, id)
		return err
	})
	if err == nil && v.ResultsDeleted {
		err = ledger.ErrResultsExpired
	}
	return v, err
}

type recent struct {
	query ledger.RecentQuery
	find  []byte // case-folded
	page  ledger.RecentPage
	next  ledger.RecentPlace // where to continue; settlement 0: nowhere

	batch  ledger.Batch
	order  []int  // positions of the batch's results, newest first
	folded []byte // an email, case-folded
}

// full reports whether the page needs no further settlement, or may not read one.
func (r *recent) full() bool {
	return len(r.page.Results) == r.query.Limit || r.page.Looked == ledger.RecentLooked
}

// take reads the next settlement, unless the page is full.
func (r *recent) take(rows *sql.Rows) error {
	if r.full() {
		return nil
	}
	var number int64
	var payload sql.RawBytes
	if err := rows.Scan(&number, &payload); err != nil {
		return err
	}
	if len(payload) == 0 {
		return ledger.ErrResultsExpired // erased since the start
	}
	if err := r.batch.Decode(payload); err != nil {
		return err
	}
	r.page.Looked++
	if number != r.next.Settlement { // the settlements between have no such outcome
		r.next = ledger.RecentPlace{Settlement: number}
	}
	r.sort()
	for ; r.next.Row < len(r.order) && len(r.page.Results) < r.query.Limit; r.next.Row++ {
		if i := r.order[r.next.Row]; r.wanted(i) {
			r.page.Results = append(r.page.Results, ledger.RecentResult{Result: r.batch.Result(i), Settlement: number})
		}
	}
	if r.next.Row >= len(r.order) {
		r.next = ledger.RecentPlace{Settlement: number - 1}
	}
	return nil
}

// sort sorts the batch's results, newest first.
func (r *recent) sort() {
	r.order = r.order[:0]
	for i := range r.batch.Len() {
		r.order = append(r.order, i)
	}
	slices.SortFunc(r.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(r.batch.Times[b], r.batch.Times[a]), b-a)
	})
}

// wanted reports whether the query asks for result i of the batch.
func (r *recent) wanted(i int) bool {
	q := &r.query
	if q.Outcome != smtp.Undecided && r.batch.Outcomes[i] != q.Outcome || q.Reason != smtp.ReasonNone && r.batch.Reasons[i] != q.Reason {
		return false
	}
	if len(r.find) == 0 {
		return true
	}
	r.folded = r.folded[:0]
	for _, c := range r.batch.Email(i) {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		r.folded = append(r.folded, c)
	}
	return bytes.Contains(r.folded, r.find)
}
