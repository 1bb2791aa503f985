package effort

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// memory is Linux's folder for files in memory.
const memory = "/dev/shm"

// Folder returns a folder for one test, removed when the test ends. It is in memory if the machine allows that: on a
// shared disk one write can take seconds. Use it for tests that are not about the disk.
func Folder(t testing.TB) string {
	t.Helper()
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	path, err := os.MkdirTemp(memory, "rollcall-test-")
	if err != nil {
		return t.TempDir() // the folder in memory is full, or not writable for us
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Errorf("remove the folder of the test: %v", err)
		}
	})
	return path
}

// empty is the embedded ledger that Ledger copies, migrated once a run.
var empty struct {
	sync.Once
	content []byte
	err     error
}

// Ledger returns the URL of an empty embedded ledger, which is removed when the test ends. It is a copy of a ledger
// that migrate (sqlstore.Migrate) made once in this run.
func Ledger(t testing.TB, migrate func(ctx context.Context, url string, tell ...func(line string)) error) string {
	t.Helper()
	path := filepath.Join(Folder(t), "ledger.db")
	empty.Do(func() {
		if empty.err = migrate(context.Background(), "sqlite:"+path); empty.err == nil {
			empty.content, empty.err = os.ReadFile(path)
		}
	})
	err := empty.err
	if err == nil {
		err = os.WriteFile(path, empty.content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}
