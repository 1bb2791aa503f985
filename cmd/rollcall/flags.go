package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger/sqlstore"
)

const adminDefault = "http://127.0.0.1:8081"

// installedConfig is the configuration file of an installed node, as in deploy/.
const installedConfig = "/etc/rollcall/rollcall.toml"

// adminFlags are the flags of every command that speaks to a node.
type adminFlags struct {
	environ    environment
	url, token string
	config     string // file of the node's configuration
	installed  string // the file used if nothing else names the node; "": none
	by         string // who makes changes
}

func addAdminFlags(c *cobra.Command, e environment) *adminFlags {
	f := &adminFlags{environ: e, installed: installedConfig}
	c.PersistentFlags().StringVar(&f.url, "admin", "", "the node's admin listener, a URL or unix:PATH; also "+
		"ROLLCALL_ADMIN (default: from the configuration, else "+adminDefault+")")
	c.PersistentFlags().StringVar(&f.config, "config", "", "the node's configuration file (default: "+installedConfig+
		" if it is there and the environment names no node)")
	c.PersistentFlags().StringVar(&f.token, "token", "", "its token; also ROLLCALL_ADMIN_TOKEN (default: "+
		"DATA_DIR/admin.token)")
	c.PersistentFlags().StringVar(&f.by, "author", "", "who you are, for the operator log; also ROLLCALL_AUTHOR "+
		"(default: your user name and host)")
	return f
}

// author returns the author of a command's changes, for the operator log.
func (f *adminFlags) author() (string, error) {
	author := cmp.Or(f.by, f.environ.value("ROLLCALL_AUTHOR"))
	if author == "" {
		author = f.environ.value("USER")
		if who, err := user.Current(); author == "" && err == nil {
			author = who.Username
		}
		if host, err := os.Hostname(); err == nil && author != "" {
			author += "@" + host
		}
		if !admin.AuthorFits(author) { // it is the default
			author = ""
		}
	}
	if !admin.AuthorFits(author) {
		return "", term.UsageError(fmt.Sprintf("--author must have at most %d bytes, all printable", admin.AuthorMax))
	}
	return author, nil
}

// namedBy returns the flag or variable by which the operator named the node to ask, or "".
func (f *adminFlags) namedBy() string {
	switch {
	case f.url != "":
		return "--admin"
	case f.environ.value("ROLLCALL_ADMIN") != "":
		return "ROLLCALL_ADMIN"
	}
	return ""
}

// load reads the node's configuration from the named file, else from the environment, else from the file of the node
// installed here.
func (f *adminFlags) load() (config.Config, error) {
	file := f.config
	if file == "" && !slices.ContainsFunc(whereabouts, func(name string) bool { return f.environ.value(name) != "" }) {
		_, err := os.Stat(f.installed)
		if err == nil {
			file = f.installed
		}
		if errors.Is(err, fs.ErrPermission) {
			return config.Config{}, fmt.Errorf("this user may not read %s: be root or in its group, or give --admin and --token",
				f.installed)
		}
	}
	c, err := config.Load(file, f.environ)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: be root or in its group, or give --admin and --token", err)
	}
	return c, err
}

// whereabouts are the environment's settings that tell where a node or its ledger is.
var whereabouts = []string{"ROLLCALL_ADMIN_LISTEN", "ROLLCALL_DATA_DIR", "ROLLCALL_LEDGER_URL"}

func (f *adminFlags) client() (*client.Admin, error) {
	if f.url != "" && f.config != "" {
		return nil, term.UsageError("--admin and --config both name a node: give only one of them")
	}
	base, token := f.url, cmp.Or(f.token, f.environ.value("ROLLCALL_ADMIN_TOKEN"))
	if f.config == "" {
		base = cmp.Or(base, f.environ.value("ROLLCALL_ADMIN"))
	}
	if base == "" || token == "" {
		c, err := f.load()
		if err != nil {
			return nil, err
		}
		base = cmp.Or(base, adminURL(c.Admin))
		if token == "" {
			if token, err = client.ReadToken(c.DataDir); err != nil {
				return nil, err
			}
		}
	}
	if err := checkAdmin(base); err != nil {
		return nil, err
	}
	client := client.NewAdmin(base, token)
	var err error
	client.Author, err = f.author()
	return client, err
}

// checkAdmin requires a base URL or a unix socket.
func checkAdmin(base string) error {
	if path, unix := strings.CutPrefix(base, config.UnixPrefix); unix && path != "" {
		return nil
	}
	return checkBase("--admin", base, adminDefault)
}

// checkBase requires a base URL; such is an example for the error.
func checkBase(flag, base, such string) error {
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return term.UsageError(fmt.Sprintf("%s %q is not a URL: write one such as %s", flag, base, such))
	}
	return nil
}

func addOutFlags(c *cobra.Command, o *term.OutFile) {
	c.Flags().StringVar(&o.Name, "out", "", "write the results to this `FILE` instead of standard output; it must not "+
		"exist")
	c.Flags().BoolVar(&o.Force, "force", false, "with --out: replace the file if it exists; never the input")
}

func jsonFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("json", false, "print JSON for programs")
}

// reading is where a command's answer comes from: a node, or a ledger that the command read itself.
type reading struct {
	Node   string `json:"node,omitempty"`   // its admin listener
	Ledger string `json:"ledger,omitempty"` // its URL, without a password
	Here   bool   `json:"here,omitempty"`   // no node: the command checked this machine itself
}

// String names the place of the reading, for the first line of a report.
func (r reading) String() string {
	switch {
	case r.Node != "":
		return "the node at " + r.Node
	case r.Here:
		return "this machine, where the node does not run"
	}
	return "the ledger " + r.Ledger
}

// ledgerName returns a ledger's URL as it may be shown: without its password and settings that may hold one.
func ledgerName(text string) string {
	if strings.HasPrefix(text, "sqlite:") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "on a server"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if socket := u.Query().Get("host"); socket != "" {
		shown.RawQuery = "host=" + socket
	}
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	return shown.String()
}

// ledgerFlags are for commands that can ask a node or read a ledger themselves.
type ledgerFlags struct {
	node *adminFlags
	url  string // of --ledger
}

func addLedgerFlags(c *cobra.Command, e environment) *ledgerFlags {
	f := &ledgerFlags{node: addAdminFlags(c, e)}
	c.PersistentFlags().StringVar(&f.url, "ledger", "", "read this ledger directly, even if a node runs; also that of "+
		"--config, or ROLLCALL_LEDGER_URL")
	return f
}

// named returns the flag or variable that names a ledger, or "".
func (f *ledgerFlags) named() string {
	switch {
	case f.url != "":
		return "--ledger"
	case f.node.config != "":
		return "--config"
	case f.node.environ.value("ROLLCALL_LEDGER_URL") != "":
		return "ROLLCALL_LEDGER_URL"
	}
	return ""
}

// at calls ask with the named node, or own with the configuration of the named ledger. If neither is named, it tries
// the node of this machine and, if that does not run, its ledger. Naming both is an error.
func (f *ledgerFlags) at(ask func(*client.Admin, reading) error, own func(config.Config, reading) error) error {
	ledger, node := f.named(), f.node.namedBy()
	if ledger != "" && node != "" {
		return term.UsageError(fmt.Sprintf("%s names a ledger and %s names a node, which may work on another one: give "+
			"only one of them",
			ledger, node))
	}
	if ledger == "" {
		asked, err := f.node.client()
		if err != nil {
			return err
		}
		if err = ask(asked, reading{Node: asked.Base}); !errors.Is(err, client.ErrNoNode) || node != "" {
			return err
		}
	}
	return f.itself(own)
}

// itself calls own with the configuration of the ledger, even if a node is named.
func (f *ledgerFlags) itself(own func(config.Config, reading) error) error {
	loaded, err := f.node.load()
	if err != nil {
		return err
	}
	if f.url != "" {
		loaded.Ledger.URL = f.url
	}
	return own(loaded, reading{Ledger: ledgerName(loaded.Ledger.URL)})
}

// read is at, but opens the ledger for own.
func (f *ledgerFlags) read(ctx context.Context, ask func(*client.Admin, reading) error,
	own func(*sqlstore.Store, config.Config, reading) error) error {
	return f.at(ask, opened(ctx, own))
}

// fromLedger opens the ledger and calls own, for commands that no node can answer.
func (f *ledgerFlags) fromLedger(c *cobra.Command, own func(*sqlstore.Store, config.Config, reading) error) error {
	if c.Flags().Changed("admin") {
		return term.UsageError("this reads a ledger and asks no node: give --ledger or --config in place of --admin")
	}
	return f.itself(opened(c.Context(), own))
}

// opened wraps own so that it gets the ledger opened for reading.
func opened(ctx context.Context, own func(*sqlstore.Store, config.Config, reading) error) func(config.Config,
	reading) error {
	return func(c config.Config, at reading) error {
		book, err := sqlstore.OpenReadOnly(ctx, c.Ledger.URL, sqlstore.Options{})
		if err != nil {
			return err
		}
		return errors.Join(own(book, c, at), book.Close())
	}
}

// adminCommand makes c a command for operators. call sends the request to the node, and the answer is shown as by
// answerWith.
func adminCommand[T any](node *adminFlags, c *cobra.Command, call func(to *client.Admin, args []string) (T, error),
	show func(b *term.Page, answer T)) *cobra.Command {
	return answerWith(c, func(args []string) (answer T, err error) {
		to, err := node.client()
		if err != nil {
			return answer, err
		}
		return call(to, args)
	}, show)
}

// answerWith makes c a command that computes an answer from its arguments, and shows it or with --json prints it as
// JSON. If the answer has a method failsWith, the command then ends with that method's error.
func answerWith[T any](c *cobra.Command, find func(args []string) (T, error),
	show func(b *term.Page, answer T)) *cobra.Command {
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		answer, err := find(args)
		if err != nil {
			return err
		}
		if *asJSON {
			err = term.PrintJSON(c.OutOrStdout(), answer)
		} else {
			b := term.NewPage(c.OutOrStdout())
			show(b, answer)
			err = b.Emit()
		}
		if of, may := any(answer).(interface{ failsWith() error }); may && err == nil {
			err = of.failsWith()
		}
		return err
	}
	return c
}
