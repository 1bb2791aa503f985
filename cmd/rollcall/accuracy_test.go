package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// worstShown is how many personalities and statements a table shows.
const worstShown = 12

// printScore writes a report for people.
func printScore(w io.Writer, r *scoreReport) error {
	fmt.Fprintf(w, "Mix %s: %s addresses at %s domains of %d personalities\n", r.Mix,
		term.Grouped(int64(r.Addresses)), term.Grouped(int64(r.Domains)), r.Personalities)
	fmt.Fprintf(w, "in %.0f s, %.0f addresses/s; an hour lasts %v, for the lab and the node\n\n", r.TookSeconds,
		r.PerSecond, trialHour)
	fmt.Fprintf(w, "Wrong statements      %d\n", r.Wrong)
	fmt.Fprintf(w, "Accuracy              %.2f %%: %s of the %s that can be known, %s with the right reason\n",
		r.accuracy()*100, term.Grouped(int64(r.Found)), term.Grouped(int64(r.Knowable)), term.Grouped(int64(r.Reasoned)))
	if r.Unfinished > 0 {
		fmt.Fprintf(w, "Unfinished            %s still waited for a limit or a pause when the time was up\n",
			term.Grouped(int64(r.Unfinished)))
	}
	fmt.Fprintf(w, "Replayed              %s from their evidence, %d with another result\n",
		term.Grouped(int64(r.Replayed)), r.Changed)
	fmt.Fprintf(w, "Guards tripped        %d\n\n", r.Manners.tripped())
	for _, t := range r.tables() {
		fmt.Fprintln(w, t.title)
		if err := term.PrintTable(w, t.headings, t.rows); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return nil
}

// tripped counts how often a guard stepped in.
func (m scoreManners) tripped() (n int) {
	for _, times := range m.Tripped {
		n += times
	}
	return n
}

type scoreTable struct {
	title    string
	headings []string
	rows     [][]string
}

// tables returns the tables of a report that are not empty.
func (r *scoreReport) tables() []scoreTable {
	all := []scoreTable{r.confusionTable(), r.unknownTable(), r.statementTable(), r.worstTable(), r.mannersTable()}
	return slices.DeleteFunc(all, func(t scoreTable) bool { return len(t.rows) == 0 })
}

func (r *scoreReport) confusionTable() scoreTable {
	t := scoreTable{title: "What is right (rows) and what was said (columns)", headings: []string{"TRUTH"}}
	for _, o := range smtp.Outcomes {
		t.headings = append(t.headings, strings.ToUpper(o.String()))
	}
	for _, outcome := range smtp.Outcomes {
		for _, truth := range []string{outcome.String(), outcome.String() + hardly} {
			said, found := r.Confusion[truth]
			if !found {
				continue
			}
			row := []string{truth}
			if outcome == smtp.Unknown {
				row[0] = "can't be known"
			}
			for _, o := range smtp.Outcomes {
				row = append(row, term.Grouped(said[o.String()]))
			}
			t.rows = append(t.rows, row)
		}
	}
	return t
}

func (r *scoreReport) unknownTable() scoreTable {
	t := scoreTable{title: "Unknown, by who is to blame",
		headings: []string{"BLAME", "ADDRESSES", "SHARE OF ALL"}}
	for _, b := range smtp.Blames {
		if n := r.Unknown[b.String()]; n > 0 {
			t.rows = append(t.rows, []string{blameName(b), term.Grouped(n),
				fmt.Sprintf("%.1f %%", float64(n)*100/float64(r.Addresses))})
		}
	}
	return t
}

func blameName(b smtp.Blame) string {
	if b == smtp.BlameSource {
		return "source (us)"
	}
	return b.String()
}

func (r *scoreReport) statementTable() scoreTable {
	t := scoreTable{title: "Wrong statements",
		headings: []string{"PERSONALITY", "RIGHT", "SAID", "REASON", "ADDRESSES"}}
	for _, s := range r.Statements[:min(len(r.Statements), worstShown)] {
		t.rows = append(t.rows, []string{s.Personality, s.Want, s.Got, s.Reason, fmt.Sprint(s.Count)})
	}
	return t
}

func (r *scoreReport) worstTable() scoreTable {
	t := scoreTable{headings: []string{"PERSONALITY", "KNOWABLE", "FOUND", "SAID INSTEAD"},
		title: fmt.Sprintf("Personalities where knowable addresses were missed; at %d others none was",
			r.ByPersonality)}
	for _, p := range r.Worst[:min(len(r.Worst), worstShown)] {
		var missed []string
		for _, what := range slices.Sorted(maps.Keys(p.Missed)) {
			missed = append(missed, fmt.Sprintf("%s %d", what, p.Missed[what]))
		}
		t.rows = append(t.rows, []string{p.Name, fmt.Sprint(p.Knowable), fmt.Sprint(p.Found),
			strings.Join(missed, ", ")})
	}
	return t
}

func (r *scoreReport) mannersTable() scoreTable {
	m := r.Manners
	t := scoreTable{title: "Manners", headings: []string{"WHAT", "COUNT"}}
	for _, row := range []struct {
		name string
		n    int
	}{
		{"sessions", m.Sessions}, {"RCPT commands", m.Rcpts}, {"most RCPT for one address", m.AddressRcptsMax},
		{"most RCPT in one transaction", m.RcptsPerTx}, {"most refused in one session", m.RefusedPerSession},
		{"most refused at one receiver", m.RefusedOfReceiver}, {"limits and guards met", m.LimitsHit},
		{"retried before a named time", m.TooEarly}, {"DATA sent", m.Data},
		{"commands out of order", m.OutOfOrder}, {"commands sent ahead unasked", m.UnaskedGroups},
		{"talked before the greeting", m.EarlyTalk}, {"sessions left without QUIT", m.HungUp},
		{"DNS questions", m.DNSQueries}, {"domains looked up", m.DNSZones},
	} {
		t.rows = append(t.rows, []string{row.name, term.Grouped(int64(row.n))})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Tripped)) {
		t.rows = append(t.rows, []string{"guard tripped: " + name, fmt.Sprint(m.Tripped[name])})
	}
	return t
}

type scoreReport struct {
	Mix           string
	Addresses     int
	Domains       int
	Personalities int

	Knowable int // addresses that a careful engine can decide
	Found    int // of these: the right outcome
	Reasoned int // of these: with a right reason
	Wrong    int // false statements; must be 0

	// Unfinished counts the addresses that still waited for their receivers' limits when the time was up; Knowable does
	// not count them.
	Unfinished int

	// Confusion counts by the truth, then by the result. A truth that a careful engine may miss, such as at a receiver
	// that is hard to understand, is marked with hardly.
	Confusion map[string]client.Tally

	Unknown       client.Tally
	Statements    []wrongStatement
	Worst         []personalityScore // those with knowable addresses that were missed
	Manners       scoreManners
	TookSeconds   float64
	PerSecond     float64
	ByPersonality int // without such misses

	// Replayed counts the addresses whose stored evidence was judged again; Changed counts those with another result,
	// which must be 0.
	Replayed int
	Changed  int
}

// wrongStatement counts false statements of one kind.
type wrongStatement struct {
	Personality string
	Want        string
	Got         string
	Reason      string
	Count       int
}

type personalityScore struct {
	Name     string
	Knowable int
	Found    int
	Missed   client.Tally // of knowable addresses that were missed
}

// scoreManners is how the receivers were treated, from the lab's sheet.
type scoreManners struct {
	Tripped           map[string]int // by guard; must be empty
	LimitsHit         int            // guards and all other limits
	TooEarly          int            // greylisted, asked before the stated time
	Data              int
	OutOfOrder        int
	UnaskedGroups     int
	EarlyTalk         int
	HungUp            int // sessions ended without QUIT
	RefusedPerSession int
	RefusedOfReceiver int // the most at one receiver in the whole run
	RcptsPerTx        int
	AddressRcptsMax   int
	Rcpts             int
	Sessions          int
	DNSQueries        int
	DNSZones          int
}

// hardly marks a truth that a careful engine may miss.
const hardly = ", hardly"

// clean reports whether the manners have no violation.
func (m scoreManners) clean() bool {
	return len(m.Tripped) == 0 && m.Data == 0 && m.OutOfOrder == 0 && m.UnaskedGroups == 0 && m.EarlyTalk == 0
}

// good reports whether the run keeps every promise.
func (r *scoreReport) good() bool { return r.Wrong == 0 && r.Changed == 0 && r.Manners.clean() }

// accuracy is the fraction of knowable addresses with the right outcome.
func (r *scoreReport) accuracy() float64 {
	if r.Knowable == 0 {
		return 1
	}
	return float64(r.Found) / float64(r.Knowable)
}

// newScoreReport counts the results of lists.
func newScoreReport(parts []part, took time.Duration) scoreReport {
	r := scoreReport{Confusion: map[string]client.Tally{}, Unknown: client.Tally{}, TookSeconds: took.Seconds()}
	r.Manners.Tripped = map[string]int{}
	domains := map[string]bool{}
	by := map[string]*personalityScore{}
	wrong := map[wrongStatement]int{}
	for _, part := range parts {
		r.Addresses += len(part.all)
		r.Replayed += int(part.again.Replayed)
		r.Changed += int(part.again.Outcomes + part.again.Reasons)
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
