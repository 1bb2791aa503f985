package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cluster"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// backupView is the result of a backup, for programs.
type backupView struct {
	Read  reading `json:"read"`
	File  string  `json:"file"`
	Bytes int64   `json:"bytes"`
	Took  float64 `json:"took_seconds"`
}

func newBackup(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the embedded ledger to FILE while the node works",
		Long: "Copy the embedded ledger to FILE while the node works. docs/operators/operations.md has the restore.\n\n" +
			"A named ledger is copied directly. Without one the node of this machine is asked or, when it does not run,\n" +
			"its ledger is copied. The first line says which.\n" +
			"FILE is made here, for you alone to read, and gets its name only when it is complete and checked; nothing\n" +
			"is overwritten. It holds addresses and the key of upload URLs: keep it as safe as the ledger itself.",
		Args: wantArgs("FILE"),
	}
	from := addLedgerFlags(c, e)
	return answerWith(c, func(args []string) (view backupView, err error) {
		began := time.Now()
		read, err := backup(c.Context(), from, args[0])
		if err != nil {
			return view, err
		}
		info, err := os.Stat(args[0])
		if err != nil {
			return view, fmt.Errorf("look at the backup: %w", err)
		}
		return backupView{Read: read, File: args[0], Bytes: info.Size(), Took: time.Since(began).Seconds()}, nil
	}, func(w io.Writer, view backupView) error {
		_, err := fmt.Fprintf(w, "copied %s\n%s: %s bytes in %.1f s, checked\n", view.Read, view.File,
			term.Grouped(view.Bytes), view.Took)
		return err
	})
}

// backup makes path.part and renames it to path when it is complete; it returns whose backup it is.
func backup(ctx context.Context, from *ledgerFlags, path string) (read reading, err error) {
	part := path + ".part"
	if _, err := os.Lstat(path); err == nil {
		return read, fmt.Errorf("%s: %w", path, sqlstore.ErrBackupExists)
	}
	if _, err := os.Lstat(part); err == nil {
		return read, fmt.Errorf("%s exists: another backup is writing it, or was cut short; then delete it", part)
	}
	err = from.read(ctx, func(client *client.Admin, at reading) error {
		read = at
		return client.Backup(ctx, part)
	}, func(book *sqlstore.Store, _ config.Config, at reading) error {
		read = at
		return book.Backup(ctx, part)
	})
	if err != nil {
		return read, err
	}
	if err := nameOnce(part, path); err != nil {
		return read, errors.Join(err, os.Remove(part))
	}
	return read, syncFolder(filepath.Dir(path))
}

// nameOnce gives the file part its name. A mere rename would replace a file that appeared at path meanwhile, so it
// first reserves the name with an empty file.
func nameOnce(part, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", path, sqlstore.ErrBackupExists)
	}
	if err == nil {
		err = errors.Join(f.Close(), os.Rename(part, path))
	}
	if err != nil {
		return fmt.Errorf("give the backup its name: %w", err)
	}
	return nil
}

// syncFolder makes the names in a folder durable.
func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("sync %s: %w", name, err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", name, err)
	}
	return nil
}

// errNotRenewed ends an unconfirmed renewal.
var errNotRenewed = errors.New("nothing was renewed")

func newLedger(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use:   "ledger",
		Short: "Give a copy of a ledger an identity of its own",
		Long:  "Give a copy of a ledger an identity of its own.",
	})
	c.AddCommand(newLedgerRenew(e))
	return c
}

// renewalView is the result of a renewal, for programs.
type renewalView struct {
	Ledger string    `json:"ledger"` // its URL, without a password
	Was    uuid.UUID `json:"was"`
	Is     uuid.UUID `json:"is"`
}

func newLedgerRenew(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "renew --reason TEXT",
		Short: "Give a ledger a new identity, so that its nodes stay apart from those of the original",
		Long: "Give a ledger a new identity, so that its nodes stay apart from those of the original.\n\n" +
			"A copy of a ledger has the identity of the original. Nodes tell ledgers apart by it: those of the copy\n" +
			"would join the cluster of the original. Renew a copy that runs beside the original, before its\n" +
			"first node starts. A copy in the place of a lost original needs no new identity; a new one does no harm.\n\n" +
			"It asks no node, and works on the ledger of the configuration with its owner's URL, as `rollcall migrate` does.\n" +
			"It also removes the rows of nodes. It refuses while a node works on the ledger, and for 10\n" +
			"seconds after one did. Nodes of a renewed ledger must not have run before: stop them first.",
		Example: "  ROLLCALL_LEDGER_URL=postgres://rollcall_owner@db/rehearsal rollcall ledger renew --reason 'copy for a " +
			"rehearsal'",
		Args: wantArgs(),
	}
	file := configFlag(c)
	reason := c.Flags().String("reason", "", "why, for the operator log; required")
	yes := c.Flags().Bool("yes", false, "do not ask")
	return answerWith(c, func([]string) (view renewalView, err error) {
		if *reason == "" {
			return view, term.UsageError("--reason is missing: write why, for whoever reads the operator log later")
		}
		loaded, err := config.Load(*file, e)
		if err != nil {
			return view, err
		}
		author, err := (&adminFlags{environ: e}).author()
		if err != nil {
			return view, err
		}
		name := ledgerName(loaded.Ledger.URL)
		if !*yes {
			if !term.IsTerminal(c.InOrStdin()) {
				return view, term.UsageError("there is no terminal to ask at: give --yes to renew the ledger " + name)
			}
			question := fmt.Sprintf("The ledger %s gets a new identity. Nodes that know the old one are refused.\nRenew it? "+
				"[y/N] ", name)
			if err := term.Confirm(c.InOrStdin(), c.ErrOrStderr(), question, errNotRenewed); err != nil {
				return view, err
			}
		}
		view.Ledger = name
		view.Was, view.Is, err = renew(ledger.WithAuthor(c.Context(), author), loaded.Ledger.URL, *reason)
		return view, err
	}, func(w io.Writer, view renewalView) error {
		_, err := fmt.Fprintf(w, "the ledger %s has a new identity:\n%s, was %s\n", view.Ledger, view.Is, view.Was)
		return err
	})
}

// renew gives the ledger at a URL a new identity.
func renew(ctx context.Context, url, reason string) (was, is uuid.UUID, err error) {
	book, err := sqlstore.Open(ctx, url, sqlstore.Options{})
	if err != nil {
		return was, is, err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	if book.Embedded() {
		return was, is, errors.New("an embedded ledger has one node, which compares its identity with nobody: there is " +
			"nothing to renew")
	}
	was, is, err = book.RenewIdentity(ctx, cluster.DefaultTimes().Lost, reason)
	if errors.Is(err, ledger.ErrNodeAlive) {
		err = fmt.Errorf("%w. Stop all nodes of this ledger, wait for 10 seconds, and renew it again", err)
	}
	return was, is, err
}

func newMigrate(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the ledger's schema up to date; safe to run again",
		Args:  wantArgs(),
	}
	file := configFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := config.Load(*file, e)
		if err != nil {
			return err
		}
		tell := func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
		if err := sqlstore.Migrate(c.Context(), loaded.Ledger.URL, tell); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), "the ledger's schema is up to date")
		return nil
	}
	return c
}
