package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
)

// TestADrainedNodeTakesWorkAgain drains the only node of a cluster in the middle of one file
// and with another one waiting, and takes that back: both are completed, and nothing is asked
// twice that was settled.
func TestADrainedNodeTakesWorkAgain(t *testing.T) {
	effort.NotShort(t, "a whole node")
	effort.Children(t)
	t.Parallel()
	lab, r, _ := pacedServerRig(t, postgres.New(t, postgres.Options{}), "undrain")
	node := r.serve()
	node.waitFor("node started")
	ctx, cancel := context.WithTimeout(t.Context(), cliWait)
	defer cancel()
	var sample []string
	for i := range 40 {
		sample = append(sample, fmt.Sprintf("ghost%d@one-clean.test", i)) // refused at once, as fast as [throttle] says
	}
	r.open(int64(len(sample)) + 1)
	cluster := func(args ...string) {
		t.Helper()
		if code, stdout, stderr := r.run(append([]string{"cluster"}, args...)...); code != exitDone {
			t.Fatalf("cluster %q: got code %d, %s%s", args, code, stdout, stderr)
		}
	}
	ready := func(want int) {
		t.Helper()
		got, err := http.Get(r.admin + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		if got.Body.Close(); got.StatusCode != want {
			t.Errorf("/readyz: got %d, want %d", got.StatusCode, want)
		}
	}

	c := submitAll(ctx, t, r, []byte("email\n"+strings.Join(sample, "\n")+"\n"))
	c.reach(ctx, 1)
	cluster("drain", "--yes")
	cluster("undrain", "--yes", "--wait") // half-way
	if c.settled() == int64(len(sample)) {
		t.Error("all was done before the drain was taken back")
	}
	if err := c.wait(); err != nil {
		t.Fatal(err)
	}
	c.check(lab, sample, 1)

	cluster("drain", "--yes", "--wait")
	ready(http.StatusServiceUnavailable)
	waits := submitAll(ctx, t, r, []byte("email\nsomebody@one-clean.test\n"))
	waitUntil(t, func() bool { // it is uploaded, which wakes whoever takes work
		waits.mu.Lock()
		defer waits.mu.Unlock()
		return waits.last.Status == "preparing"
	})
	leased := func() string {
		_, after, _ := strings.Cut(r.scrape(ctx), "\nrollcall_leases_taken_total ")
		count, _, _ := strings.Cut(after, "\n")
		return count
	}
	before := leased()
	cluster("undrain", "--yes", "--wait")
	if err := waits.wait(); err != nil {
		t.Fatal(err)
	}
	if after := leased(); before == "" || after == before {
		t.Errorf("%s leases were taken before the drain was taken back, %s after it", before, after)
	}
	ready(http.StatusOK)
	if _, stdout, _ := r.run("log"); strings.Count(stdout, "node undrain") != 2 {
		t.Errorf("two drains were taken back, the log says\n%s", stdout)
	}
	r.audit()
	if code := node.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d, want %d", code, exitDone)
	}
}
