package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	keyring "rollcall/cluster/gossip"
	"rollcall/cluster/secure"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
)

// The files of a certificate folder.
const (
	caName     = "ca"
	certSuffix = ".crt"
	keySuffix  = ".key"
)

// daysMax bounds --days: a certificate cannot outlive its CA.
const daysMax = int(secure.AuthorityValidity / (24 * time.Hour))

type certView struct {
	Name    string `json:"name"`
	Issuer  string `json:"issuer,omitempty"`
	CA      bool   `json:"ca"`
	Cert    string `json:"cert_file"`
	Key     string `json:"key_file,omitempty"`
	CAFile  string `json:"ca_file,omitempty"`
	Begins  string `json:"begins_at"`
	Expires string `json:"expires_at"`
}

func newClusterCert() *cobra.Command {
	c := asGroup(&cobra.Command{Use: "cert",
		Short: "Make the certificates with which the nodes of a cluster recognize each other"})
	c.AddCommand(newClusterCertInit(), newClusterCertNode(), newClusterCertShow())
	return c
}

func dirFlag(c *cobra.Command) *string {
	return c.Flags().String("dir", "certs", "the folder of the CA and of the certificates made with it")
}

func newClusterCertInit() *cobra.Command {
	c := &cobra.Command{Use: "init", Short: "Make a CA for a cluster: ca.crt and ca.key",
		Long: "Make a CA for a cluster, valid for ten years: ca.crt, which every node gets, and ca.key, which\n" +
			"no node gets. A CA that is there already is never overwritten."}
	dir := dirFlag(c)
	name := c.Flags().String("cluster", "rollcall", "the cluster's name, for people who look at the certificate")
	return answerWith(c, func([]string) (view certView, err error) {
		ca, err := secure.NewAuthority(*name, time.Now(), secure.AuthorityValidity)
		if err != nil {
			return view, err
		}
		if err := os.MkdirAll(*dir, 0o700); err != nil {
			return view, fmt.Errorf("make the folder: %w", err)
		}
		if err := writePair(*dir, caName, ca.Pair(), false); err != nil {
			return view, err
		}
		view, err = viewCert(filepath.Join(*dir, caName+certSuffix))
		view.Key = filepath.Join(*dir, caName+keySuffix)
		return view, err
	}, func(b *term.Page, view certView) {
		fmt.Fprintf(b, "%s  the CA, valid until %s: copy it to every node\n"+
			"%s  its key: keep it off the nodes, since anybody with it can make members\n\n"+
			"Next, for each node:  rollcall cluster cert node NAME --dir %s\n", view.Cert, view.Expires, view.Key, *dir)
	})
}

func newClusterCertNode() *cobra.Command {
	c := &cobra.Command{Use: "node NAME", Short: "Make the certificate of a node: NAME.crt and NAME.key",
		Long: "Make the certificate of a node with the CA of `rollcall cluster cert init`. NAME becomes the\n" +
			"member's name; it has the form of a host name and need not resolve. No two nodes may have the same.\n" +
			"A running node uses a renewed certificate within seconds of its files being replaced."}
	dir := dirFlag(c)
	days := c.Flags().Int("days", int(secure.NodeValidity/(24*time.Hour)), "how long the certificate is valid")
	renew := c.Flags().Bool("renew", false, "replace the files of this name if they are there")
	return answerWith(c, func(args []string) (view certView, err error) {
		if *days < 1 || *days > daysMax {
			return view, term.UsageError(fmt.Sprintf("--days %d: 1 to %d are allowed", *days, daysMax))
		}
		if err := secure.CheckName(args[0]); err != nil || args[0] == caName {
			return view, term.UsageError(fmt.Sprintf("%q cannot be a node's name: lower-case letters, digits, hyphens and "+
				"dots, as in node-1.example.net", args[0]))
		}
		if err := issueCert(*dir, args[0], time.Duration(*days)*24*time.Hour, *renew); err != nil {
			return view, err
		}
		view, err = viewCert(filepath.Join(*dir, args[0]+certSuffix))
		view.Key, view.CAFile = filepath.Join(*dir, args[0]+keySuffix), filepath.Join(*dir, caName+certSuffix)
		return view, err
	}, printNodeCert)
}

// issueCert makes the files of a node with the CA of a folder.
func issueCert(dir, name string, validity time.Duration, renew bool) error {
	certFile, keyFile := filepath.Join(dir, caName+certSuffix), filepath.Join(dir, caName+keySuffix)
	if err := secure.CheckKeyFile(keyFile); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no CA in %s: make one with `rollcall cluster cert init`: %w", dir, err)
		}
		return err
	}
	var pair secure.Pair
	var err error
	if pair.Cert, err = os.ReadFile(certFile); err != nil {
		return fmt.Errorf("read the CA: %w", err)
	}
	if pair.Key, err = os.ReadFile(keyFile); err != nil {
		return fmt.Errorf("read the CA's key: %w", err)
	}
	ca, err := secure.ReadAuthority(pair)
	if err != nil {
		return err
	}
	made, err := ca.Issue(name, time.Now(), validity)
	if err != nil {
		return err
	}
	return writePair(dir, name, made, renew)
}

func printNodeCert(b *term.Page, view certView) {
	fmt.Fprintf(b, "%s  the certificate of %s, valid until %s\n"+
		"%s  its key\n\n"+
		"Copy both and %s to the node, the key readable by its user only, and set there:\n\n"+
		"[cluster]\n"+
		"tls_ca_file = \"/etc/rollcall/%s\"\n"+
		"tls_cert_file = \"/etc/rollcall/%s\"\n"+
		"tls_key_file = \"/etc/rollcall/%s\"\n", view.Cert, view.Name, view.Expires, view.Key, view.CAFile,
		caName+certSuffix, view.Name+certSuffix, view.Name+keySuffix)
}

func newClusterCertShow() *cobra.Command {
	c := &cobra.Command{Use: "show FILE", Short: "Show whose a certificate is, who made it and when it ends"}
	return answerWith(c, func(args []string) (certView, error) { return viewCert(args[0]) },
		func(b *term.Page, view certView) {
			b.Rows([]string{"NAME", "ISSUER", "BEGINS", "EXPIRES"},
				[][]string{{view.Name, view.Issuer, view.Begins, view.Expires}})
		})
}

func viewCert(file string) (v certView, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return v, fmt.Errorf("read the certificate: %w", err)
	}
	cert, err := secure.ReadCertificate(text)
	if err != nil {
		return v, fmt.Errorf("read %s: %w", file, err)
	}
	v = certView{Name: cert.Subject.CommonName, Issuer: cert.Issuer.CommonName, CA: cert.IsCA, Cert: file,
		Begins: cert.NotBefore.UTC().Format(time.RFC3339), Expires: cert.NotAfter.UTC().Format(time.RFC3339)}
	if len(cert.DNSNames) > 0 {
		v.Name = cert.DNSNames[0]
	}
	return v, nil
}

// writePair writes a key and its certificate. If a file exists, writePair replaces it atomically, or without replace
// returns an error.
func writePair(dir, name string, pair secure.Pair, replace bool) error {
	write := writeNew
	if replace {
		write = term.ReplaceFile
	}
	keyFile, certFile := filepath.Join(dir, name+keySuffix), filepath.Join(dir, name+certSuffix)
	if _, err := os.Lstat(certFile); err == nil && !replace {
		return fmt.Errorf("%s: %w", certFile, fs.ErrExist)
	}
	if err := write(keyFile, pair.Key, 0o600); err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	if err := write(certFile, pair.Cert, 0o644); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	return nil
}

func writeNew(name string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

var errKeysPartly = errors.New("not every node did it")

func newClusterKeys(node *adminFlags) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use:   "keys",
		Short: "Make, list and change the keys that encrypt gossip",
		Long: "Make, list and change the keys that encrypt gossip. A key is named by its fingerprint.\n\n" +
			"To change the key of a running cluster, with all nodes up:\n\n" +
			"  rollcall cluster keys new next.key       makes a key, here\n" +
			"  rollcall cluster keys add next.key       every node can decrypt with it\n" +
			"  rollcall cluster keys use next.key       every node encrypts with it\n" +
			"  rollcall cluster keys list               shows the fingerprint of the old one\n" +
			"  rollcall cluster keys remove 1a2b3c4d    no node accepts the old one\n\n" +
			"Each node keeps its keys in its cluster.gossip_key_file. A node that is down during this needs the new file.",
	})
	c.AddCommand(newKeysNew(), newKeysList(node), newKeysAdd(node),
		newKeysChange(node, admin.KeyUse, "Make every node encrypt with a key that all have"),
		newKeysChange(node, admin.KeyRemove, "Make every node forget a key that none encrypts with"))
	unknown := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := refuseKeys(args); err != nil {
			return err
		}
		return unknown(c, args)
	}
	return c
}

type newKeyFileView struct {
	File        string `json:"file"`
	Fingerprint string `json:"fingerprint"`
}

func newKeysNew() *cobra.Command {
	c := &cobra.Command{
		Use:   "new FILE",
		Short: "Make a key in a new file, without giving it to any node",
		Long: "Make a key in a new file, for you alone to read. No node gets it: for a new cluster set\n" +
			"cluster.gossip_key_file to the file on all nodes, for a running one see `rollcall cluster keys add`.",
		Example: "  rollcall cluster keys new gossip.key",
		Args:    wantKey("FILE"),
	}
	return answerWith(c, func(args []string) (newKeyFileView, error) {
		fingerprint, err := keyring.CreateKeyFile(args[0])
		if errors.Is(err, os.ErrExist) {
			err = fmt.Errorf("%s is there already: choose another name, nothing is overwritten", args[0])
		}
		return newKeyFileView{args[0], fingerprint}, err
	}, func(b *term.Page, made newKeyFileView) {
		b.Rows([]string{"FILE", "FINGERPRINT"}, [][]string{{made.File, made.Fingerprint}})
	})
}

func newKeysList(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Short:   "Show which node has which keys, by fingerprint",
		Example: "  rollcall cluster keys list",
	}
	return keysCommand(node, c, func([]string) (admin.KeyCall, error) { return admin.KeyCall{Op: admin.KeyList}, nil })
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
	return keysCommand(node, c, func(args []string) (admin.KeyCall, error) {
		key, err := readKey(args[0], c.InOrStdin())
		return admin.KeyCall{Op: admin.KeyAdd, Key: key}, err
	})
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
	return keysCommand(node, c, func(args []string) (admin.KeyCall, error) {
		fingerprint, err := fingerprintOf(args[0])
		return admin.KeyCall{Op: op, Fingerprint: fingerprint}, err
	})
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

// wantKey requires one argument that names a key. Its errors never repeat the argument, which may be a key itself.
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

var fingerprintForm = regexp.MustCompile(`^[0-9a-f]{8}$`)

// fingerprintOf returns a typed fingerprint, or the fingerprint of a file's only key.
func fingerprintOf(arg string) (string, error) {
	if lower := strings.ToLower(arg); fingerprintForm.MatchString(lower) {
		return lower, nil
	}
	fingerprint, err := onlyKey(arg)
	if errors.Is(err, errNoKeyFile) {
		return "", fmt.Errorf("%s is neither a fingerprint (8 hex digits) nor a file: see `rollcall cluster keys list`", arg)
	}
	return fingerprint, err
}

var errNoKeyFile = errors.New("there is no file")

// onlyKey returns the fingerprint of the key in a file with one key. It refuses a file that other users can read.
func onlyKey(name string) (string, error) {
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%w %s: check the path", errNoKeyFile, name)
	}
	ring, err := keyring.LoadKeyring(name)
	if err != nil {
		return "", err
	}
	keys := ring.Fingerprints()
	if len(keys) > 1 {
		return "", manyKeys(name, len(keys))
	}
	return keys[0], nil
}

func manyKeys(name string, n int) error {
	return fmt.Errorf("%s has %d keys: give a file that holds only the one you mean", name, n)
}

// keyFileMax bounds how much of a key file is read: a key and pages of comments.
const keyFileMax = 64 << 10

// readKey returns the text of the only key of a file, or of standard input for "-".
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

type keysDone struct {
	op admin.KeyOp
	admin.KeyAnswer
}

// keysCommand makes c a command about keys. body makes the call from the command's arguments.
func keysCommand(node *adminFlags, c *cobra.Command, body func(args []string) (admin.KeyCall, error)) *cobra.Command {
	return answerWith(c, func(args []string) (done keysDone, err error) {
		call, err := body(args)
		if err != nil {
			return done, err
		}
		to, err := node.client()
		if err != nil {
			return done, err
		}
		if done.op = call.Op; call.Op == admin.KeyList {
			return done, to.Ask(c.Context(), "GET", "/v1/cluster/keys", nil, &done.KeyAnswer)
		}
		return done, to.Ask(c.Context(), "POST", "/v1/cluster/keys", call, &done.KeyAnswer)
	}, printKeys)
}

func (k keysDone) failsWith() error {
	failed := 0
	for _, r := range k.Results {
		if r.Error != "" {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%w (%d of %d did not): %s", errKeysPartly, failed, len(k.Results), keysPartly[k.op])
}

// keysPartly says what to do when some nodes failed.
var keysPartly = map[admin.KeyOp]string{
	admin.KeyList: "see why in the table, and run the command again",
	admin.KeyAdd: "do not use the key yet; correct what the table shows and run the same command again, which does " +
		"no harm where it succeeded",
	admin.KeyUse: "nodes still understand each other, as all have both keys; correct what the table shows and run " +
		"the same command again before any key is removed",
	admin.KeyRemove: "nodes still understand each other; correct what the table shows and run the same command again",
}

// keysNext says what to do next when all nodes succeeded.
var keysNext = map[admin.KeyOp]string{
	admin.KeyAdd:    "Next: rollcall cluster keys use %s",
	admin.KeyUse:    "Next, when every node uses %s: rollcall cluster keys remove, with the fingerprint of the old key",
	admin.KeyRemove: "No running node accepts %s now; remove it from the files of nodes that are down.",
}

// keyNameMost is the longest name of a node in the table of keys. With it, a table with two keys per node fits 80
// columns.
const keyNameMost = 30

func printKeys(b *term.Page, done keysDone) {
	var rows [][]string
	var notes []string
	for _, r := range done.Results {
		result := "done"
		if r.Error != "" {
			result = "FAILED"
			notes = append(notes, fmt.Sprintf("%s (%.8s): %s", term.Clipped(r.Name, nameMost), r.Node, term.Printable(r.Error)))
		}
		others := slices.DeleteFunc(slices.Clone(r.Keys), func(k string) bool { return k == r.Primary })
		rows = append(rows, []string{r.Node.String()[:8], term.Clipped(r.Name, keyNameMost), result,
			term.Printable(cmp.Or(r.Primary, "-")), term.Printable(cmp.Or(strings.Join(others, " "), "-"))})
	}
	b.Rows([]string{"NODE", "NAME", "RESULT", "USES", "READS TOO"}, rows)
	b.Notes(notes...)
	if next := keysNext[done.op]; next != "" && len(notes) == 0 {
		fmt.Fprintf(b, "\n"+next+"\n", done.Fingerprint)
	}
}
