package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"rollcall/cmd/rollcall/term"
	"rollcall/smtp"
)

// worstShown is how many personalities and statements a table shows.
const worstShown = 12

// printScore writes a report for people, as text or as a page of the docs.
func printScore(w io.Writer, r *scoreReport) error {
	fmt.Fprintf(w, "Mix %s, seed %d: %s addresses at %s domains of %d personalities\n", r.Mix, r.Seed,
		term.Grouped(int64(r.Addresses)), term.Grouped(int64(r.Domains)), r.Personalities)
	fmt.Fprintf(w, "in %.0f s, %.0f addresses/s; an hour lasts %v, for the lab and the node\n\n", r.TookSeconds,
		r.PerSecond, trialHour)
	fmt.Fprintf(w, "Wrong statements      %d\n", r.Wrong)
	fmt.Fprintf(w, "Accuracy              %.2f %%: %s of the %s that can be known, %s with the right reason\n",
		r.accuracy()*100, term.Grouped(int64(r.Found)), term.Grouped(int64(r.Knowable)), term.Grouped(int64(r.Reasoned)))
	if r.Unfinished > 0 {
		fmt.Fprintf(w, "Unfinished            %s still waited for an allowance or a rest when the time was up\n",
			term.Grouped(int64(r.Unfinished)))
	}
	fmt.Fprintf(w, "Replayed              %s from their evidence, %d came out otherwise\n",
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

// tripped counts the times that a guard stepped in.
func (m scoreManners) tripped() (n int) {
	for _, times := range m.Tripped {
		n += times
	}
	return n
}

// scoreTable is one table of a report.
type scoreTable struct {
	title    string
	headings []string
	rows     [][]string
}

// tables gives the tables of a report that have something in them.
func (r *scoreReport) tables() []scoreTable {
	all := []scoreTable{r.confusionTable(), r.unknownTable(), r.statementTable(), r.worstTable(),
		r.mannersTable()}
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

// blameName is a blame as people read it.
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
		title: fmt.Sprintf("Personalities where not all that can be known was found; at %d others it was",
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
