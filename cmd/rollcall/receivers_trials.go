package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"rollcall/actors/view"
	"rollcall/smtp/throttle"
)

func newReceiversTrials(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "trials KEY",
		Short: "Show what a receiver was asked, and what was believed because of it",
		Long: "Show the newest trials of a receiver, on all nodes, for each of our sources: domain, a number for the customer,\n" +
			"what it came to, the pace then, and what was believed because of it. A node keeps the newest 1,000 to 2,000\n" +
			"from the first bad one on. No local part and no name of a customer is in it. With --json all that is kept is\n" +
			"printed, a line each, for `rollcall throttle replay --trials FILE`.",
		Example: "  rollcall receivers trials example.net\n" +
			"  rollcall receivers trials example.net --json > trials.jsonl",
		Args: wantArgs("KEY"), ValidArgsFunction: completeKey(node, nil),
	}
	asJSON := jsonFlag(c)
	limit := c.Flags().Int("limit", 40, "show at most so many of each source")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *limit < 1 {
			return usageError{"--limit must not be below 1"}
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		var found struct {
			Lines  []throttle.TrialLine `json:"lines"`
			Silent []view.Silent        `json:"silent"`
		}
		q := url.Values{"key": {args[0]}}
		if err := client.ask(c.Context(), "GET", "/v1/receivers/trials?"+q.Encode(), nil, &found); err != nil {
			return err
		}
		for _, s := range found.Silent {
			fmt.Fprintln(c.ErrOrStderr(), foldedTo(fmt.Sprintf("rollcall: without %s: %s", s.Node, s.Why), 0,
				widthOf(c.ErrOrStderr())))
		}
		if *asJSON {
			for i := range found.Lines {
				if err := printJSON(c.OutOrStdout(), found.Lines[i]); err != nil {
					return err
				}
			}
			return nil
		}
		return printTrials(c.OutOrStdout(), found.Lines, *limit)
	}
	return c
}

// trialLogsOf parts lines into logs: each begins with a state.
func trialLogsOf(lines []throttle.TrialLine) (logs [][]throttle.TrialLine) {
	for i := range lines {
		if lines[i].State != nil || len(logs) == 0 {
			logs = append(logs, nil)
		}
		logs[len(logs)-1] = append(logs[len(logs)-1], lines[i])
	}
	return logs
}

// trialLogName says whose log it is.
func trialLogName(first *throttle.TrialLine) string {
	return fmt.Sprintf("%s on %s, from %s", printable(dash(first.Receiver)), printable(dash(first.Node)),
		printable(dash(first.Source)))
}

// printTrials writes the newest of each log as a table.
func printTrials(w io.Writer, lines []throttle.TrialLine, limit int) error {
	var b strings.Builder
	width := widthOf(w)
	if len(lines) == 0 {
		b.WriteString(foldedTo("Nothing was put off, refused or cut there since its node began to ask, or there was no room to "+
			"keep it: there are no trials to show.", 0, width) + "\n")
	}
	for i, log := range trialLogsOf(lines) {
		if i > 0 {
			b.WriteString("\n")
		}
		events := log[min(1, len(log)):]
		shown := events[max(0, len(events)-limit):]
		b.WriteString(foldedTo(fmt.Sprintf("%s: the newest %s of %s", trialLogName(&log[0]), grouped(int64(len(shown))),
			grouped(int64(len(events)))), 0, width) + "\n\n")
		g := grid{columns: []gridColumn{{name: "TIME"}, {name: "DOMAIN", least: 10, wrap: true}, {name: "LIST", right: true},
			{name: "PACE", right: true}, {name: "CAME TO", least: 18, wrap: true}}}
		for k := range shown {
			l := &shown[k]
			g.add(trialTime(l), printable(dash(l.Domain)), dash(l.Tenant), trialPace(l), printable(cameTo(l)))
		}
		g.write(&b, tableWidth(w))
		writeDecisions(&b, throttle.RecordedDecisions(shown), width)
	}
	return emit(w, &b)
}

func trialTime(l *throttle.TrialLine) string {
	if l.At.IsZero() {
		return "-"
	}
	return l.At.UTC().Format("15:04:05.000")
}

func trialPace(l *throttle.TrialLine) string {
	if l.Pace == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g/s", l.Pace)
}

// writeDecisions writes each belief with its time, which is that of the trial that led to it.
func writeDecisions(b *strings.Builder, list []throttle.Decision, width int) {
	if len(list) > 0 {
		b.WriteString("\nbelieved\n")
	}
	for _, d := range list {
		scope := printable(d.Scope)
		if d.Refused {
			scope += " refuses us"
		}
		text := fmt.Sprintf("%s %s: %s", d.At.UTC().Format("15:04:05.000"), scope, printable(d.Why))
		b.WriteString("  " + foldedTo(text, 4, width-2) + "\n")
	}
}

// cameTo says what an event was, for people.
func cameTo(l *throttle.TrialLine) string {
	is := func(yes, no string) string {
		if l.Yes {
			return yes
		}
		return no
	}
	switch l.Kind {
	case "trial":
		return strings.TrimSpace(strings.ReplaceAll(l.Result, "_", " ") + " " + l.Said)
	case "settled":
		return is("asked again, odd: ", "asked again, passed: ") + l.Said
	case "assumed":
		return "taken for what others were: " + l.Said
	case "look":
		return "asked again? " + l.Said
	case "usual":
		return fmt.Sprintf("%.0f %% are usual", 100*l.Share)
	case "clear":
		return "nothing suspected any more"
	case "slower":
		return "we go slower"
	case "compared":
		return is("compared: bad", "compared: good")
	case "looked":
		return is("compared: passed", "compared: odd")
	case "end":
		return "compared: " + strings.ReplaceAll(l.Finding, "_", " ")
	}
	return dash(l.Kind)
}
