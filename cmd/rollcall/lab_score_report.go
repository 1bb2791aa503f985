package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// scoreReport is what came of one list.
type scoreReport struct {
	Mix           string `json:"mix"`
	Seed          uint64 `json:"seed"`
	Within        string `json:"within"` // the time that there was
	Addresses     int    `json:"addresses"`
	Domains       int    `json:"domains"`
	Personalities int    `json:"personalities"`

	Knowable int `json:"knowable"` // what a careful engine can find out
	Found    int `json:"found"`    // of these: the right outcome
	Reasoned int `json:"reasoned"` // of these: with a right reason
	Wrong    int `json:"wrong"`    // false statements; must be 0

	// Unfinished are the addresses that still waited for their receivers' allowance
	// when the time was up; Knowable has none of them.
	Unfinished int `json:"unfinished"`

	// Confusion counts by what is right, then by what was said. What a careful engine
	// may miss, such as at a receiver that is hard to understand, has hardly behind it.
	Confusion map[string]client.Tally `json:"confusion"`

	Unknown       client.Tally       `json:"unknown_by_blame"`
	Statements    []wrongStatement   `json:"wrong_statements"`
	Worst         []personalityScore `json:"personalities_below_all"` // those where not all that can be known is
	Manners       scoreManners       `json:"manners"`
	TookSeconds   float64            `json:"took_seconds"`
	PerSecond     float64            `json:"addresses_per_second"`
	ByPersonality int                `json:"personalities_whole"` // where all that can be known is

	// Replayed counts the addresses whose kept evidence was judged again; Changed are
	// those that came out otherwise, which must be 0.
	Replayed int `json:"replayed"`
	Changed  int `json:"replay_changed"`
}

// wrongStatement counts false statements of one kind.
type wrongStatement struct {
	Personality string `json:"personality"`
	Want        string `json:"want"`
	Got         string `json:"got"`
	Reason      string `json:"reason"`
	Count       int    `json:"count"`
}

// personalityScore is how one personality came out.
type personalityScore struct {
	Name     string       `json:"name"`
	Knowable int          `json:"knowable"`
	Found    int          `json:"found"`
	Missed   client.Tally `json:"missed_reasons"` // of what can be known and is not
}

// scoreManners is how the receivers were treated, from the lab's sheet.
type scoreManners struct {
	Tripped           map[string]int `json:"guards_tripped"` // by guard; must be empty
	LimitsHit         int            `json:"limits_hit"`     // guards and all other limits
	TooEarly          int            `json:"too_early"`      // greylisted, asked before the stated time
	Data              int            `json:"data"`
	OutOfOrder        int            `json:"out_of_order"`
	UnaskedGroups     int            `json:"unasked_groups"`
	EarlyTalk         int            `json:"early_talk"`
	HungUp            int            `json:"hung_up"` // sessions that we ended without QUIT
	RefusedPerSession int            `json:"refused_per_session"`
	RefusedOfReceiver int            `json:"refused_of_one_receiver"` // the most of one in the whole run
	RcptsPerTx        int            `json:"rcpts_per_transaction"`
	AddressRcptsMax   int            `json:"rcpts_for_one_address"`
	Rcpts             int            `json:"rcpts"`
	Sessions          int            `json:"sessions"`
	DNSQueries        int            `json:"dns_queries"`
	DNSZones          int            `json:"dns_domains"`
}

// hardly stands behind a truth that a careful engine may miss.
const hardly = ", hardly"

// clean says whether nothing is in the manners that must not be there.
func (m scoreManners) clean() bool {
	return len(m.Tripped) == 0 && m.Data == 0 && m.OutOfOrder == 0 && m.UnaskedGroups == 0 && m.EarlyTalk == 0
}

// good says whether the run keeps every promise.
func (r *scoreReport) good() bool { return r.Wrong == 0 && r.Changed == 0 && r.Manners.clean() }

// accuracy is the share of what can be known that was found out.
func (r *scoreReport) accuracy() float64 {
	if r.Knowable == 0 {
		return 1
	}
	return float64(r.Found) / float64(r.Knowable)
}

// newScoreReport counts what came of lists.
func newScoreReport(parts []part, took time.Duration) scoreReport {
	r := scoreReport{Confusion: map[string]client.Tally{}, Unknown: client.Tally{}, TookSeconds: took.Seconds()}
	r.Manners.Tripped = map[string]int{}
	domains := map[string]bool{}
	by := map[string]*personalityScore{}
	wrong := map[wrongStatement]int{}
	for _, part := range parts {
		r.Addresses += len(part.all)
		r.Replayed, r.Changed = r.Replayed+part.again.judged, r.Changed+part.again.changed
		r.Manners.add(part.sheet)
		for _, j := range part.all {
			domains[j.address[strings.LastIndexByte(j.address, '@')+1:]] = true
			p := by[j.personality]
			if p == nil {
				p = &personalityScore{Name: j.personality, Missed: client.Tally{}}
				by[j.personality] = p
			}
			r.count(j, p)
			if j.outcome.Final() && j.want.Wrong(j.outcome) {
				wrong[wrongStatement{Personality: j.personality, Want: j.want.Outcome.String(),
					Got: j.outcome.String(), Reason: j.reason.String()}]++
			}
		}
	}
	r.PerSecond = float64(r.Addresses) / took.Seconds()
	r.Domains, r.Personalities = len(domains), len(by)
	for w, n := range wrong {
		w.Count = n
		r.Wrong += n
		r.Statements = append(r.Statements, w)
	}
	slices.SortFunc(r.Statements, func(a, b wrongStatement) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Personality+a.Want+a.Got+a.Reason,
			b.Personality+b.Want+b.Got+b.Reason))
	})
	for _, p := range by {
		if p.Found < p.Knowable {
			r.Worst = append(r.Worst, *p)
		}
	}
	r.ByPersonality = len(by) - len(r.Worst)
	slices.SortFunc(r.Worst, func(a, b personalityScore) int {
		return cmp.Or((b.Knowable-b.Found)-(a.Knowable-a.Found), strings.Compare(a.Name, b.Name))
	})
	return r
}

// count adds one address.
func (r *scoreReport) count(j judged, p *personalityScore) {
	if j.outcome == smtp.Undecided {
		r.Unfinished++
		return
	}
	truth := j.want.Outcome.String()
	if !j.want.Knowable && j.want.Outcome != smtp.Unknown {
		truth += hardly
	}
	if r.Confusion[truth] == nil {
		r.Confusion[truth] = client.Tally{}
	}
	r.Confusion[truth][j.outcome.String()]++
	if j.outcome == smtp.Unknown {
		r.Unknown[j.blame.String()]++
	}
	if !j.want.Knowable {
		return
	}
	r.Knowable++
	p.Knowable++
	if j.outcome != j.want.Outcome {
		p.Missed[j.outcome.String()+" "+j.reason.String()]++
		return
	}
	r.Found++
	p.Found++
	if j.want.Right(j.outcome, j.reason) {
		r.Reasoned++
	}
}

// add adds the sheet of one lab.
func (m *scoreManners) add(sheet smtplab.Sheet) {
	t := sheet.Total
	for guard, n := range sheet.Tripped {
		m.Tripped[guard] += n
	}
	for _, sum := range []struct {
		to *int
		n  int
	}{
		{&m.LimitsHit, t.LimitsHit}, {&m.TooEarly, t.TooEarly}, {&m.Data, t.Data}, {&m.OutOfOrder, t.OutOfOrder},
		{&m.UnaskedGroups, t.UnaskedGroups}, {&m.EarlyTalk, t.EarlyTalk}, {&m.HungUp, t.HungUp},
		{&m.Rcpts, t.Rcpts}, {&m.Sessions, t.Sessions}, {&m.DNSQueries, sheet.DNS.Queries},
		{&m.DNSZones, sheet.DNS.Zones},
	} {
		*sum.to += sum.n
	}
	m.RefusedPerSession = max(m.RefusedPerSession, t.RefusedPerSession)
	m.RcptsPerTx = max(m.RcptsPerTx, t.RcptsPerTx)
	m.AddressRcptsMax = max(m.AddressRcptsMax, sheet.AddressRcptsMax)
	for _, tally := range sheet.Receivers {
		m.RefusedOfReceiver = max(m.RefusedOfReceiver, tally.Refused)
	}
}
