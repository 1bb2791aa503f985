package effort

import (
	"context"
	"os"
	"path/filepath"
	"sync"
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

// empty is the embedded ledger that was migrated once in this run.
var empty struct {
	sync.Once
	content []byte
	err     error
}

// Ledger returns the URL of an empty embedded ledger, which goes with the test: a copy of one that migrate
// (sqlstore.Migrate) has made once in this run.
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
