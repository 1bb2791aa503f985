package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
)

func newVerification(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "verification ID",
		Short: "Show what the open addresses of a verification wait for, and until when",
		Long: "Show what the open addresses of a verification wait for, and until when, and when the last of them should\n" +
			"be final. That time assumes that nothing changes; receivers and other files may change it.\n" +
			"If no node works on the verification, the reason is shown: its upload, its credits, or how it has ended.",
		Example: "  rollcall verification 0b6f2c9e-5f5e-4a3a-9c55-5a3a1b0f4c11\n" +
			"  rollcall verification 0b6f2c9e-5f5e-4a3a-9c55-5a3a1b0f4c11 --limit 0",
	}
	node := addAdminFlags(c, e)
	limit := c.Flags().Int("limit", waitsShown, "show at most this many rows,  those with the most addresses; 0: all. "+
		"--json has all")
	return adminCommand(node, c, func(client *client.Admin, args []string) (found inspect.Verification, err error) {
		if *limit < 0 {
			return found, term.UsageError("--limit must not be below 0")
		}
		id, err := verificationAt(c.Context(), client, args[0])
		if err != nil {
			return found, err
		}
		return found, client.Ask(c.Context(), "GET", "/v1/verifications/"+id.String()+"/waits", nil, &found)
	}, func(b *term.Page, found inspect.Verification) { printVerification(b, found, *limit) })
}

// waitsShown is how many rows are shown by default. They fit on a screen with the lines above them.
const waitsShown = 10

// waitsFor describes what addresses wait for, by its word in the API.
var waitsFor = map[string]string{
	inspect.ForRoute:    "what DNS says of their domain",
	inspect.ForReceiver: "their turn at a receiver",
	inspect.ForRetry:    "another attempt, since they were deferred",
	inspect.ForControl:  "whether their domain accepts everything",
	inspect.ForDomain:   "their domain's turn: others of the file are before it",
	inspect.ForLedger:   "being written down: they are final",
}

// printVerification shows what addresses wait for, in at most limit rows; 0 means all.
func printVerification(b *term.Page, v inspect.Verification, limit int) {
	now := cmp.Or(v.At, time.Now())
	line := b.Field
	line("verification", "%s", v.ID)
	line("status", "%s", v.Status)
	line("workspace", "%s", v.Workspace)
	if v.Node != "" {
		line("node", "%s works on it", v.Node)
	}
	if v.Total > 0 { // 0: the number is not known yet
		line("final", "%s of %s addresses (%d %%)", term.Grouped(v.Final), term.Grouped(v.Total), v.Final*100/v.Total)
	}
	if !v.Finish.IsZero() {
		line("expected", "the last is final at %s, in %s, if nothing changes", term.Clock(v.Finish, now),
			term.Left(v.Finish, now))
	}
	line("why", "%s", v.Why)
	if len(v.Waits) > 0 {
		shown, more := mostWaits(v.Waits, limit)
		b.Section(waitsGrid(shown, now))
		addMoreWaits(b, more)
	}
}

// mostWaits returns the limit rows with the most addresses, and the other rows. 0 means all.
func mostWaits(waits []inspect.Wait, limit int) (shown, more []inspect.Wait) {
	sorted := slices.SortedStableFunc(slices.Values(waits), func(a, b inspect.Wait) int {
		return cmp.Compare(b.Addresses, a.Addresses)
	})
	if limit == 0 || len(sorted) <= limit {
		return sorted, nil
	}
	return sorted[:limit], sorted[limit:]
}

// addMoreWaits writes one line with the number of hidden rows and how to see them.
func addMoreWaits(b *term.Page, more []inspect.Wait) {
	if len(more) == 0 {
		return
	}
	addresses := 0
	for _, w := range more {
		addresses += w.Addresses
	}
	b.Notes(fmt.Sprintf("and %s with %s: add --limit 0 to see them all", term.Counted(len(more), "more row"),
		term.Counted(addresses, "address")))
}

// waitsGrid has a row for each thing that addresses wait for, with explanations below the row.
func waitsGrid(waits []inspect.Wait, now time.Time) *term.Table {
	g := &term.Table{Columns: []term.Column{{Name: "ADDRESSES", Right: true}, {Name: "WAIT FOR"}, {Name: "RECEIVER",
		Least: 15}, {Name: "BECAUSE", Least: 9, Wrap: true}, {Name: "FIRST", Right: true}, {Name: "LAST", Right: true},
		{Name: "AN HOUR", Right: true}}}
	for _, one := range waits {
		perHour := "-"
		if one.PerHour > 0 {
			perHour = term.Grouped(one.PerHour)
		}
		g.Add(term.Grouped(one.Addresses), one.For, term.Dash(one.Receiver), term.Dash(cmp.Or(one.Cause, one.Reason)),
			term.Dash(term.Left(one.Until, now)), term.Dash(term.Left(one.Last, now)), perHour)
		if text := waitsFor[one.For]; text != "" {
			g.Below(text + when("; the first goes on at ", one.Until, now, term.Clock))
		}
	}
	return g
}
