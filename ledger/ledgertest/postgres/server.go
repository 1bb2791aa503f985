package postgres

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
)

const (
	// ConnectionsMax is how many connections a server takes at once. Enough for
	// some stores with full pools and the histories beside them. Guess.
	ConnectionsMax = 250
	// superuser is the one user of a server.
	superuser = "rollcall"
	// portsMax bounds the ports tried, since another process may take one that was free a moment ago.
	portsMax = 3
	// startMax bounds the wait for a server: a start takes half a second, after a crash a second.
	startMax = 90 * time.Second
	// stopMax bounds the wait for an immediate stop, before SIGKILL.
	stopMax = 30 * time.Second
)

// Options say how a server is started. The zero value is complete.
type Options struct {
	// Durable has the files on the disk of temporary files, where a commit takes as long
	// as it takes a real server: for benchmarks. Without it they are in memory where the
	// machine has a place for that: each commit is synced all the same, and takes no time.
	Durable bool
}

// Server is a running PostgreSQL. Safe for concurrent use.
type Server struct {
	options Options
	folder  string // of everything; removed by Stop
	bin     string
	runAs   *syscall.Credential
	port    int

	mu      sync.Mutex
	running *process // nil: crashed, or stopped; guarded by mu
	frozen  *freeze  // nil: not paused; guarded by mu
	stopped bool     // guarded by mu
}

// Start makes a new database cluster (locale C, UTF-8) and starts a server for
// it; ctx bounds the start only. The caller stops it. ErrMissing, ErrStart.
func Start(ctx context.Context, o Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	bin, err := find(ctx, debianFolders)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, bin: bin}
	if s.runAs, err = owner(); err != nil {
		return nil, err
	}
	if s.folder, err = newFolder(s.runAs, o.Durable); err != nil {
		return nil, err
	}
	if err = s.initialise(ctx); err == nil {
		err = s.launchFirst(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.folder))
	}
	return s, nil
}

// memory is Linux's file system in memory.
const memory = "/dev/shm"

// newFolder makes the folder of a server, which its user may enter.
func newFolder(runAs *syscall.Credential, durable bool) (string, error) {
	parent := os.TempDir()
	if info, err := os.Stat(memory); err == nil && info.IsDir() && !durable {
		parent = memory
	}
	folder, err := os.MkdirTemp(parent, "rollcall-pg-")
	if err != nil || runAs == nil {
		return folder, err
	}
	return folder, os.Chown(folder, int(runAs.Uid), int(runAs.Gid))
}

// command is a program of the server, run as its user in its folder, without the PG variables of the environment.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.folder
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH"), "HOME=" + s.folder}
	cmd.SysProcAttr = attributes(s.runAs)
	return cmd
}

// data is the folder of the database cluster.
func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// initialise makes the database cluster.
func (s *Server) initialise(ctx context.Context) error {
	var out bytes.Buffer
	cmd := s.command("initdb", "--pgdata="+s.data(), "--username="+superuser, "--auth=trust",
		"--no-locale", "--encoding=UTF8", "--no-sync", "--no-instructions")
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := run(cmd)
	if err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("initdb: %w", ctx.Err()), p.kill())
	}
	if p.err != nil {
		return fmt.Errorf("initdb: %w: %w: %s", ErrStart, p.err, out.String())
	}
	return nil
}

// launchFirst launches a new server, on a port that it keeps.
func (s *Server) launchFirst(ctx context.Context) (err error) {
	for range portsMax {
		if s.port, err = freePort(ctx); err != nil {
			return err
		}
		if err = s.launch(ctx); err == nil {
			return nil
		}
	}
	return err
}

// launch starts the server on the cluster and waits until it takes connections.
func (s *Server) launch(ctx context.Context) error {
	settings := map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(s.port), "unix_socket_directories": "",
		"max_connections": strconv.Itoa(ConnectionsMax), "shared_buffers": "64MB",
		"max_wal_size": "1GB", "logging_collector": "off",
		"log_destination": "stderr",
	}
	if !s.options.Durable {
		// No test lives so long that it would help, and with many databases it is a load.
		settings["autovacuum"] = "off"
	}
	args := []string{"-D", s.data()}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	log := &tail{phrase: "database system is ready to accept connections", seen: make(chan struct{})}
	cmd := s.command("postgres", args...)
	cmd.Stderr = log
	p, err := run(cmd)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	select {
	case <-log.seen:
		s.running = p
		return nil
	case <-p.ended:
		return fmt.Errorf("%w: %w: %s", ErrStart, p.err, log.String())
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%w: %w: %s", ErrStart, ctx.Err(), log.String()), p.kill())
	}
}

// freePort is a port of 127.0.0.1 that nobody has at this moment.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// URL is a connection string for database ("postgres" always exists).
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", superuser, s.Address(), database)
}

// Address is where the server listens.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Create makes the database name as a copy of template, which must have no connections; an empty template is
// PostgreSQL's own.
func (s *Server) Create(ctx context.Context, name, template string) error {
	if template == "" {
		template = "template1"
	}
	return s.administer(ctx, "CREATE DATABASE "+quoted(name)+" TEMPLATE "+quoted(template))
}

// administer runs one statement on the database postgres.
func (s *Server) administer(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// quoted is name as an identifier of SQL.
func quoted(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// Pause freezes the server: connections are taken and nothing is answered.
// Should the test binary die meanwhile, the server wakes and ends. ErrState.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil || s.frozen != nil {
		return ErrState
	}
	var err error
	s.frozen, err = s.running.freeze()
	return err
}

// Resume ends a pause. ErrState.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == nil {
		return ErrState
	}
	return s.thaw()
}

// thaw ends a pause. mu is held.
func (s *Server) thaw() error {
	f := s.frozen
	s.frozen = nil
	return f.end()
}

// Crash ends the server as a power cut would, paused or not: its connections
// break, new ones are refused until Restart. What was committed stays. ErrState.
func (s *Server) Crash() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return ErrState
	}
	return s.end()
}

// end kills the running server. mu is held.
func (s *Server) end() error {
	var err error
	if s.frozen != nil {
		err = s.thaw()
	}
	p := s.running
	s.running = nil
	return errors.Join(err, p.stop())
}

// Restart starts a crashed server again, on the same port. ErrState, ErrStart.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil || s.stopped {
		return ErrState
	}
	return s.launch(ctx)
}

// Stop ends the server, whatever its state, and removes its folder. It may be called twice.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	var err error
	if s.running != nil {
		err = s.end()
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// requireVariable makes a missing PostgreSQL a failure, as on a CI machine.
const requireVariable = "ROLLCALL_REQUIRE_POSTGRES"

// New starts a server that ends with the test. Without a PostgreSQL on this machine the test is skipped, or fails when
// ROLLCALL_REQUIRE_POSTGRES is 1. A short run starts none.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	effort.Children(t)
	s, err := Start(t.Context(), o)
	if errors.Is(err, ErrMissing) && os.Getenv(requireVariable) != "1" {
		t.Skipf("skipped: %v", err)
	}
	effort.OK(t, err)
	t.Cleanup(func() { effort.OK(t, s.Stop()) })
	return s
}

// NewDatabase makes a database that goes with the test, as a copy of template
// ("" is PostgreSQL's own), and returns its URL.
func (s *Server) NewDatabase(t testing.TB, name, template string) string {
	t.Helper()
	effort.OK(t, s.Create(t.Context(), name, template))
	return s.URL(name)
}

var (
	// ErrMissing: this machine has no PostgreSQL of VersionMin or newer.
	ErrMissing = errors.New("no postgresql found")
	// ErrStart: the server did not start; the error holds the end of its log.
	ErrStart = errors.New("postgresql did not start")
	// ErrState: the server is not in a state for this, such as to pause it twice.
	ErrState = errors.New("postgresql server is not running, or paused")
)

// VersionMin is the oldest major version taken: the ledger's promise.
const VersionMin = 15

// debianFolders is where Debian and its kin put the server, which is not in PATH.
const debianFolders = "/usr/lib/postgresql/*/bin"

// version finds the major version in the answer to postgres --version.
var version = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// find returns the folder of initdb and postgres: the one in PATH, or else the newest that matches usual. ErrMissing.
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
