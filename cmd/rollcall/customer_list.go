package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/http/api"
	"rollcall/ledger"
)

// listShown is how many verifications are listed by default.
const listShown = 20

// issuesShown bounds for how many verifications the list says what they wait for: each is a request of its own.
const issuesShown = 5

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
			return usageError{"--limit must not be below 0"}
		}
		client, err := service.client(c)
		if err != nil {
			return err
		}
		all := api.History{Verifications: []api.Summary{}}
		size := historyPageMax
		if *limit > 0 {
			size = min(*limit, historyPageMax)
		}
		for page, err := range client.pages(c.Context(), size) {
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
			return printJSON(c.OutOrStdout(), all)
		}
		waiting := client.waiting(c.Context(), all.Verifications)
		return printHistory(c.OutOrStdout(), all.Verifications, waiting, time.Now())
	}
	return c
}

// historyGrid has a row for each verification.
func historyGrid(list []api.Summary, now time.Time) *grid {
	g := &grid{columns: []gridColumn{{name: "ID", least: 9}, {name: "STATUS", least: 9}, {name: "CREATED"},
		{name: "DONE", right: true}, {name: "FILE", least: 10}}}
	for _, v := range list {
		g.add(v.ID, v.Status, clock(time.Time(v.CreatedAt), now), doneText(v.Progress), fileName(v.Filename))
	}
	return g
}

// waiting reads the newest of a list that wait, as far as the service answers: the list is there without them.
func (c *apiClient) waiting(ctx context.Context, list []api.Summary) (found []api.Detail) {
	for _, v := range list {
		if v.Status != string(ledger.Waiting) {
			continue
		}
		if len(found) == issuesShown {
			break
		}
		d, _, err := c.detail(ctx, v.ID)
		if err != nil {
			break
		}
		found = append(found, d)
	}
	return found
}

func printHistory(w io.Writer, list []api.Summary, waiting []api.Detail, now time.Time) error {
	var b strings.Builder
	historyGrid(list, now).write(&b, tableWidth(w))
	for _, d := range waiting {
		if d.Issue != nil { // it may have gone on meanwhile
			fmt.Fprintf(&b, "%s\n", foldedTo(d.ID+" waits: "+issueText(d.Issue), 0, widthOf(w)))
		}
	}
	if len(list) == 0 {
		b.WriteString("There is no verification yet.\n")
	}
	return emit(w, &b)
}

// doneText is how much is final, as "12 of 62".
func doneText(p api.Progress) string {
	if p.Total == nil {
		return "-"
	}
	return grouped(p.Completed+p.Errors+p.Cancelled) + " of " + grouped(*p.Total)
}

func newStatus(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "status ID",
		Short:   "Show how far one of your verifications is",
		Long:    "Show how far one of your verifications is, and what it needs of you. Of the id the first 4 characters are enough\nif no other verification has them.",
		Example: "  rollcall status 0b6f2c9e --api https://rollcall.example",
		Args:    wantArgs("ID"),
	}
	service, asJSON := addCustomerFlags(c, e), jsonFlag(c)
	c.ValidArgsFunction = completeVerification(service)
	c.RunE = service.ofVerification(func(c *cobra.Command, client *apiClient, id string) error {
		d, _, err := client.detail(c.Context(), id)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(c.OutOrStdout(), d)
		}
		return printDetail(c.OutOrStdout(), d, time.Now())
	})
	return c
}

// printDetail writes what the service says of a verification.
func printDetail(w io.Writer, d api.Detail, now time.Time) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-*s%s\n", evidenceIndent, name, foldedTo(fmt.Sprintf(format, args...), evidenceIndent, widthOf(w)))
	}
	line("verification", "%s", d.ID)
	line("status", "%s", d.Status)
	if d.Issue != nil {
		line("issue", "%s (%s)", issueText(d.Issue), d.Issue.Code)
	}
	line("file", "%s", fileName(d.Filename))
	if d.Input != nil {
		line("input", "%s, %s", counted(d.Input.Rows, "row"), counted(d.Input.Duplicates, "duplicate"))
	}
	if d.Progress.Total != nil {
		line("done", "%s: %s completed, %s with an error, %s cancelled", doneText(d.Progress), grouped(d.Progress.Completed),
			grouped(d.Progress.Errors), grouped(d.Progress.Cancelled))
	}
	line("created", "%s", clock(time.Time(d.CreatedAt), now))
	if d.CompletedAt != nil {
		line("over", "%s", clock(time.Time(*d.CompletedAt), now))
	}
	if d.Upload != nil {
		line("upload", "bytes are missing; `rollcall verify` with the same file goes on until %s",
			clock(time.Time(d.Upload.ExpiresAt), now))
	}
	return emit(w, &b)
}
