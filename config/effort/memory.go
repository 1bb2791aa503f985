package effort

import (
	"os"
	"testing"
)

// memory is a file system without a disk, on Linux.
const memory = "/dev/shm"

// Memory gives a folder that is removed with the test, in memory where there is one
// to lie in: for databases of which the disk is not the subject. A disk that others
// use too takes seconds for what a test waits for.
func Memory(t testing.TB) string {
	t.Helper()
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	path, err := os.MkdirTemp(memory, "rollcall-test-")
	if err != nil {
		return t.TempDir() // it is full, or not ours
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Errorf("remove the folder of the test: %v", err)
		}
	})
	return path
}
