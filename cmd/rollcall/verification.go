package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/actors/view"
)

func newVerification(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "verification ID",
		Short: "Show what the open addresses of a verification wait for, and until when",
		Long: "Show what the open addresses of a verification wait for, and until when, and when the last of them is\n" +
			"expected to be final. The expectation holds as things are now: receivers and other files change it.\n" +
			"Of a verification that no node works on it says why: its upload, its credits, or how it has ended.",
		Example: "  rollcall verification 0b6f2c9e-5f5e-4a3a-9c55-5a3a1b0f4c11",
		Args:    wantArgs("ID"),
	}
	node, asJSON := addAdminFlags(c, e), jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := verificationArg(args[0])
		if err != nil {
			return err
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		var found view.Verification
		if err := client.ask(c.Context(), "GET", "/v1/verifications/"+id.String()+"/waits", nil, &found); err != nil {
			return err
		}
		if *asJSON {
			return printJSON(c.OutOrStdout(), found)
		}
		return printVerification(c.OutOrStdout(), found)
	}
	return c
}

// waitsFor says what addresses wait for, by the word.
var waitsFor = map[string]string{
	view.ForRoute:    "what DNS says of their domain",
	view.ForReceiver: "their turn at a receiver",
	view.ForRetry:    "another attempt, since they were put off",
	view.ForControl:  "whether their domain accepts everything",
	view.ForDomain:   "their domain's turn: others of the file are before it",
	view.ForLedger:   "being written down: they are final",
}

func printVerification(w io.Writer, v view.Verification) error {
	var b strings.Builder
	now, width := v.At, widthOf(w)
	if now.IsZero() {
		now = time.Now()
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-*s%s\n", evidenceIndent, name, foldedTo(fmt.Sprintf(format, args...), evidenceIndent,
			width))
	}
	line("verification", "%s, %s", v.ID, v.Status)
	if v.Workspace != "" {
		line("workspace", "%s", v.Workspace)
	}
	if v.Node != "" {
		line("node", "%s works on it", v.Node)
	}
	if v.Total > 0 { // else it is not known yet
		line("final", "%s of %s addresses (%d %%)", grouped(v.Final), grouped(v.Total), v.Final*100/v.Total)
	}
	if !v.Finish.IsZero() {
		line("expected", "the last is final at %s, in %s, as things are", clock(v.Finish, now), left(v.Finish, now))
	}
	if v.Why != "" {
		line("why", "%s", v.Why)
	}
	if len(v.Waits) > 0 {
		b.WriteString("\n")
		waitsGrid(v.Waits, now).write(&b, width)
	}
	return emit(w, &b)
}

// waitsGrid has a row for each thing that addresses wait for, and below it what is in words.
func waitsGrid(waits []view.Wait, now time.Time) *grid {
	g := &grid{columns: []gridColumn{{name: "ADDRESSES", right: true}, {name: "WAIT FOR"}, {name: "RECEIVER",
		least: 15},
		{name: "BECAUSE", least: 9}, {name: "FIRST", right: true}, {name: "LAST", right: true},
		{name: "AN HOUR", right: true}}}
	for _, one := range waits {
		perHour := "-"
		if one.PerHour > 0 {
			perHour = grouped(int64(one.PerHour))
		}
		row := gridRow{cells: []string{grouped(int64(one.Addresses)), one.For, dash(one.Receiver),
			dash(firstSet(one.Cause, one.Reason)), dash(left(one.Until, now)), dash(left(one.Last, now)), perHour}}
		if text := waitsFor[one.For]; text != "" {
			if !one.Until.IsZero() {
				text += fmt.Sprintf("; the first goes on at %s", clock(one.Until, now))
			}
			row.below = []string{text}
		}
		g.rows = append(g.rows, row)
	}
	return g
}
