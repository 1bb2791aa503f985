package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
)

// writeAccuracy writes reports as a page; docs/developers/measured.md has the last figures.
func writeAccuracy(path string, reports []scoreReport) error {
	var page bytes.Buffer
	fmt.Fprintf(&page, "# Accuracy\n%s\n", accuracyHead)
	fmt.Fprintf(&page, "Made on %s with version `%s`. `make accuracy` writes this page anew.\n",
		time.Now().UTC().Format("2 January 2006"), node.VersionOf(debug.ReadBuildInfo()).Version)
	for i := range reports {
		r := &reports[i]
		fmt.Fprintf(&page, "\n## Mix %s\n\n`rollcall lab score --mix %s --addresses %d --seed %d --within %s`\n\n",
			r.Mix, r.Mix, r.Addresses, r.Seed, r.Within)
		fmt.Fprintf(&page, "%s addresses at %s domains of %d personalities.\n\n", term.Grouped(int64(r.Addresses)),
			term.Grouped(int64(r.Domains)), r.Personalities)
		writeTable(&page, []string{"What", "Figure", "Wanted"}, [][]string{
			{"wrong statements", fmt.Sprint(r.Wrong), "0"},
			{"accuracy of what can be known",
				fmt.Sprintf("%.2f %% (%d of %d)", r.accuracy()*100, r.Found, r.Knowable), "99.5 %"},
			{"of these with the right reason", fmt.Sprint(r.Reasoned), ""},
			{"unfinished", fmt.Sprint(r.Unfinished), ""},
			{"guards tripped", fmt.Sprint(r.Manners.tripped()), "0"},
			{"evidence judged again, and what came out otherwise", fmt.Sprintf("%d, %d", r.Replayed, r.Changed),
				"all, 0"},
		})
		for _, t := range r.tables() {
			fmt.Fprintf(&page, "\n### %s\n\n", t.title)
			writeTable(&page, t.headings, t.rows)
		}
	}
	if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the report: %w: give another --out", err)
	}
	return nil
}

// accuracyHead says what the page is about.
var accuracyHead = strings.NewReplacer("'", "`", "HOUR", trialHour.String(), "GIVEUP",
	trialGiveUp.String()).Replace(`
How often Rollcall is right, and how it treats receivers, measured against the simulated receivers of
'smtp/smtplab', whose package comment lists the personalities. Each list is labelled: the lab knows what
is right to say about an address, and which addresses nobody can know about. A *wrong statement* is an
outcome that is false; unknown never is. Behind some truths stands *hardly*: a careful engine may end
with unknown there.

The node is a whole one with the shipped allowance, its rates included. An hour lasts HOUR, for the lab
and for the node alike: the refusals that a guard counts in an hour and those that the node causes in
one, rests of hours, the waits that rules name and greylisting of 5 minutes are all so much shorter. An
address is given up after GIVEUP, where a node takes six hours. What still waits for the allowance of
its receiver, or until a rest there is over, when the time is up is *unfinished*: a node goes on for up
to 72 hours with these.
`)

// writeTable writes a table of Markdown.
func writeTable(page *bytes.Buffer, headings []string, rows [][]string) {
	fmt.Fprintf(page, "| %s |\n|%s\n", strings.Join(headings, " | "), strings.Repeat(" --- |", len(headings)))
	for _, row := range rows {
		fmt.Fprintf(page, "| %s |\n", strings.Join(row, " | "))
	}
}
