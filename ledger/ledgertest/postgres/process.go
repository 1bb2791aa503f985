package postgres

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tailMax bounds the lines of the log that are kept, for the message of a failure.
const tailMax = 40

// process is a program that was started, and dies with this one.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed at the end
	err   error         // of its end; read after ended
}

// run starts cmd. The signal at the death of the parent comes when the *thread* that forked ends (prctl(2),
// PR_SET_PDEATHSIG): so a thread is kept for the whole life of the program.
func run(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.WaitDelay = stopMax // a child that holds the log open does not hold us
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.ended)
	}()
	return p, <-started
}

// stop ends a server and its children at once: SIGQUIT is PostgreSQL's immediate
// shutdown, after which the next start recovers.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopMax):
		return p.kill()
	}
}

// kill ends a program that does not want to.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// tail keeps the end of a log and says when a phrase was in it.
type tail struct {
	phrase string
	seen   chan struct{} // closed when the phrase comes

	mu    sync.Mutex
	lines []string // guarded by mu
	rest  []byte   // a line without its end; guarded by mu
	found bool     // guarded by mu
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = append(t.rest, p...)
	for {
		line, rest, ok := bytes.Cut(t.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		t.lines, t.rest = append(t.lines, string(line)), rest
		if len(t.lines) > tailMax {
			t.lines = t.lines[1:]
		}
		if !t.found && strings.Contains(string(line), t.phrase) {
			t.found = true
			close(t.seen)
		}
	}
}

// String is the end of the log.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// freeze is a set of stopped processes and the guard that wakes them: a shell
// that waits for the end of its input, which comes when we say so or die.
type freeze struct {
	guard *exec.Cmd
	input interface{ Close() error }
}

// end wakes the processes.
func (f *freeze) end() error {
	return errors.Join(f.input.Close(), f.guard.Wait())
}
