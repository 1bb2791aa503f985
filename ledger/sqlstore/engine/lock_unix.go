//go:build unix

package engine

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock locks the file at path until the returned file is closed or the process ends. ErrInUse when another process
// or Store has the lock.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	// An flock belongs to the open file. So it also excludes another Store of the same process, and the kernel drops
	// it when the process ends.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		closed := f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), closed)
	}
	return f, nil
}
