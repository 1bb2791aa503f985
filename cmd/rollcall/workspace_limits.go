package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
)

func newWorkspaceLimits(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "limits WORKSPACE",
		Short: "Show what a workspace may have and has, or change it",
		Long: "Show how many unfinished verifications a workspace may have, how many bytes it may have stored, and how " +
			"many\n" +
			"verifications of a day may end or wait without credits; and what of it is used now.\n\n" +
			"With a flag the limit is changed first, from the next create on, on all nodes. Nothing that is there is\n" +
			"ended or erased for it. A limit that nobody set is that of the configuration: see [limits].",
		Example: "  rollcall workspace limits 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b\n" +
			"  rollcall workspace limits 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b --stored 50GiB --open 500 --reason contract\n" +
			"  rollcall workspace limits 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b --default",
		Args: wantArgs("WORKSPACE"), ValidArgsFunction: completeWorkspace(node),
	}
	asJSON, f := jsonFlag(c), addLimitFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := uuid.Parse(args[0])
		if err != nil {
			return term.UsageError(fmt.Sprintf("WORKSPACE %q is no id: see `rollcall workspace list`", args[0]))
		}
		change, err := f.change()
		if err != nil {
			return err
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		var out admin.WorkspaceLimits
		path := "/v1/workspaces/" + id.String() + "/limits"
		if change == nil {
			err = client.Ask(c.Context(), "GET", path, nil, &out)
		} else {
			err = client.Ask(c.Context(), "POST", path, change, &out)
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), out)
		}
		return printLimits(c.OutOrStdout(), out)
	}
	return c
}

// limitFlags are the limits as they are written; "" is unchanged.
type limitFlags struct {
	open, stored, unpaid string
	reset                bool
	reason               string
}

func addLimitFlags(c *cobra.Command) *limitFlags {
	f := &limitFlags{}
	c.Flags().StringVar(&f.open, "open", "", "how many unfinished verifications it may have")
	c.Flags().StringVar(&f.stored, "stored", "", "how many bytes it may have stored, such as 50GiB or 500MB")
	c.Flags().StringVar(&f.unpaid, "unpaid", "", "how many verifications of 24 hours may end or wait without credits")
	c.Flags().BoolVar(&f.reset, "default", false, "all limits that are not named are those of the configuration again")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the operator log")
	return f
}

// change gives what the flags ask for; nil: nothing.
func (f *limitFlags) change() (*admin.LimitsCall, error) {
	change := &admin.LimitsCall{Reason: f.reason}
	if f.reset {
		change.Open, change.Stored, change.Unpaid = new(int64), new(int64), new(int64)
	}
	for _, l := range []struct {
		name, text string
		to         **int64
	}{{"open", f.open, &change.Open}, {"stored", f.stored, &change.Stored}, {"unpaid", f.unpaid, &change.Unpaid}} {
		if l.text == "" {
			continue
		}
		n, err := strconv.ParseInt(l.text, 10, 64)
		if l.name == "stored" {
			n, err = parseSize(l.text)
		}
		if err != nil || n < 1 {
			return nil, term.UsageError(fmt.Sprintf("--%s %q: write a number from 1%s, or --default", l.name, l.text,
				map[string]string{"stored": " with a unit, such as 50GiB or 500MB"}[l.name]))
		}
		*l.to = &n
	}
	if change.Open == nil && change.Stored == nil && change.Unpaid == nil {
		if f.reason != "" {
			return nil, term.UsageError("--reason is given and no limit: name --open, --stored, --unpaid or --default")
		}
		return nil, nil
	}
	return change, nil
}

// sizes are the units of a number of bytes, the ones that print uses first.
var sizes = []struct {
	unit  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6},
	{"kB", 1e3}, {"B", 1}, {"", 1}}

// parseSize reads a number of bytes, with or without a unit.
func parseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "TGMKkiB")
	unit := strings.TrimSpace(text[len(number):])
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(n) {
		return 0, fmt.Errorf("%q is no number of bytes", text)
	}
	for _, s := range sizes {
		if s.unit == unit && n*float64(s.bytes) < 1<<53 {
			return int64(n * float64(s.bytes)), nil
		}
	}
	return 0, fmt.Errorf("%q is no number of bytes", text)
}

// bytesOf is a number of bytes for people.
func bytesOf(n int64) string {
	for _, s := range sizes[:4] {
		if n >= s.bytes {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(s.bytes), 'f', 1, 64), ".0") + " " + s.unit
		}
	}
	return fmt.Sprintf("%d B", n)
}

func printLimits(w io.Writer, l admin.WorkspaceLimits) error {
	fmt.Fprintf(w, "workspace %s  %s\n\n", l.ID, term.Printable(l.Name))
	row := func(name string, is admin.Limit, text func(int64) string) []string {
		from := "set"
		if is.Default {
			from = "default"
		}
		return []string{name, text(is.Limit), from, text(is.Used)}
	}
	return term.PrintTable(w, []string{"LIMIT", "VALUE", "FROM", "USED"}, [][]string{
		row("unfinished verifications", l.Open, term.Grouped),
		row("stored bytes", l.Stored, bytesOf),
		row("verifications of 24 h without credits", l.Unpaid, term.Grouped),
		{"weight at receivers", fmt.Sprint(l.Weight), map[bool]string{true: "default", false: "set"}[l.Weight == 1], ""},
	})
}
