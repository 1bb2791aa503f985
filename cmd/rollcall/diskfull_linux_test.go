package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/smtp/smtplab"
)

// disk is the disk of a node's data. Its two functions are called while the node runs.
type disk struct {
	fill, free func()
	leave      func(bytes int64) // makes this much free again; nil: not possible
}

// diskBytes is the size of the disk that is filled. A ledger folds its log back at 16 MiB, and these tests write
// less.
const diskBytes = 64 << 20

// smallDisk mounts a small disk at path. It skips the test if the user may not mount.
func smallDisk(t *testing.T, path string) disk {
	t.Helper()
	effort.OK(t, os.MkdirAll(path, 0o700))
	options := fmt.Sprintf("size=%d,mode=0700", diskBytes)
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, options); err != nil {
		t.Skipf("no disk is filled: a tmpfs can't be mounted here: %v", err)
	}
	t.Cleanup(func() { effort.OK(t, syscall.Unmount(path, syscall.MNT_DETACH)) })
	ballast := filepath.Join(path, "ballast")
	d := disk{free: func() {
		effort.OK(t, os.Remove(ballast))
	}}
	d.fill = func() {
		f, err := os.Create(ballast)
		effort.OK(t, err)
		defer f.Close()
		for block := make([]byte, 64<<10); err == nil; {
			_, err = f.Write(block)
		}
		effort.FatalIf(t, !errors.Is(err, syscall.ENOSPC), "fill the disk: %v", err)
	}
	d.leave = func(bytes int64) {
		info, err := os.Stat(ballast)
		if err == nil {
			err = os.Truncate(ballast, info.Size()-bytes)
		}
		effort.OK(t, err)
	}
	return d
}

// limitedFiles makes every write of a process fail, as a quota does. It needs no rights.
func limitedFiles(t *testing.T, node *background) disk {
	pid, before := node.command.Process.Pid, unix.Rlimit{}
	limit := func(to, old *unix.Rlimit) {
		t.Helper()
		effort.OK(t, unix.Prlimit(pid, unix.RLIMIT_FSIZE, to, old))
	}
	limit(nil, &before)
	return disk{
		fill: func() { limit(&unix.Rlimit{Cur: 0, Max: before.Max}, nil) },
		free: func() { limit(&before, nil) },
	}
}

func TestAFullDiskPausesTheWorkAndLosesNothing(t *testing.T) {
	t.Parallel()
	type way struct {
		name    string
		prepare func(t *testing.T, path string) disk // before the node starts; nil: limitedFiles
	}
	ways := []way{{"no space left", smallDisk}, {"no file may grow", nil}}
	atOnce(t, ways, func(w way) string { return w.name }, func(t *testing.T, w way) {
		lab, r := pacedRig(t, "")
		var d disk
		if w.prepare != nil {
			d = w.prepare(t, filepath.Join(r.folder, "rollcall-data"))
		}
		node := r.serves()
		if w.prepare == nil {
			d = limitedFiles(t, node)
		}
		fillWhileItWorks(t, lab, r, node, d)
	})
}

// fillWhileItWorks fills the disk in the middle of a file and checks the answer to every kind of request. Then it
// frees the space and expects all work to finish.
func fillWhileItWorks(t *testing.T, lab *smtplab.Lab, r *rig, node *background, d disk) {
	ctx, cancel := context.WithTimeout(t.Context(), faultWithin())
	defer cancel()
	sample := pacedSample(1500, 100) // addresses that no receiver answers take 12 s
	r.open(int64(len(sample)))
	other := r.bystander(ctx)
	log := node.listen()
	c := submitAll(ctx, t, r, []byte("email\n"+strings.Join(sample, "\n")+"\n"))
	c.reach(ctx, 50)

	d.fill()
	log.wait(ctx, "settlement not committed yet")
	settled := c.settled()
	other.refused(ctx)
	for end := time.Now().Add(faultLasts()); time.Now().Before(end); {
		other.reads(ctx)
		effort.OK(t, term.Sleep(ctx, 50*time.Millisecond))
	}
	log.wait(ctx, "leases not renewed")
	if now := c.settled(); now != settled || now == int64(len(sample)) {
		t.Errorf("%d rows of %d were settled on a full disk, before it %d", now, len(sample), settled)
	}
	d.free()

	other.served(ctx)
	effort.OK(t, c.wait())
	c.check(lab, sample, 1) // addresses not settled when the lease ended are asked again
	r.audit()
	log.quiet()
	node.terminate()
	r.environ = []string{noNodeHere} // the node has ended: the command reads the file
	r.audit()
}

// TestAFullDiskAtTheFirstStartIsToldInOneLine starts a node on a disk that is full from the first byte, and on disks
// that become full later in the start. A start with enough space succeeds, whatever the failed starts left.
func TestAFullDiskAtTheFirstStartIsToldInOneLine(t *testing.T) {
	t.Parallel()
	_, r := pacedRig(t, "")
	d := smallDisk(t, filepath.Join(r.folder, "rollcall-data"))
	d.fill()
	for _, bytes := range []int64{0, 4 << 10, 4 << 10, 56 << 10} { // more each time
		d.leave(bytes)
		code, _, stderr := r.run("serve", "--config", "node.toml")
		line := lastLines(stderr)
		full := strings.Contains(line, "no space left on device") || strings.Contains(line, "disk is full")
		if code != exitFailed || strings.Count(line, "\n") != 1 || !full || !strings.Contains(line, "rollcall-data") {
			t.Errorf("%d bytes more: got code %d and %q, want one line that names the folder and the cause", bytes, code, stderr)
		}
	}
	d.free()
	r.serves()
}

const stoppedFor = 6 * time.Second

// TestAProcessThatIsStoppedGoesOn stops a node for 6 s while it works. The node logs that once, asks nobody faster
// than allowed, loses nothing, and asks again only addresses whose question was on the wire. On a slow machine the
// file may take any time, as long as it makes progress.
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
	// A busy machine may stop the node more often; each pause is logged once.
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
