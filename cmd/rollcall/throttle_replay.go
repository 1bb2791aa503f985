package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/term"
)

func newThrottleReplay(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "replay [FILE]",
		Short: "Try a throttle file, or verdict rules, on what was recorded in the last hours",
		Long: "Try a throttle file, or a file of verdict rules with --rules, on what the nodes recorded in the last " +
			"hours:\n" +
			"which fields would have held receivers back and how often, how many addresses could have been asked and how\n" +
			"much later the last one, and which replies would have been taken for something else. Nothing is changed and\n" +
			"no receiver is asked. What receivers would have answered to more than they were asked nobody knows, and the\n" +
			"report says where that matters.",
		Example: "  rollcall throttle replay throttle.new.toml\n" +
			"  rollcall throttle replay --rules verdict.new.toml",
		Args: mostArgs(1),
	}
	asJSON := jsonFlag(c)
	rules := c.Flags().String("rules", "",
		"judge the recorded replies by this rule file before the rules that come "+
			"with the program")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && *rules == "" {
			return term.UsageError("FILE is missing: give a throttle file, or --rules with a rule file")
		}
		body, err := candidates(args, *rules)
		if err != nil {
			return err
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), replayTimeout)
		defer cancel()
		var found inspect.Replayed
		if err := client.Call(ctx, "POST", "/v1/throttle/replay", body, &found); err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), found)
		}
		return printThrottleReplay(c.OutOrStdout(), found)
	}
	return c
}

// replayTimeout bounds a replay: it judges what a cluster kept of some hours anew.
const replayTimeout = 5 * time.Minute

// candidateBody is the body of the call: texts of files.
type candidateBody struct {
	Throttle string `json:"throttle,omitempty"`
	Rules    string `json:"rules,omitempty"`
}

// candidates reads the files, so that their faults are told with their names.
func candidates(args []string, rules string) (body candidateBody, err error) {
	if len(args) > 0 {
		if body.Throttle, err = readCandidate(args[0]); err != nil {
			return body, err
		}
		if strings.TrimSpace(body.Throttle) == "" {
			return body, term.UsageError(args[0] + " is empty: there is nothing to try")
		}
		if err = faultsOf(args[0]); err != nil {
			return body, err
		}
	}
	if rules != "" {
		body.Rules, err = readRules(rules)
	}
	return body, err
}

func printThrottleReplay(w io.Writer, r inspect.Replayed) error {
	var b strings.Builder
	width := term.WidthOf(w)
	paragraph := func(format string, args ...any) {
		b.WriteString(term.FoldedTo(fmt.Sprintf(format, args...), 0, width) + "\n")
	}
	paragraph("The record reaches back %s: %s addresses were asked. %s of the receivers in it would see no difference, "+
		"%s would.", reach(r.Hours), term.Grouped(int64(r.Asked)),
		term.Grouped(int64(r.Same)), term.Grouped(int64(len(r.Receivers))))
	for _, one := range r.Receivers {
		writeReceiverReplay(&b, one, width)
	}
	if len(r.Verdicts) > 0 {
		fmt.Fprintf(&b, "\nReplies that would be taken for something else:\n\n")
		for _, v := range r.Verdicts {
			paragraph("%s, %s times: %q", v.Receiver, term.Grouped(int64(v.Times)), term.Printable(v.Sample))
			b.WriteString("    was  " + term.FoldedTo(v.Now, 9, width) + "\n    now  " + term.FoldedTo(v.Would, 9, width) + "\n")
		}
	}
	for _, text := range r.Warnings {
		b.WriteString("\n")
		paragraph("Warning: %s", text)
	}
	for _, s := range r.Silent {
		b.WriteString("\n")
		paragraph("Without what %s recorded: %s", s.Node, s.Why)
	}
	b.WriteString("\n")
	paragraph("Nothing was changed, and no receiver was asked: this is what was recorded, reckoned anew.")
	return term.Emit(w, &b)
}

// reach says how far back a record goes, in whole minutes and never more.
func reach(hours float64) string {
	d := time.Duration(hours * float64(time.Hour))
	if d < time.Minute {
		return "less than a minute"
	}
	return term.Rough((d + time.Millisecond).Truncate(time.Minute)) // what is told has been through a fraction
}

func writeReceiverReplay(b *strings.Builder, one inspect.ReceiverReplay, width int) {
	delay := "at the same time"
	switch d := term.Seconds(one.Delay); {
	case d >= time.Second:
		delay = term.Rough(d) + " later"
	case d <= -time.Second:
		delay = term.Rough(-d) + " sooner"
	}
	fmt.Fprintf(b, "\n%s\n", term.Printable(one.Key))
	indented := func(text string) { b.WriteString("    " + term.FoldedTo(text, 4, width) + "\n") }
	for _, c := range one.Changes {
		indented(fmt.Sprintf("%s: %s now, %s then", c.Field, term.Dash(c.Now), term.Dash(c.Would)))
	}
	bound := "at most"
	if one.AtLeast {
		bound, delay = "at least", delay+", or even sooner: more waited than the record shows"
	}
	indented(fmt.Sprintf("asked %s, then %s %s; the last of them %s", term.Grouped(int64(one.Asked)), bound,
		term.Grouped(int64(one.Would)), delay))
	for _, field := range slices.SortedFunc(maps.Keys(one.Fired), func(a, b string) int {
		return one.Fired[b] - one.Fired[a]
	}) {
		if n := one.Fired[field]; n > 0 {
			indented(fmt.Sprintf("%s would have held it back in %s of the minutes", field, term.Grouped(int64(n))))
		}
	}
	if one.Unknown != "" {
		indented("Not known: " + one.Unknown)
	}
}
