package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"rollcall/http/admin"
	"rollcall/ledger/sqlstore"
)

// Backup has the node's copy sent to the new file part, and checks it. After an
// error there is no file of ours.
func (c *Admin) Backup(ctx context.Context, part string) (err error) {
	answer, err := c.Do(ctx, http.MethodGet, "/v1/backup", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.Header.Get("Content-Type") != admin.BackupType {
		return c.Stranger()
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
