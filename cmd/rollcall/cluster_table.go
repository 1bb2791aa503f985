package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
)

// membersTable is the table of a cluster's members at a moment.
type membersTable struct {
	admin.Membership
	now time.Time
}

// memberColumns are the headings; the numbers at the end stand on the right.
var memberColumns = []string{"NODE", "NAME", "STATE", "VERSION", "SINCE", "LEASES", "ADDRESSES", "RECEIVERS"}

const (
	nameColumn    = 1 // takes what the others leave
	numberColumns = 5 // where the numbers begin
	nameLeast     = 6
	versionMost   = 10
	nameMost      = 40 // in a sentence
)

// print writes the table and what is to be said of it; the table is no wider than width if the names allow it.
func (t membersTable) print(w io.Writer, width int) error {
	var b strings.Builder
	by := "a node"
	rows := [][]string{memberColumns}
	for _, m := range t.Members {
		if m.This {
			by = term.Clipped(m.Name, 30)
		}
		rows = append(rows, []string{m.Node.String()[:8], term.Printable(m.Name), string(m.State),
			term.Middle(m.Version, versionMost), term.Span(t.now.Sub(time.Time(m.Since))), term.Short(int64(m.Leases)),
			term.Short(m.Addresses), term.Short(int64(m.Receivers))})
	}
	fmt.Fprintf(&b, "cluster %s as %s sees it\n\n", term.Clipped(t.Cluster, 30), by)
	widths := columnWidths(rows, width)
	for i, row := range rows {
		line := "  "
		if i > 0 && t.Members[i-1].This {
			line = "* "
		}
		for j, cell := range row {
			if j == nameColumn {
				cell = term.Clipped(cell, widths[j])
			}
			if pad := strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)); j >= numberColumns {
				line += pad + cell + "  "
			} else {
				line += cell + pad + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	for _, note := range t.notes() {
		b.WriteString("\n" + term.Wrapped(note, 0) + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// columnWidths fits the rows into the columns of a terminal, at the cost of the name.
func columnWidths(rows [][]string, width int) []int {
	widths, sum := make([]int, len(memberColumns)), 0
	for j := range widths {
		for _, row := range rows {
			widths[j] = max(widths[j], utf8.RuneCountInString(row[j]))
		}
		sum += widths[j] + 2
	}
	if over := sum - width; over > 0 {
		widths[nameColumn] = max(nameLeast, widths[nameColumn]-over)
	}
	return widths
}

// Ages from which on something is told about a member.
const (
	beatLate  = 8 * time.Second // since its last beat: from then on a node uses nothing, by its fence
	clockOff  = time.Second     // between its clock and the ledger's
	ledgerOld = 8 * time.Second // since the ledger was read
)

// trouble is something that is not as it should be with some members.
type trouble struct {
	of   func(m admin.Member) (detail string, there bool)
	what string // a name for it
	do   string // what it means, and what to do
}

// stands is the trouble of being in a state.
func stands(state admin.State) func(admin.Member) (string, bool) {
	return func(m admin.Member) (string, bool) { return "", m.State == state }
}

// troubles is what there can be, the worst first.
var troubles = []trouble{
	{stands(admin.StateLost), "Lost", "No beat in time. For 5 minutes, or until the node is back, the receivers rest " +
		"that it may still have SMTP sessions with. When you know that its process is dead: " +
		"rollcall cluster forget NODE"},
	{stands(admin.StateUnseen), "Unseen", "Beats in the ledger, but is not seen by gossip: check that " +
		"cluster.gossip_listen can be reached by TCP and UDP in both directions, and that the gossip keys are the same."},
	{stands(admin.StateUnlinked), "Unlinked", "Seen by gossip, but actor traffic gets no answer: check that " +
		"cluster.actor_listen can be reached by TCP in both directions, and the certificates."},
	{stands(admin.StateSuspect), "Suspect", "No answer to gossip: a node that stays so is taken for dead within seconds."},
	{stands(admin.StateDraining), "Draining", "Can be stopped when LEASES and RECEIVERS are 0."},
	{stands(admin.StateUnfit), "Unfit", "Its address, names or port 25 fail a check, so receivers would refuse it, and " +
		"other nodes probe: run `rollcall doctor` there."},
	{beatsLate, "Without a beat", "A node that does not reach the ledger uses no allowance until it does: check " +
		"[ledger] url, the network and the database."},
	{clockIsOff, "Clock is off", "Compared with the ledger's. No limit depends on it, but times in logs and " +
		"certificates do."},
	{disagrees, "Views differ", "The view of a node is not the one of the node that answers, or is not settled yet. " +
		"Until it is, receivers that may be of two nodes get a part of their allowance."},
}

func beatsLate(m admin.Member) (string, bool) {
	if m.BeatAge == nil || m.State.Ended() || term.Seconds(*m.BeatAge) < beatLate {
		return "", false
	}
	return "for " + term.Span(term.Seconds(*m.BeatAge)), true
}

func clockIsOff(m admin.Member) (string, bool) {
	if m.ClockOffset == nil {
		return "", false
	}
	off := time.Duration(*m.ClockOffset) * time.Millisecond
	side := "ahead"
	if off < 0 {
		side = "behind"
	}
	return term.Span(off.Abs()) + " " + side, off.Abs() >= clockOff
}

func disagrees(m admin.Member) (string, bool) { return "", !m.Agreed && !m.State.Ended() }

// notes says what is not as it should be, and what to do.
func (t membersTable) notes() (notes []string) {
	if age := term.Seconds(t.LedgerAge); age >= ledgerOld {
		notes = append(notes, fmt.Sprintf("This node has not read the ledger for %s: beats, loads and who has ended "+
			"are as old as that. Check [ledger] url and the database.", term.Span(age)))
	}
	for _, x := range troubles {
		var names []string
		for _, m := range t.Members {
			if detail, there := x.of(m); there {
				names = append(names, strings.TrimSpace(nodeTitle(m)+" "+detail))
			}
		}
		if len(names) > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s. %s", x.what, term.Some(names), x.do))
		}
	}
	if runs := t.versions(); len(runs) > 1 {
		notes = append(notes, fmt.Sprintf("Several versions run: %s.", term.Some(runs)))
	}
	return notes
}

// versions gives the versions that run, each with its number of nodes.
func (t membersTable) versions() (runs []string) {
	count := map[string]int{}
	for _, m := range t.Members {
		if !m.State.Ended() {
			count[term.Printable(m.Version)]++
		}
	}
	for _, version := range slices.Sorted(maps.Keys(count)) {
		runs = append(runs, fmt.Sprintf("%s (%d)", version, count[version]))
	}
	return runs
}

// nodeTitle is how a node is named in a sentence.
func nodeTitle(m admin.Member) string {
	return fmt.Sprintf("%s (%.8s)", term.Clipped(m.Name, nameMost), m.Node)
}
