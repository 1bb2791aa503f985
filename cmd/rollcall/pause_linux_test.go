package main

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollcall/config/effort"
)

const stoppedFor = 6 * time.Second

// TestAProcessThatIsStoppedGoesOn stops a node for 6 s while it works: it says so once, nobody is
// asked faster than allowed, nothing is lost, and what it asks twice is what was on the wire. However slow the machine
// is, the file may take as long as it goes on.
func TestAProcessThatIsStoppedGoesOn(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	lab, r := pacedRig(t, "")
	node := r.serves()
	log := node.listen()
	sample := pacedSample(750, 50)
	r.open(int64(len(sample)))
	c := submitAll(t.Context(), t, r, []byte("email\n"+strings.Join(sample, "\n")+"\n"))
	c.reach(t.Context(), 100)
	effort.OK(t, node.command.Process.Signal(syscall.SIGSTOP))
	<-time.After(stoppedFor)
	effort.OK(t, node.command.Process.Signal(syscall.SIGCONT))
	effort.OK(t, c.wait())
	// A machine that is busy otherwise may pause it more often: each pause is told once.
	ctx, cancel := context.WithTimeout(t.Context(), cliWait)
	defer cancel()
	await(ctx, t, "one line for each pause", func() bool {
		told := log.count("process was paused")
		return told > 0 && float64(told) == r.metric("rollcall_process_pauses_total")
	})
	log.quiet("process was paused")
	c.check(lab, sample, 1)
	for name, m := range lab.Manners().Receivers {
		for _, broken := range exceeded(name, m, allowed{}, allowed{RcptsIn1s: pacedRate, SessionsAtOnce: 4}) {
			t.Error(broken)
		}
	}
	r.audit()
}

const pacedRate = 20
