package effort

import (
	"os"
	"testing"
)

// memory is where Linux has files in memory.
const memory = "/dev/shm"

// Folder returns a test a folder of its own, which is removed when the test ends. It is
// in memory where the machine has a place for that, so it suits a ledger in a test
// that is not about the disk: a disk that others use too takes seconds for one write.
func Folder(t testing.TB) string {
	t.Helper()
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	path, err := os.MkdirTemp(memory, "rollcall-test-")
	if err != nil {
		return t.TempDir() // memory is full, or not ours
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Errorf("remove the folder of the test: %v", err)
		}
	})
	return path
}
