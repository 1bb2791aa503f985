package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	keyring "rollcall/cluster/gossip"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
)

// errKeysPartly says that some nodes did not do a command about keys.
var errKeysPartly = errors.New("not every node did it")

func newClusterKeys(node *adminFlags) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use:   "keys",
		Short: "Make, list and change the keys that encrypt gossip",
		Long: "Make, list and change the keys that encrypt gossip. A key is named by its fingerprint.\n\n" +
			"To change the key of a running cluster, with all nodes up:\n\n" +
			"  rollcall cluster keys new next.key       makes a key, here\n" +
			"  rollcall cluster keys add next.key       every node can read what is sealed with it\n" +
			"  rollcall cluster keys use next.key       every node seals with it\n" +
			"  rollcall cluster keys list               shows the fingerprint of the old one\n" +
			"  rollcall cluster keys remove 1a2b3c4d    no node reads the old one any more\n\n" +
			"Each node keeps its keys in its cluster.gossip_key_file. A node that is down meanwhile needs the new file.",
	})
	c.AddCommand(newKeysNew(), newKeysList(node), newKeysAdd(node),
		newKeysChange(node, admin.KeyUse, "Have every node encrypt with a key that all have"),
		newKeysChange(node, admin.KeyRemove, "Have every node forget a key that none encrypts with"))
	unknown := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := refuseKeys(args); err != nil {
			return err
		}
		return unknown(c, args)
	}
	return c
}

// newKeyFileView tells of a new key what may be told.
type newKeyFileView struct {
	File        string `json:"file"`
	Fingerprint string `json:"fingerprint"`
}

func newKeysNew() *cobra.Command {
	c := &cobra.Command{
		Use:   "new FILE",
		Short: "Make a key in a new file; no node learns of it",
		Long: "Make a key in a new file, for you alone to read. No node learns of it: for a new cluster set\n" +
			"cluster.gossip_key_file to the file on all nodes, for a running one see `rollcall cluster keys add`.",
		Example: "  rollcall cluster keys new gossip.key",
		Args:    wantKey("FILE"),
	}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		fingerprint, err := keyring.CreateKeyFile(args[0])
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%s is there already: choose another name, nothing is overwritten", args[0])
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), newKeyFileView{args[0], fingerprint})
		}
		return term.PrintTable(c.OutOrStdout(), []string{"FILE", "FINGERPRINT"}, [][]string{{args[0], fingerprint}})
	}
	return c
}

func newKeysList(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Short:   "Show which node has which keys, by fingerprint",
		Example: "  rollcall cluster keys list",
		Args:    wantArgs(),
	}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return keysCall{node: node, out: c.OutOrStdout(), asJSON: *asJSON}.do(c.Context(), keyBody{Op: admin.KeyList})
	}
	return c
}

func newKeysAdd(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "add FILE",
		Short: "Give every node the key of a file; - reads it from standard input",
		Long: "Give every node the key of a file, or of standard input with -, so that it reads what is encrypted with " +
			"it.\n" +
			"A key is never an argument: process lists and shell histories show those.",
		Example: "  rollcall cluster keys add next.key\n" +
			"  ssh vault cat next.key | rollcall cluster keys add -",
		Args: wantKey("FILE"),
	}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		key, err := readKey(args[0], c.InOrStdin())
		if err != nil {
			return err
		}
		return keysCall{node: node, out: c.OutOrStdout(), asJSON: *asJSON}.do(c.Context(),
			keyBody{Op: admin.KeyAdd, Key: key})
	}
	return c
}

func newKeysChange(node *adminFlags, op admin.KeyOp, short string) *cobra.Command {
	c := &cobra.Command{
		Use:   string(op) + " FINGERPRINT|FILE",
		Short: short,
		Long: short + ". It is named by its fingerprint or by a file that\nholds it and no other. " +
			"Nothing is changed unless every node that gossip sees can do it.",
		Example: fmt.Sprintf("  rollcall cluster keys %s 1a2b3c4d\n  rollcall cluster keys %[1]s next.key", op),
		Args:    wantKey("FINGERPRINT|FILE"),
	}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		fingerprint, err := fingerprintOf(args[0])
		if err != nil {
			return err
		}
		return keysCall{node: node, out: c.OutOrStdout(), asJSON: *asJSON}.do(c.Context(),
			keyBody{Op: op, Fingerprint: fingerprint})
	}
	return c
}

// refuseKeys refuses arguments that are keys, without repeating them.
func refuseKeys(args []string) error {
	for _, a := range args {
		if key, err := base64.StdEncoding.DecodeString(a); err == nil && len(key) == gossipKeyBytes {
			return term.UsageError("this is a key itself, and process lists and your shell's history have it: " +
				"throw it away, make another with `rollcall cluster keys new FILE`, and give FILE")
		}
	}
	return nil
}

// wantKey wants one argument that names a key. It repeats none, since it may be one.
func wantKey(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if err := refuseKeys(args); err != nil {
			return err
		}
		switch {
		case len(args) == 0:
			return term.UsageError(name + " is missing")
		case len(args) > 1:
			return term.UsageError("one argument is enough: " + name)
		}
		return nil
	}
}

// gossipKeyBytes is the length of a key: that of AES-256.
const gossipKeyBytes = 32

// fingerprintForm is how a key is named.
var fingerprintForm = regexp.MustCompile(`^[0-9a-f]{8}$`)

// fingerprintOf reads a fingerprint, or takes that of the only key of a file.
func fingerprintOf(arg string) (string, error) {
	if lower := strings.ToLower(arg); fingerprintForm.MatchString(lower) {
		return lower, nil
	}
	key, err := onlyKey(arg)
	if errors.Is(err, errNoKeyFile) {
		return "", fmt.Errorf("%s is no fingerprint, which has 8 hex digits, and no file: see `rollcall cluster keys list`",
			arg)
	}
	return key.Fingerprint, err
}

// errNoKeyFile says that there is no file of this name.
var errNoKeyFile = errors.New("there is no file")

// onlyKey looks at a file with one key, which others must not be able to read.
func onlyKey(name string) (key keyring.Key, err error) {
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		return key, fmt.Errorf("%w %s: check the path", errNoKeyFile, name)
	}
	ring, err := keyring.LoadKeyring(name)
	if err != nil {
		return key, err
	}
	if keys := ring.List(); len(keys) > 1 {
		return key, manyKeys(name, len(keys))
	}
	return ring.List()[0], nil
}

func manyKeys(name string, n int) error {
	return fmt.Errorf("%s has %d keys: give a file that holds only the one you mean", name, n)
}

// keyFileMax bounds what is read of a file with a key: a key and pages of comments.
const keyFileMax = 64 << 10

// readKey takes the text of the only key of a file, or of standard input for "-".
func readKey(name string, stdin io.Reader) (string, error) {
	from := stdin
	if name == "-" {
		name = "standard input"
	} else {
		if _, err := onlyKey(name); err != nil {
			return "", err
		}
		f, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("read the key: %w", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, keyFileMax))
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	var keys []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			keys = append(keys, line)
		}
	}
	switch len(keys) {
	case 0:
		return "", fmt.Errorf("%s has no key: `rollcall cluster keys new FILE` makes one", name)
	case 1:
		return keys[0], nil
	}
	return "", manyKeys(name, len(keys))
}

// keyBody is the body of a call about keys.
type keyBody struct {
	Op          admin.KeyOp `json:"op"`
	Key         string      `json:"key,omitempty"`
	Fingerprint string      `json:"fingerprint,omitempty"`
}

// keysCall asks for a command about keys and shows what came of it.
type keysCall struct {
	node   *adminFlags
	out    io.Writer
	asJSON bool
}

// do fails with errKeysPartly when a node did not do it, after showing all.
func (k keysCall) do(ctx context.Context, body keyBody) error {
	client, err := k.node.client()
	if err != nil {
		return err
	}
	var answer admin.KeyAnswer
	if body.Op == admin.KeyList {
		err = client.Ask(ctx, "GET", "/v1/cluster/keys", nil, &answer)
	} else {
		err = client.Ask(ctx, "POST", "/v1/cluster/keys", body, &answer)
	}
	if err != nil {
		return err
	}
	if k.asJSON {
		err = term.PrintJSON(k.out, answer)
	} else {
		err = printKeys(k.out, body.Op, answer)
	}
	if err != nil {
		return err
	}
	failed := 0
	for _, r := range answer.Results {
		if r.Error != "" {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%w (%d of %d did not): %s", errKeysPartly, failed, len(answer.Results), keysPartly[body.Op])
	}
	return nil
}

// keysPartly says what to do when some nodes did not do a command.
var keysPartly = map[admin.KeyOp]string{
	admin.KeyList: "see why in the table, and run the command again",
	admin.KeyAdd: "do not use the key yet; put right what the table says and run the same command again, which does " +
		"no harm where it was done",
	admin.KeyUse: "nodes go on to understand each other, as all have both keys; put right what the table says and run " +
		"the same command again before any key is removed",
	admin.KeyRemove: "nodes go on to understand each other; put right what the table says and run the same command again",
}

// keysNext says what comes after a command that every node did.
var keysNext = map[admin.KeyOp]string{
	admin.KeyAdd:    "Next: rollcall cluster keys use %s",
	admin.KeyUse:    "Next, when every node uses %s: rollcall cluster keys remove, with the fingerprint of the old key",
	admin.KeyRemove: "No running node reads %s any more; take it out of the files of nodes that are down.",
}

// keyNameMost is the longest name of a node in the table of keys: with two keys
// each it then has 80 columns at most.
const keyNameMost = 30

// printKeys writes what each node did and which keys it has, and why one did not.
func printKeys(w io.Writer, op admin.KeyOp, answer admin.KeyAnswer) error {
	var rows [][]string
	var notes []string
	for _, r := range answer.Results {
		result := "done"
		if r.Error != "" {
			result = "FAILED"
			notes = append(notes, fmt.Sprintf("%s (%.8s): %s", term.Clipped(r.Name, nameMost), r.Node, term.Printable(r.Error)))
		}
		others := slices.DeleteFunc(slices.Clone(r.Keys), func(k string) bool { return k == r.Primary })
		rows = append(rows, []string{r.Node.String()[:8], term.Clipped(r.Name, keyNameMost), result,
			term.Printable(cmp.Or(r.Primary, "-")), term.Printable(cmp.Or(strings.Join(others, " "), "-"))})
	}
	if err := term.PrintTable(w, []string{"NODE", "NAME", "RESULT", "USES", "READS TOO"}, rows); err != nil {
		return err
	}
	text := ""
	for _, note := range notes {
		text += "\n" + term.Wrapped(note, 0) + "\n"
	}
	if next := keysNext[op]; next != "" && len(notes) == 0 {
		text += "\n" + fmt.Sprintf(next, answer.Fingerprint) + "\n"
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
