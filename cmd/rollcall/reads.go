package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/ledger/sqlstore"
)

// reading is whom a command asked: a node, or a ledger that it read itself. What it tells is true of that one.
type reading struct {
	Node   string `json:"node,omitempty"`   // its admin listener
	Ledger string `json:"ledger,omitempty"` // its URL, without a password
	Here   bool   `json:"here,omitempty"`   // no node: the command looked around on this machine
}

// String is the reading for the first line of a report.
func (r reading) String() string {
	switch {
	case r.Node != "":
		return "the node at " + r.Node
	case r.Here:
		return "this machine, where the node does not run"
	}
	return "the ledger " + r.Ledger
}

// ledgerName is the URL of a ledger as it may be shown: without a password, and without settings that may hold one.
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

// ledgerFlags say where a command reads that can ask a node, and read a ledger itself.
type ledgerFlags struct {
	node *adminFlags
	url  string // of --ledger
}

// addLedgerFlags adds --ledger beside the flags that name a node.
func addLedgerFlags(c *cobra.Command, e environment) *ledgerFlags {
	f := &ledgerFlags{node: addAdminFlags(c, e)}
	c.PersistentFlags().StringVar(&f.url, "ledger", "", "read this ledger itself, whatever node runs here; also that of "+
		"--config, or ROLLCALL_LEDGER_URL")
	return f
}

// named says by what a ledger is named; "" when none is.
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

// at calls ask with a node or own with the configuration of a ledger: with the one that is named; when none is, with
// the node of this machine and, when it does not run, with its ledger. Naming both is refused.
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

// itself calls own with the configuration of the ledger, whatever node is named.
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

// read is at, with own given the ledger itself, open for reading.
func (f *ledgerFlags) read(ctx context.Context, ask func(*client.Admin, reading) error,
	own func(*sqlstore.Store, config.Config, reading) error) error {
	return f.at(ask, opened(ctx, own))
}

// opened is own given the ledger itself, open for reading.
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
