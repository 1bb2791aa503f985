package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rollcall/config/effort"
)

// Networks of these tests are network namespaces without a name: they live as long as somebody holds them, so that
// nothing is left of them when the test ends in any way, and no address of the machine is touched.

// forwardFile lets a namespace pass packets on: that of the thread which writes.
const forwardFile = "/proc/sys/net/ipv4/ip_forward"

// space is a network namespace.
type space struct {
	name  string
	using sync.RWMutex // an HTTP client may still dial when the test ends, and then the file is closed
	file  *os.File
}

// newSpace makes a namespace whose loopback is up.
func newSpace(t *testing.T, name string) *space {
	t.Helper()
	s := &space{name: name}
	effort.OK(t, onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		var err error
		s.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		return err
	}))
	t.Cleanup(func() {
		s.using.Lock()
		defer s.using.Unlock()
		_ = s.file.Close()
	})
	s.ip(t, "link set lo up")
	return s
}

// onThread runs f on a thread of its own, which ends with it: its namespace may be anything then.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// in runs f on a thread inside the namespace. What f opens stays there.
func (s *space) in(f func() error) error {
	return onThread(func() error {
		if err := s.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the thread of the caller, who has locked it.
func (s *space) enter() error {
	s.using.RLock()
	defer s.using.RUnlock()
	if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of %s: %w", s.name, err)
	}
	return nil
}

// path names the namespace for ip, while this process lives.
func (s *space) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd()) }

// ip runs lines of ip(8) inside the namespace.
func (s *space) ip(t *testing.T, lines ...string) {
	t.Helper()
	effort.OK(t, s.in(func() error {
		command := exec.Command("ip", "-batch", "-")
		command.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		out, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip in %s: %w\n%s\n%s", s.name, err, strings.Join(lines, "\n"), out)
		}
		return nil
	}))
}

// dial connects from inside the namespace to an IP address and port.
func (s *space) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = s.in(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// transport is for requests from inside the namespace.
func (s *space) transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: s.dial}
}

// listen listens inside the namespace.
func (s *space) listen(address string) (l net.Listener, err error) {
	err = s.in(func() error {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// start is the starter of programs inside the namespace, which die with the test binary. The thread that starts one
// stays for its whole life: the thread's end is the signal of Pdeathsig (prctl(2)).
func (s *space) start(command *exec.Cmd, until <-chan struct{}) error {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := s.enter()
		if err == nil {
			err = command.Start()
		}
		if started <- err; err == nil {
			<-until
		}
	}()
	return <-started
}

// needSpaces skips the test, with one line, where it may not make networks.
func needSpaces(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("skipped: no networks of their own for the nodes: there is no ip (iproute2)")
	}
	err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	if err != nil {
		t.Skipf("skipped: no networks of their own for the nodes: namespaces may not be made (%v): run it as root", err)
	}
	if err := onThread(rulesWork); err != nil {
		t.Skipf("skipped: no networks of their own for the nodes: %v", err)
	}
}

// rulesWork tries what cuts are made of, in a namespace that is thrown away.
func rulesWork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	for _, args := range []string{"link add va type veth peer name vb",
		"rule add pref 1 from 10.0.0.1 ipproto udp dport 1 blackhole"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	if err := os.WriteFile(forwardFile, []byte("1"), 0); err != nil {
		return fmt.Errorf("forward packets: %w", err)
	}
	return nil
}

// memoryLeast is the space that these tests want of a folder in memory.
const memoryLeast = 4 << 30

// memoryFolder is where files lie in memory and programs may run; "" where there is none with room.
func memoryFolder() string {
	const folder = "/dev/shm"
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil || s.Type != unix.TMPFS_MAGIC || s.Flags&unix.ST_NOEXEC != 0 ||
		s.Bavail*uint64(s.Bsize) < memoryLeast {
		return ""
	}
	return folder
}

// The hub is a router with a wire to each place. A cut is a set of its rules
// that swallow packets without a word, as a broken switch does.

// Ports and networks of the places.
const (
	gossipPort   = 7946
	actorPort    = 7947
	ledgerPort   = 5432
	labNetwork   = "10.77.0.0/16"
	labDNS       = "10.77.0.1:53"
	wiresNetwork = "10.76.%d.%d"
)

type hub struct {
	*space
	t      *testing.T
	places map[string]*place

	mu    sync.Mutex
	rules []string // of the cuts that stand; guarded by mu
}

// place is a namespace with one wire to the hub.
type place struct {
	*space
	addr string
}

// newHub makes the router and a place for each name.
func newHub(t *testing.T, names ...string) *hub {
	t.Helper()
	h := &hub{space: newSpace(t, "hub"), t: t, places: map[string]*place{}}
	effort.OK(t, h.in(func() error { return os.WriteFile(forwardFile, []byte("1"), 0) }))
	for i, name := range names {
		p := &place{space: newSpace(t, name), addr: fmt.Sprintf(wiresNetwork, i+1, 1)}
		gate := fmt.Sprintf(wiresNetwork, i+1, 254)
		h.ip(t, fmt.Sprintf("link add w%d type veth peer name wire netns %s", i, p.path()),
			fmt.Sprintf("addr add %s/24 dev w%d", gate, i), fmt.Sprintf("link set w%d up", i))
		p.ip(t, fmt.Sprintf("addr add %s/24 dev wire", p.addr), "link set wire up", "route add default via "+gate)
		h.places[name] = p
	}
	return h
}

// cut swallows whatever goes between a place and some others.
func (h *hub) cut(name string, others ...string) {
	h.t.Helper()
	var rules, add []string
	for _, other := range others {
		one, two := h.places[name].addr, h.places[other].addr
		rules = append(rules, "from "+one+" to "+two, "from "+two+" to "+one)
	}
	for _, rule := range rules {
		add = append(add, "rule add pref 10 "+rule+" blackhole")
	}
	h.mu.Lock()
	h.rules = append(h.rules, rules...)
	h.mu.Unlock()
	h.ip(h.t, add...)
}

// heal ends every cut.
func (h *hub) heal() {
	h.t.Helper()
	h.mu.Lock()
	rules := h.rules
	h.rules = nil
	h.mu.Unlock()
	var remove []string
	for _, rule := range rules {
		remove = append(remove, "rule del pref 10 "+rule+" blackhole")
	}
	if len(remove) > 0 {
		h.ip(h.t, remove...)
	}
}
