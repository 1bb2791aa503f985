package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
)

// adminDefault is where a node's admin listener is when nothing else is said.
const adminDefault = "http://127.0.0.1:8081"

// installedConfig is the configuration of the node that is installed on a machine, as deploy/ has it.
const installedConfig = "/etc/rollcall/rollcall.toml"

// adminFlags are the flags of every command that speaks to a node.
type adminFlags struct {
	environ    environment
	url, token string
	config     string // file of the node's configuration
	installed  string // the one to use when nothing else says where the node is; "": none
	by         string // who makes changes
}

// addAdminFlags adds --admin, --config and --token to a command and its subcommands.
func addAdminFlags(c *cobra.Command, e environment) *adminFlags {
	f := &adminFlags{environ: e, installed: installedConfig}
	c.PersistentFlags().StringVar(&f.url, "admin", "", "the node's admin listener, a URL or unix:PATH; also "+
		"ROLLCALL_ADMIN (default: as the configuration has it, else "+adminDefault+")")
	c.PersistentFlags().StringVar(&f.config, "config", "", "the node's configuration file (default: "+installedConfig+
		" if it is there and the environment names no node)")
	c.PersistentFlags().StringVar(&f.token, "token", "", "its token; also ROLLCALL_ADMIN_TOKEN (default: "+
		"DATA_DIR/admin.token)")
	c.PersistentFlags().StringVar(&f.by, "author", "", "who you are, for the operator log; also ROLLCALL_AUTHOR "+
		"(default: your user name and host)")
	return f
}

// author is who makes the changes of a command, for the operator log.
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
		if !admin.AuthorFits(author) { // nobody has chosen it
			author = ""
		}
	}
	if !admin.AuthorFits(author) {
		return "", term.UsageError(fmt.Sprintf("--author must have at most %d bytes, all printable", admin.AuthorMax))
	}
	return author, nil
}

// namedBy says by what the operator has named the node to ask; "" when by nothing.
func (f *adminFlags) namedBy() string {
	switch {
	case f.url != "":
		return "--admin"
	case f.environ.value("ROLLCALL_ADMIN") != "":
		return "ROLLCALL_ADMIN"
	}
	return ""
}

// load reads the configuration of the node: of the file that is named, else of the environment, else of the one that
// is installed here.
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

// whereabouts are the settings of the environment that say where a node is, or its ledger.
var whereabouts = []string{"ROLLCALL_ADMIN_LISTEN", "ROLLCALL_DATA_DIR", "ROLLCALL_LEDGER_URL"}

// client makes a client from flags, environment and configuration.
func (f *adminFlags) client() (*client.Admin, error) {
	if f.url != "" && f.config != "" {
		return nil, term.UsageError("--admin and --config name a node each: give only one of them")
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

// checkAdmin refuses what is neither a base URL nor a unix socket.
func checkAdmin(base string) error {
	if path, unix := strings.CutPrefix(base, config.UnixPrefix); unix && path != "" {
		return nil
	}
	return checkBase("--admin", base, adminDefault)
}

// checkBase refuses what is no base URL; such is one for the message.
func checkBase(flag, base, such string) error {
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return term.UsageError(fmt.Sprintf("%s %q is not a URL: write one such as %s", flag, base, such))
	}
	return nil
}
