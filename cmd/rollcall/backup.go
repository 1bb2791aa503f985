package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger/sqlstore"
)

// backupView is what a backup tells programs.
type backupView struct {
	File  string  `json:"file"`
	Bytes int64   `json:"bytes"`
	Took  float64 `json:"took_seconds"`
}

func newBackup(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the embedded ledger to FILE while the node works",
		Long: "Copy the embedded ledger to FILE while the node works. docs/operations.md has the restore.\n\n" +
			"Asks the running node if one answers at the admin address, and otherwise reads the embedded ledger.\n" +
			"FILE is made here, for you alone to read, and has its name only when it is whole and checked; nothing\n" +
			"is overwritten. It holds addresses, and what signs upload URLs: keep it as safe as the ledger itself.",
		Args: wantArgs("FILE"),
	}
	node, file, asJSON := addAdminFlags(c, e), configFlag(c), jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		began := time.Now()
		if err := backup(c.Context(), node, *file, args[0]); err != nil {
			return err
		}
		info, err := os.Stat(args[0])
		if err != nil {
			return fmt.Errorf("look at the backup: %w", err)
		}
		view := backupView{File: args[0], Bytes: info.Size(), Took: time.Since(began).Seconds()}
		if *asJSON {
			return printJSON(c.OutOrStdout(), view)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s bytes in %.1f s, checked\n", view.File, grouped(view.Bytes),
			view.Took)
		return err
	}
	return c
}

// backup makes the file at path: as path.part first, which gets its name when it is whole.
func backup(ctx context.Context, node *adminFlags, configFile, path string) (err error) {
	part := path + ".part"
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, sqlstore.ErrBackupExists)
	}
	if _, err := os.Lstat(part); err == nil {
		return fmt.Errorf("%s is there: another backup writes it now, or one was cut short; then delete it", part)
	}
	client, err := node.client()
	if err != nil {
		return err
	}
	err = client.backup(ctx, part)
	if errors.Is(err, errNoNode) && !node.named() {
		err = backupFile(ctx, node.environ, configFile, part)
	}
	if err != nil {
		return err
	}
	if err := nameOnce(part, path); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return syncFolder(filepath.Dir(path))
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

// backupFile copies the embedded ledger that no node has open.
func backupFile(ctx context.Context, e environment, configFile, part string) error {
	loaded, err := config.Load(configFile, e)
	if err != nil {
		return err
	}
	book, err := sqlstore.OpenReadOnly(ctx, loaded.Ledger.URL, sqlstore.Options{})
	if err != nil {
		return err
	}
	return errors.Join(book.Backup(ctx, part), book.Close())
}

// backup has the node's copy sent to the new file part, and checks it. After an
// error there is no file of ours.
func (c *adminClient) backup(ctx context.Context, part string) (err error) {
	answer, err := c.do(ctx, http.MethodGet, "/v1/backup", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.Header.Get("Content-Type") != admin.BackupType {
		return c.stranger()
	}
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	_, err = io.Copy(f, answer.Body)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return sqlstore.CheckBackup(ctx, part)
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
