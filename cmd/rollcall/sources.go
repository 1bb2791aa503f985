package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/smtp/throttle"
)

func newSourcesCommand(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "sources",
		Short: "See our source addresses on all nodes; pause, drain, resume one",
		Long: "See our source addresses on all nodes.\n\n" +
			"TODAY are the addresses asked since midnight UTC of those allowed in a day, SPOKEN the receivers spoken to\n" +
			"within the hour, BLOCKED those of them that refuse the source. \"default\" is the source whose address the\n" +
			"system chooses.",
		Example: "  rollcall sources\n" +
			"  rollcall sources drain 192.0.2.7 --for 6h --reason \"listed, see ticket 12\"",
		Args: wantArgs(),
	}
	node := addAdminFlags(c, e)
	adminCommand(node, c, func(to *client.Admin, _ []string) (admin.Sources, error) {
		return to.Sources(c.Context())
	}, func(w io.Writer, found admin.Sources) error { return printSources(w, found, time.Now()) })
	rest := restCommand{node: node, arg: "ADDRESS", key: keyOfSource, complete: completeSource(node)}
	pause, drain, resume := rest, rest, rest
	pause.word, pause.value = "pause", throttle.PauseYes
	pause.short = "Pause a source for a time"
	pause.long = "Pause a source for a time: its sessions end after the command in progress.\n" +
		"Other sources go on, each within its own limits; without another one the addresses wait."
	pause.example = "  rollcall sources pause 192.0.2.7 --for 2h --reason \"listed\"\n" +
		"  rollcall sources pause default --for 10m --reason \"network work\""
	drain.word, drain.value = "drain", throttle.PauseDrain
	drain.short = "Open no more sessions from a source for a time; open ones run to their end"
	drain.long = drain.short + "."
	drain.example = "  rollcall sources drain 192.0.2.7 --for 6h --reason \"moving away\""
	resume.word, resume.short = "resume", "End the pause or the drain of a source"
	c.AddCommand(newRest(pause), newRest(drain), newResume(resume))
	return c
}

// keyOfSource returns the name of a source's rules.
func keyOfSource(arg string) (string, error) {
	arg = strings.TrimPrefix(arg, throttle.SourcePrefix)
	if arg == "default" || arg == "" {
		return throttle.SourcePrefix, nil
	}
	at, err := netip.ParseAddr(arg)
	if err != nil {
		return "", term.UsageError(fmt.Sprintf("ADDRESS %q is not an IP address: write one of `rollcall sources`, or default",
			arg))
	}
	return throttle.SourcePrefix + at.Unmap().String(), nil
}

// completeSource offers our sources to a shell.
func completeSource(node *adminFlags) cobra.CompletionFunc {
	return completeWith(node, func(ctx context.Context, to *client.Admin, _ string) (names []string) {
		known, _ := to.Sources(ctx)
		for _, s := range known.Sources {
			names = append(names, fmt.Sprintf("%s\t%s on %s", sourceName(s.Source), term.Printable(s.State),
				term.Printable(s.Node)))
		}
		return names
	})
}

func printSources(w io.Writer, found admin.Sources, now time.Time) error {
	b := term.NewPage(w)
	g := term.Table{Columns: []term.Column{{Name: "SOURCE", Least: 12}, {Name: "NODE", Least: 8}, {Name: "STATE",
		Least: 8, Wrap: true},
		{Name: "SESS", Right: true}, {Name: "TODAY", Right: true}, {Name: "PER DAY", Right: true},
		{Name: "SPOKEN", Right: true}, {Name: "BLOCKED", Right: true}}}
	for _, s := range found.Sources {
		state, perDay := s.State, "-"
		if !s.Until.IsZero() {
			state += " " + term.Left(s.Until, now)
		}
		if s.PerDay > 0 {
			perDay = term.Short(int64(s.PerDay))
		}
		row := term.Row{Cells: []string{sourceName(s.Source), s.Node, state, term.Grouped(int64(s.Sessions)),
			term.Short(int64(s.Today)), perDay, term.Grouped(int64(s.Spoken)), term.Grouped(int64(s.Blocked))}}
		if s.Reason != "" {
			row.Below = append(row.Below, s.Reason)
		}
		if s.Hello != "" {
			row.Below = append(row.Below, "introduces itself as "+s.Hello)
		}
		g.Rows = append(g.Rows, row)
	}
	if len(found.Sources) == 0 {
		b.WriteString("No node has a source.\n")
	} else {
		b.Table(&g)
	}
	for _, s := range found.Silent {
		b.WriteString("\n")
		b.Para(0, "Without %s, which does not answer: %s", s.Node, s.Why)
	}
	return b.Emit()
}
