package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/ledger"
)

func newKey(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{Use: "key", Short: "Create, list and revoke API keys"})
	node := addAdminFlags(c, e)
	c.AddCommand(newKeyCreate(node), newKeyList(node), newKeyRevoke(node))
	return c
}

// workspaceFlag adds the required flag --workspace. Before the command runs, the flag's value becomes an id.
func workspaceFlag(c *cobra.Command, node *adminFlags) *string {
	id := c.Flags().String("workspace", "", "the workspace: its name or its id, from 'rollcall workspace list' (required)")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if *id == "" {
			return term.UsageError("--workspace is missing: give the name or id from `rollcall workspace list`")
		}
		if _, err := uuid.Parse(*id); err == nil {
			return nil
		}
		to, err := node.client()
		if err == nil {
			*id, err = to.WorkspaceID(c.Context(), *id)
		}
		return err
	}
	return id
}

func newKeyCreate(node *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "create --workspace NAME", Short: "Create an API key and show it, once"}
	workspace := workspaceFlag(c, node)
	label := c.Flags().String("label", "", "a name for people, such as the program that uses the key")
	return adminCommand(node, c, func(to *client.Admin, _ []string) (admin.NewKey, error) {
		return to.CreateKey(c.Context(), *workspace, *label)
	}, func(b *term.Page, k admin.NewKey) {
		fmt.Fprintln(c.ErrOrStderr(), "Keep the key now: it is not shown again.")
		b.Rows([]string{"ID", "KEY"}, [][]string{{k.ID, k.Key}})
	})
}

func newKeyList(node *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "list --workspace NAME", Short: "List a workspace's API keys"}
	workspace := workspaceFlag(c, node)
	return adminCommand(node, c, func(to *client.Admin, _ []string) (list admin.Keys, err error) {
		list.Keys, err = to.Keys(c.Context(), *workspace)
		return list, err
	}, func(b *term.Page, list admin.Keys) {
		rows := make([][]string, len(list.Keys))
		for i, k := range list.Keys {
			revoked := "-"
			if k.RevokedAt != nil {
				revoked = k.RevokedAt.String()
			}
			rows[i] = []string{k.ID, k.Label, k.CreatedAt.String(), revoked}
		}
		b.Rows([]string{"ID", "LABEL", "CREATED", "REVOKED"}, rows)
	})
}

func newKeyRevoke(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke an API key; it stops working within 5 seconds",
		Long: "Revoke an API key; it stops working within 5 seconds. KEY is its id, the beginning of its id, or its label, " +
			"of\nany workspace; never the key itself.",
		Example: "  rollcall key revoke 0b6f2c9e",
	}
	return adminCommand(node, c, func(to *client.Admin, args []string) (revoked admin.RevokedKey, err error) {
		id := args[0]
		keys, err := to.Keys(c.Context(), "")
		if err != nil {
			return revoked, err
		}
		if !slices.ContainsFunc(keys, func(k admin.Key) bool { return k.ID == id }) { // revoking a key twice is no error
			var good []client.Named
			for _, k := range keys {
				if k.RevokedAt == nil {
					good = append(good, client.Named{ID: k.ID, Name: k.Label})
				}
			}
			if id, err = client.Pick("good key", "rollcall key list --workspace NAME", id, good); err != nil {
				return revoked, err
			}
		}
		return revoked, to.Ask(c.Context(), "POST", "/v1/keys/"+id+"/revoke", nil, &revoked)
	}, func(b *term.Page, revoked admin.RevokedKey) {
		b.Rows([]string{"ID", "REVOKED"}, [][]string{{revoked.ID, revoked.RevokedAt.String()}})
	})
}

func newWorkspace(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{Use: "workspace", Short: "Create and list workspaces, the paying tenants, weigh and " +
		"limit them"})
	node := addAdminFlags(c, e)
	c.AddCommand(newWorkspaceCreate(node), newWorkspaceList(node), newWorkspaceWeight(node), newWorkspaceLimits(node))
	return c
}

func newWorkspaceCreate(node *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "create NAME", Short: "Create a workspace"}
	return adminCommand(node, c, func(to *client.Admin, args []string) (admin.Workspace, error) {
		return to.CreateWorkspace(c.Context(), args[0])
	}, func(b *term.Page, made admin.Workspace) {
		b.Rows([]string{"WORKSPACE", "NAME"}, [][]string{{made.ID, made.Name}})
	})
}

func newWorkspaceList(node *adminFlags) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the workspaces"}
	return adminCommand(node, c, func(to *client.Admin, _ []string) (list admin.WorkspaceList, err error) {
		list.Workspaces, err = to.Workspaces(c.Context())
		return list, err
	}, func(b *term.Page, list admin.WorkspaceList) {
		rows := make([][]string, len(list.Workspaces))
		for i, w := range list.Workspaces {
			rows[i] = []string{w.ID, w.Name, fmt.Sprint(w.Weight), w.CreatedAt.String()}
		}
		b.Rows([]string{"WORKSPACE", "NAME", "WEIGHT", "CREATED"}, rows)
	})
}

func newWorkspaceWeight(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "weight WORKSPACE N",
		Short: "Give a workspace a weight of N at each receiver",
		Long: "Give a workspace N turns at each receiver where one of weight 1 gets one turn, on all nodes within two\n" +
			"seconds. Turns go round by workspace and then by verification, so that a small file does not wait for a\n" +
			"large one.",
		Example: "  rollcall workspace weight 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b 3",
	}
	return adminCommand(node, c, func(operator *client.Admin, args []string) (found admin.Workspace, err error) {
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 || n > ledger.WeightMax {
			return found, term.UsageError(fmt.Sprintf("N %q: write a whole number from 1 to %d", args[1], ledger.WeightMax))
		}
		id, err := operator.WorkspaceID(c.Context(), args[0])
		if err != nil {
			return found, err
		}
		return found, operator.Ask(c.Context(), "POST", "/v1/workspaces/"+id+"/weight", map[string]int{"weight": n}, &found)
	}, func(b *term.Page, found admin.Workspace) {
		b.Rows([]string{"WORKSPACE", "NAME", "WEIGHT"}, [][]string{{found.ID, found.Name, fmt.Sprint(found.Weight)}})
	})
}

func newWorkspaceLimits(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "limits WORKSPACE",
		Short: "Show or change the limits of a workspace, and show their use",
		Long: "Show how many unfinished verifications a workspace may have, how many bytes it may have stored, and how " +
			"many\n" +
			"verifications of a day may end or wait without credits; and what of it is used now.\n\n" +
			"With a flag the limit is changed first, from the next create on, on all nodes. No verification is\n" +
			"ended and nothing erased. Limits that are not set come from the configuration: see [limits].",
		Example: "  rollcall workspace limits 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b\n" +
			"  rollcall workspace limits 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b --stored 50GiB --open 500 --reason contract\n" +
			"  rollcall workspace limits 5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b --default",
	}
	f := addLimitFlags(c)
	return adminCommand(node, c, func(client *client.Admin, args []string) (out admin.WorkspaceLimits, err error) {
		change, err := f.change()
		if err != nil {
			return out, err
		}
		id, err := client.WorkspaceID(c.Context(), args[0])
		if err != nil {
			return out, err
		}
		path := "/v1/workspaces/" + id + "/limits"
		if change == nil {
			err = client.Ask(c.Context(), "GET", path, nil, &out)
		} else {
			err = client.Ask(c.Context(), "POST", path, change, &out)
		}
		return out, err
	}, printLimits)
}

// limitFlags are the limits as texts; "" leaves a limit unchanged.
type limitFlags struct {
	open, stored, unpaid string
	reset                bool
	reason               string
}

func addLimitFlags(c *cobra.Command) *limitFlags {
	f := &limitFlags{}
	c.Flags().StringVar(&f.open, "open", "", "how many unfinished verifications it may have")
	c.Flags().StringVar(&f.stored, "stored", "", "how many bytes it may have stored, such as 50GiB or 500MB")
	c.Flags().StringVar(&f.unpaid, "unpaid", "", "how many verifications of the last 24 hours may never have held credits")
	c.Flags().BoolVar(&f.reset, "default", false, "reset all limits that are not named to the configuration")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the operator log")
	return f
}

// change returns the change that the flags ask for, or nil.
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

// sizes are the units of bytes. Output uses the first ones.
var sizes = []struct {
	unit  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6},
	{"kB", 1e3}, {"B", 1}, {"", 1}}

func parseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "TGMKkiB")
	unit := strings.TrimSpace(text[len(number):])
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(n) {
		return 0, fmt.Errorf("%q is not a number of bytes", text)
	}
	for _, s := range sizes {
		if s.unit == unit && n*float64(s.bytes) < 1<<53 {
			return int64(n * float64(s.bytes)), nil
		}
	}
	return 0, fmt.Errorf("%q is not a number of bytes", text)
}

func bytesOf(n int64) string {
	for _, s := range sizes[:4] {
		if n >= s.bytes {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(s.bytes), 'f', 1, 64), ".0") + " " + s.unit
		}
	}
	return fmt.Sprintf("%d B", n)
}

func printLimits(b *term.Page, l admin.WorkspaceLimits) {
	fmt.Fprintf(b, "workspace %s  %s\n\n", l.ID, term.Printable(l.Name))
	row := func(name string, is admin.Limit, text func(int64) string) []string {
		from := "set"
		if is.Default {
			from = "default"
		}
		return []string{name, text(is.Limit), from, text(is.Used)}
	}
	b.Rows([]string{"LIMIT", "VALUE", "FROM", "USED"}, [][]string{
		row("unfinished verifications", l.Open, term.Grouped),
		row("stored bytes", l.Stored, bytesOf),
		row("verifications of 24 h without credits", l.Unpaid, term.Grouped),
		{"weight at receivers", fmt.Sprint(l.Weight), map[bool]string{true: "default", false: "set"}[l.Weight == 1], ""},
	})
}
