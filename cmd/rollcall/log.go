package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/ledger"
)

// logShown is how many changes are shown by default: a screen.
const logShown = 20

func newLog(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "log",
		Short: "Show what operators changed: who, what, when, why",
		Long: "Show what operators changed, oldest first: when, who, the old value, the new one, and why. The author\n" +
			"is the name that people gave (--author); anybody with the token may give any name.",
		Example: "  rollcall log\n  rollcall log --since 24h --limit 0",
	}
	node := addAdminFlags(c, e)
	after := c.Flags().String("since", "", "only changes since then: 2h, 3d, or a time such as 2026-11-21T20:00:00Z")
	limit := c.Flags().Int("limit", logShown, "how many, the newest; 0 with --since: all")
	return adminCommand(node, c, func(to *client.Admin, _ []string) (found admin.LogPage, err error) {
		since, err := parseSince(*after, time.Now())
		if err != nil {
			return found, err
		}
		if *limit < 0 || *limit == 0 && since.IsZero() {
			return found, term.UsageError("--limit must be 1 or more; only with --since it may be 0, for all")
		}
		found.Lines, err = readLog(c.Context(), to, since, *limit)
		return found, err
	}, printLog)
}

// parseSince reads a duration before now, or a time; "" is the beginning.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := admin.ParseSpan(text)
	if err != nil || d <= 0 {
		return time.Time{}, term.UsageError(fmt.Sprintf("--since %q: write 2h, 3d, or a time such as 2026-11-21T20:00:00Z",
			text))
	}
	return now.Add(-d), nil
}

// readLog returns the newest lines since a time, oldest first. most bounds their number; 0 means no bound.
func readLog(ctx context.Context, to *client.Admin, since time.Time, most int) ([]admin.LogLine, error) {
	lines, place := []admin.LogLine{}, (*admin.LogPlace)(nil)
	for {
		q := url.Values{"limit": {fmt.Sprint(ledger.LogLinesMax)}}
		if most > 0 {
			q.Set("limit", fmt.Sprint(min(most-len(lines), ledger.LogLinesMax)))
		}
		if place != nil {
			q.Set("before", string(api.AppendTime(nil, time.Time(place.Before))))
			q.Set("after", place.After.String())
		}
		var page admin.LogPage
		if err := to.Ask(ctx, "GET", "/v1/log?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		old := slices.IndexFunc(page.Lines, func(line admin.LogLine) bool { return time.Time(line.At).Before(since) })
		if old >= 0 {
			page.Lines, page.Next = page.Lines[:old], nil
		}
		lines, place = append(lines, page.Lines...), page.Next
		if place == nil || most > 0 && len(lines) >= most {
			slices.Reverse(lines)
			return lines, nil
		}
	}
}

func printLog(b *term.Page, found admin.LogPage) {
	for _, line := range found.Lines {
		b.WriteString(b.Mark(term.Bold, term.Stamp(time.Time(line.At))) + " " +
			term.Printable(cmp.Or(line.Author, "nobody named")) + ": " + b.Mark(term.Bold, term.Printable(line.Action)) + "\n")
		b.Para(4, "%s", logText(line))
	}
}

func logText(line admin.LogLine) string {
	text := line.Subject
	if line.Workspace != nil && !strings.Contains(text, line.Workspace.String()) {
		text = strings.TrimSpace(text + " of workspace " + line.Workspace.String())
	}
	switch {
	case line.Old != "" && line.New != "":
		text += ": " + line.Old + " -> " + line.New
	case line.New != "":
		text += ": " + line.New
	case line.Old != "":
		text += ": was " + line.Old
	}
	if line.Reason != "" {
		text += " (" + line.Reason + ")"
	}
	return text
}
