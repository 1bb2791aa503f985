package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/http/admin"
)

// TestWhatTheNodeKeepsIsItsOwn: folder and token must belong to the process's user, and
// nobody else may write them; the error says the command that mends it.
func TestWhatTheNodeKeepsIsItsOwn(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	token := filepath.Join(folder, admin.TokenFile)
	effort.ErrIs(t, checkOwned(folder), nil, "a folder that is not there yet")
	effort.OK(t, os.Mkdir(folder, 0o700))
	effort.ErrIs(t, checkOwned(folder), nil, "a folder without a token")
	effort.OK(t, os.WriteFile(token, []byte("secret"), 0o600))
	for _, c := range []struct {
		path string
		mode os.FileMode
		ok   bool
	}{
		{folder, 0o700, true}, {folder, 0o755, true}, {folder, 0o770, false}, {folder, 0o702, false}, {folder, 0o700, true},
		{token, 0o400, true}, {token, 0o620, false}, {token, 0o602, false}, {token, 0o600, true},
	} {
		effort.OK(t, os.Chmod(c.path, c.mode))
		err := checkOwned(folder)
		effort.ErrorIf(t, c.ok != (err == nil) || !c.ok &&
			(!errors.Is(err, errNotOurs) || !strings.Contains(err.Error(), "run: chmod go-w "+c.path)),
			"%s with mode %04o: %v", c.path, c.mode, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	for _, path := range []string{token, folder} {
		effort.OK(t, os.Chown(path, 12345, -1))
		if err := checkOwned(folder); !errors.Is(err, errNotOurs) || !strings.Contains(err.Error(), "run: chown 0 "+path) {
			t.Errorf("%s of another user: %v", path, err)
		}
	}
}
