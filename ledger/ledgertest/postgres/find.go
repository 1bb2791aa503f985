package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"rollcall/config/effort"
)

// VersionMin is the oldest major version taken: the ledger's promise.
const VersionMin = 15

// debianFolders is where Debian and its kin put the server, which is not in PATH.
const debianFolders = "/usr/lib/postgresql/*/bin"

// version finds the major version in the answer to postgres --version.
var version = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// find returns the folder of initdb and postgres: that of PATH, else the newest of those that match usual. ErrMissing.
func find(ctx context.Context, usual string) (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && major(ctx, filepath.Dir(path)) >= VersionMin {
			return filepath.Dir(path), nil
		}
	}
	folders, err := filepath.Glob(usual)
	if err != nil {
		return "", err
	}
	best, newest := "", VersionMin-1
	for _, folder := range folders {
		if v := major(ctx, folder); v > newest {
			best, newest = folder, v
		}
	}
	if best == "" {
		return "", fmt.Errorf("%w in PATH or %s (%d or newer is needed)", ErrMissing, usual, VersionMin)
	}
	return best, nil
}

// major is the version of the server in folder; 0 when there is none, or no initdb.
func major(ctx context.Context, folder string) int {
	if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
		return 0
	}
	out, err := exec.CommandContext(ctx, filepath.Join(folder, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	m := version.FindSubmatch(out)
	if m == nil {
		return 0
	}
	v, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return 0
	}
	return v
}

// owner is the user of the server; nil: our own.
func owner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("no unprivileged user to run postgresql as: %w", errors.Join(errs...))
}

// shared is the one server of a run of a package's tests, started when it is first asked for.
var shared = sync.OnceValues(func() (*Server, error) {
	return Start(context.Background(), Options{})
})

// used reports whether there is one to stop; databases counts those made on it.
var (
	used      atomic.Bool
	databases atomic.Int64
)

// Main runs the tests of a package that use Shared, and ends its server. Unless there are benchmarks, which measure
// disks too, files are in memory: no such test is about the disk, since a process may die, and not the machine.
func Main(m *testing.M) int {
	effort.CollectSeldom()
	measures := flag.Lookup("test.bench").Value.String() != ""
	if info, err := os.Stat(memory); err == nil && info.IsDir() && !measures && os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", memory); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	code := m.Run()
	if used.Load() {
		if s, err := shared(); err == nil {
			if err := s.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stop postgresql:", err)
				code = 1
			}
		}
	}
	return code
}

// Shared returns the server of this run. Without PostgreSQL on this machine the
// test is skipped, or fails when ROLLCALL_REQUIRE_POSTGRES is 1.
func Shared(t testing.TB) *Server {
	t.Helper()
	effort.Children(t)
	used.Store(true)
	s, err := shared()
	if errors.Is(err, ErrMissing) && os.Getenv(requireVariable) != "1" {
		t.Skipf("skipped: %v", err)
	}
	effort.OK(t, err)
	return s
}

// Empty returns the URL of an empty database on the server of this run.
func Empty(t testing.TB) string {
	t.Helper()
	return Shared(t).NewDatabase(t, "empty"+strconv.FormatInt(databases.Add(1), 10), "")
}

// template is a database that was filled once, for copies.
var template struct {
	once sync.Once
	err  error
}

// Filled returns the URL of a new copy of a database that fill has made once in this run.
func Filled(t testing.TB, fill func(ctx context.Context, url string) error) string {
	t.Helper()
	const name = "filled"
	s := Shared(t)
	template.once.Do(func() {
		if template.err = s.Create(context.Background(), name, ""); template.err == nil {
			template.err = fill(context.Background(), s.URL(name))
		}
	})
	effort.FatalIf(t, template.err != nil, "%v", template.err)
	return s.NewDatabase(t, "copy"+strconv.FormatInt(databases.Add(1), 10), name)
}
