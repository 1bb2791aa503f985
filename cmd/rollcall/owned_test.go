package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestANodeRefusesAFolderThatOthersWrite in one line, before it makes anything there.
func TestANodeRefusesAFolderThatOthersWrite(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	folder := filepath.Join(c.folder, "rollcall-data")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o775); err != nil {
		t.Fatal(err)
	}
	c.environ = []string{"ROLLCALL_HTTP_LISTEN=127.0.0.1:0", "ROLLCALL_UPLOAD_LISTEN=127.0.0.1:0",
		"ROLLCALL_ADMIN_LISTEN=127.0.0.1:0"}
	code, _, stderr := c.run("serve")
	made, err := os.ReadDir(folder)
	if code != exitFailed || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr,
		"has mode 0775; run: chmod go-w ") ||
		err != nil || len(made) > 0 {
		t.Errorf("got code %d and %q; made %v, %v", code, stderr, made, err)
	}
}
