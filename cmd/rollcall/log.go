package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/ledger"
)

const (
	// logShown is how many changes are shown by default: a screen.
	logShown = 20

	// logEvery is how often a followed log is read. Guess: nobody waits for it.
	logEvery = 2 * time.Second

	// logLate is how much later than its time a line may appear: a transaction that began earlier may end later.
	logLate = time.Minute
)

func newLog(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "log",
		Short: "Show what operators changed: who, what, when, why",
		Long: "Show what operators changed, oldest first: when, who, what it was, what it is now, and why. The author\n" +
			"is as people named themselves (--author); whoever has the token may write any name.",
		Example: "  rollcall log\n  rollcall log --since 24h --limit 0\n  rollcall log --follow",
	}
	node, asJSON := addAdminFlags(c, e), jsonFlag(c)
	l := logReader{}
	since := c.Flags().String("since", "",
		"only changes since then: 2h, 3d, or a time such as 2026-11-21T20:00:00Z")
	c.Flags().IntVar(&l.limit, "limit", logShown, "the newest so many; 0 with --since: all")
	follow := c.Flags().Bool("follow", false, "go on with new ones, until Ctrl-C")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if l.since, err = parseSince(*since, time.Now()); err != nil {
			return err
		}
		if l.limit < 0 || l.limit == 0 && l.since.IsZero() {
			return term.UsageError("--limit must be 1 or more; 0 is for all since --since")
		}
		if l.client, err = node.client(); err != nil {
			return err
		}
		l.out, l.asJSON = c.OutOrStdout(), *asJSON
		lines, err := l.read(c.Context(), l.since, l.limit)
		switch {
		case err != nil:
			return err
		case *follow:
			return l.follow(c.Context(), lines, logEvery)
		case l.asJSON:
			return term.PrintJSON(l.out, admin.LogPage{Lines: lines})
		}
		return l.show(lines)
	}
	return c
}

// parseSince reads a length of time before now, or a time; "" is the beginning.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := parseSpan(text)
	if err != nil || d <= 0 {
		return time.Time{}, term.UsageError(fmt.Sprintf("--since %q: write 2h, 3d, or a time such as 2026-11-21T20:00:00Z",
			text))
	}
	return now.Add(-d), nil
}

// logReader shows the operator log.
type logReader struct {
	client *client.Admin
	out    io.Writer
	asJSON bool
	since  time.Time
	limit  int // 0: any number
}

// read returns the newest lines since a time, oldest first, at most limit unless that is 0.
func (l logReader) read(ctx context.Context, since time.Time, most int) ([]admin.LogLine, error) {
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
		if err := l.client.Ask(ctx, "GET", "/v1/log?"+q.Encode(), nil, &page); err != nil {
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

// follow shows lines, and then new ones until ctx ends, which is no error. A node that answered once may become
// unreachable and come back.
func (l logReader) follow(ctx context.Context, lines []admin.LogLine, every time.Duration) error {
	seen, newest := map[uuid.UUID]bool{}, time.Now()
	for _, line := range lines {
		seen[line.ID] = true
		newest = time.Time(line.At) // by the ledger's clock
	}
	for {
		if err := l.show(lines); err != nil {
			return err
		}
		if term.Sleep(ctx, every) != nil {
			return nil
		}
		found, err := l.read(ctx, newest.Add(-logLate), 0)
		if ctx.Err() != nil {
			return nil
		}
		if lines = nil; err != nil {
			continue
		}
		before := seen
		seen = map[uuid.UUID]bool{}
		for _, line := range found {
			if seen[line.ID] = true; !before[line.ID] {
				lines = append(lines, line)
			}
			newest = time.Time(line.At)
		}
	}
}

// show writes lines below the earlier ones.
func (l logReader) show(lines []admin.LogLine) error {
	b := term.NewPage(l.out)
	for _, line := range lines {
		if l.asJSON {
			if err := term.PrintJSON(b, line); err != nil {
				return err
			}
			continue
		}
		b.WriteString(b.Mark(term.Bold, term.Stamp(time.Time(line.At))) + " " +
			term.Printable(cmp.Or(line.Author, "nobody named")) + ": " + b.Mark(term.Bold, term.Printable(line.Action)) + "\n")
		b.Para(4, "%s", logText(line))
	}
	return b.Emit()
}

// logText describes a change.
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
