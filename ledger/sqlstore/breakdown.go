package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
	"rollcall/smtp"
)

// Breakdown reads all outcomes of a final verification once.
func (s files) Breakdown(ctx context.Context, workspace, id uuid.UUID) (ledger.Breakdown, error) {
	var v *transitions.Row
	err := s.view(ctx, func(t *tx) (err error) {
		v, err = t.ReadOf(workspace, id)
		return err
	})
	switch {
	case err != nil:
	case !v.Status.Final():
		err = fmt.Errorf("it is %s: %w", v.Status, ledger.ErrIllegal)
	case v.ResultsDeleted:
		err = ledger.ErrResultsExpired
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
	reasons map[ledger.ReasonCount]int64 // without their counts
	domains map[string]*unknowns
	most    int  // domains; with one more the half of them that has fewer unknown addresses is forgotten
	forgot  bool // some were
	folded  []byte
}

// unknowns are the unknown addresses of a domain.
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

// domain returns the counts of the domain of an address.
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

// forget drops the half of the domains that has fewer unknown addresses.
func (c *tally) forget() {
	for _, name := range c.byUnknown()[c.most/2:] {
		delete(c.domains, name)
	}
	c.forgot = true
}

// byUnknown returns the names of the domains, most unknown first.
func (c *tally) byUnknown() []string {
	return slices.SortedFunc(maps.Keys(c.domains), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.domains[b].all, c.domains[a].all), cmp.Compare(a, b))
	})
}

// count adds one address.
func (u *unknowns) count(r smtp.Reason) {
	u.all++
	at := slices.IndexFunc(u.reasons, func(c ledger.ReasonCount) bool { return c.Reason == r })
	if at < 0 {
		at, u.reasons = len(u.reasons), append(u.reasons, ledger.ReasonCount{Outcome: smtp.Unknown, Reason: r})
	}
	u.reasons[at].Count++
}

// mostFirst puts counts in order; the order of equal ones is always the same.
func mostFirst(a, b ledger.ReasonCount) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
}

// breakdown is what was counted.
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
