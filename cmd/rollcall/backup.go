package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/ledger/sqlstore"
)

// backupView is what a backup tells programs.
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
			"A ledger that is named is copied itself; when none is, the node of this machine is asked, and its ledger is\n" +
			"copied when it does not run. The first line says which it was.\n" +
			"FILE is made here, for you alone to read, and has its name only when it is whole and checked; nothing\n" +
			"is overwritten. It holds addresses, and what signs upload URLs: keep it as safe as the ledger itself.",
		Args: wantArgs("FILE"),
	}
	from, asJSON := addLedgerFlags(c, e), jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		began := time.Now()
		read, err := backup(c.Context(), from, args[0])
		if err != nil {
			return err
		}
		info, err := os.Stat(args[0])
		if err != nil {
			return fmt.Errorf("look at the backup: %w", err)
		}
		view := backupView{Read: read, File: args[0], Bytes: info.Size(), Took: time.Since(began).Seconds()}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), view)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "copied %s\n%s: %s bytes in %.1f s, checked\n", read, view.File,
			term.Grouped(view.Bytes),
			view.Took)
		return err
	}
	return c
}

// backup makes the file at path, as path.part first, which gets its name when it is whole; and says of what it is.
func backup(ctx context.Context, from *ledgerFlags, path string) (read reading, err error) {
	part := path + ".part"
	if _, err := os.Lstat(path); err == nil {
		return read, fmt.Errorf("%s: %w", path, sqlstore.ErrBackupExists)
	}
	if _, err := os.Lstat(part); err == nil {
		return read, fmt.Errorf("%s is there: another backup writes it now, or one was cut short; then delete it", part)
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

// nameOnce gives the file part its name. A rename alone would replace what came to
// be at path meanwhile, so an empty file of ours takes the name first.
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
