package effort

import (
	"os"
	"testing"
)

// memory is where Linux has files in memory.
const memory = "/dev/shm"

// Folder gives a test a folder of its own, in memory where the machine has one to lie
// in: for a ledger in a test that is not about the disk, which may keep it waiting for
// seconds. It is removed when the test ends.
func Folder(t testing.TB) string {
	t.Helper()
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	path, err := os.MkdirTemp(memory, "rollcall-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
	return path
}
