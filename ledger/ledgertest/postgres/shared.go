package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"rollcall/config/effort"
)

// shared is the one server of a run of a package's tests, started when it is first asked for.
var shared = sync.OnceValues(func() (*Server, error) {
	return Start(context.Background(), Options{TCP: true})
})

// used reports whether there is one to stop; databases counts those made on it.
var (
	used      atomic.Bool
	databases atomic.Int64
)

// Main runs the tests of a package that use Shared, and ends its server. Unless there are benchmarks, which measure
// disks too, files are in memory: no such test is about the disk, since a process may die, and not the machine.
func Main(m *testing.M) int {
	flag.Parse()
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
	if err != nil {
		t.Fatal(err)
	}
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
	if template.err != nil {
		t.Fatal(template.err)
	}
	return s.NewDatabase(t, "copy"+strconv.FormatInt(databases.Add(1), 10), name)
}
