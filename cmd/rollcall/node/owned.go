package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"rollcall/http/admin"
)

// errNotOurs is a folder or file that somebody else could have written.
var errNotOurs = errors.New("others can change what this node keeps")

// writableByOthers are the mode bits of group and others.
const writableByOthers = 0o022

// checkOwned wants the data folder and the operator's token, where they are there, to be
// this user's, and nobody else to write them. Its error has the command that mends it.
func checkOwned(dataDir string) error {
	for _, path := range []string{dataDir, filepath.Join(dataDir, admin.TokenFile)} {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at the data folder: %w", err)
		}
		user := os.Geteuid()
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != user {
			return fmt.Errorf("%w: %s belongs to user %d, and this is user %d; run: chown %d %s (or start the node as "+
				"user %d)", errNotOurs, path, owner.Uid, user, user, path, owner.Uid)
		}
		if mode := info.Mode().Perm(); mode&writableByOthers != 0 {
			return fmt.Errorf("%w: %s has mode %04o; run: chmod go-w %s", errNotOurs, path, mode, path)
		}
	}
	return nil
}
