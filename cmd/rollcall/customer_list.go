package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/api"
)

// listShown is how many verifications are listed by default.
const listShown = 20

func newList(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List your verifications, newest first",
		Long: "List your verifications, newest first. At a terminal ids are cut to fit; what is left of one is enough for\n" +
			"`rollcall status`, `results` and `cancel`. Off a terminal nothing is cut.",
		Example: "  rollcall list --api https://rollcall.example\n  rollcall list --limit 0 --json",
		Args:    wantArgs(),
	}
	service, asJSON := addCustomerFlags(c, e), jsonFlag(c)
	limit := c.Flags().Int("limit", listShown, "list at most so many; 0: all")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *limit < 0 {
			return term.UsageError("--limit must not be below 0")
		}
		customer, err := service.client(c)
		if err != nil {
			return err
		}
		all := api.History{Verifications: []api.Summary{}}
		size := client.HistoryPageMax
		if *limit > 0 {
			size = min(*limit, client.HistoryPageMax)
		}
		for page, err := range customer.Pages(c.Context(), size) {
			if err != nil {
				return err
			}
			all.Verifications = append(all.Verifications, page.Verifications...)
			all.Limits, all.NextCursor = page.Limits, page.NextCursor
			if *limit > 0 && len(all.Verifications) >= *limit {
				break
			}
		}
		if *limit > 0 && len(all.Verifications) > *limit {
			all.Verifications, all.NextCursor = all.Verifications[:*limit], nil // the cursor is behind the whole page
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), all)
		}
		waiting := customer.Waiting(c.Context(), all.Verifications)
		return printHistory(c.OutOrStdout(), all.Verifications, waiting, time.Now())
	}
	return c
}

// historyGrid has a row for each verification.
func historyGrid(list []api.Summary, now time.Time) *term.Table {
	g := &term.Table{Columns: []term.Column{{Name: "ID", Least: 9}, {Name: "STATUS", Least: 9}, {Name: "CREATED"},
		{Name: "DONE", Right: true}, {Name: "FILE", Least: 10}}}
	for _, v := range list {
		g.Add(v.ID, v.Status, term.Clock(time.Time(v.CreatedAt), now), doneText(v.Progress), client.FileName(v.Filename))
	}
	return g
}

func printHistory(w io.Writer, list []api.Summary, waiting []api.Detail, now time.Time) error {
	var b strings.Builder
	historyGrid(list, now).Write(&b, term.TableWidth(w))
	for _, d := range waiting {
		if d.Issue != nil { // it may have gone on meanwhile
			fmt.Fprintf(&b, "%s\n", term.FoldedTo(d.ID+" waits: "+client.IssueText(d.Issue), 0, term.WidthOf(w)))
		}
	}
	if len(list) == 0 {
		b.WriteString("There is no verification yet.\n")
	}
	return term.Emit(w, &b)
}

// doneText is how much is final, as "12 of 62".
func doneText(p api.Progress) string {
	if p.Total == nil {
		return "-"
	}
	return term.Grouped(p.Completed+p.Errors+p.Cancelled) + " of " + term.Grouped(*p.Total)
}

func newStatus(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "status ID",
		Short: "Show how far one of your verifications is",
		Long: "Show how far one of your verifications is, and what it needs of you. Of the id the first 4 characters " +
			"are enough\nif no other verification has them.",
		Example: "  rollcall status 0b6f2c9e --api https://rollcall.example",
		Args:    wantArgs("ID"),
	}
	service, asJSON := addCustomerFlags(c, e), jsonFlag(c)
	c.ValidArgsFunction = completeVerification(service)
	c.RunE = service.ofVerification(func(c *cobra.Command, client *client.API, id string) error {
		d, _, err := client.Detail(c.Context(), id)
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), d)
		}
		return printDetail(c.OutOrStdout(), d, time.Now())
	})
	return c
}

// printDetail writes what the service says of a verification.
func printDetail(w io.Writer, d api.Detail, now time.Time) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-*s%s\n", term.NameWidth, name, term.FoldedTo(fmt.Sprintf(format, args...), term.NameWidth,
			term.WidthOf(w)))
	}
	line("verification", "%s", d.ID)
	line("status", "%s", d.Status)
	if d.Issue != nil {
		line("issue", "%s (%s)", client.IssueText(d.Issue), d.Issue.Code)
	}
	line("file", "%s", client.FileName(d.Filename))
	if d.Input != nil {
		line("input", "%s, %s", term.Counted(d.Input.Rows, "row"), term.Counted(d.Input.Duplicates, "duplicate"))
	}
	if d.Progress.Total != nil {
		line("done", "%s: %s completed, %s with an error, %s cancelled", doneText(d.Progress),
			term.Grouped(d.Progress.Completed),
			term.Grouped(d.Progress.Errors), term.Grouped(d.Progress.Cancelled))
	}
	line("created", "%s", term.Clock(time.Time(d.CreatedAt), now))
	if d.CompletedAt != nil {
		line("over", "%s", term.Clock(time.Time(*d.CompletedAt), now))
	}
	if d.Upload != nil {
		line("upload", "bytes are missing; `rollcall verify` with the same file goes on until %s",
			term.Clock(time.Time(d.Upload.ExpiresAt), now))
	}
	return term.Emit(w, &b)
}
