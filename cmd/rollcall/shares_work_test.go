package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/ledger"
)

// pays gives the first tenant credits.
func (s *shared) pays(credits ledger.Credits) {
	s.t.Helper()
	list, err := s.node.Book.Workspaces(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range list {
		if w.Name == "first" {
			_, err = s.node.Book.Grant(s.t.Context(), uuid.New(), w.ID, credits, "test")
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// sends has the first tenant send a file of so many addresses of a domain.
func (s *shared) sends(ctx context.Context, domain string, addresses int) uuid.UUID {
	s.t.Helper()
	var text bytes.Buffer
	text.WriteString("email\n")
	for i := range addresses {
		fmt.Fprintf(&text, "ghost%d@%s\n", i, domain)
	}
	made, err := s.first.Create(ctx, uuid.New(), int64(text.Len()), "first.csv")
	if err == nil {
		err = s.first.Upload(ctx, made.Upload.URL, bytes.NewReader(text.Bytes()), int64(text.Len()), func(int64) {})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	id, err := uuid.Parse(made.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// TestFilesAtSilentReceiversLeaveLeases: one tenant has more of them than a node works on at a time.
func TestFilesAtSilentReceiversLeaveLeases(t *testing.T) {
	t.Parallel()
	const most, files = 16, 40
	s := newShared(t, func(c *config.Config) { c.Limits.FilesAtOnce = most })
	s.pays(files)
	s.unhindered(func(ctx context.Context) {
		for i := range files {
			s.sends(ctx, fmt.Sprintf("n%d-silent.test", i), 1)
		}
		s.until("its share of the leases to be taken", func() bool { return s.sum("rollcall_leases", "") >= most/2 })
	})
	if n := s.sum("rollcall_leases", ""); n > most/2 {
		t.Errorf("one tenant has %v of %d leases", n, most)
	}
	if n := s.sum("rollcall_workspaces_full", ""); n != 1 {
		t.Errorf("%v workspaces have their share, want the first", n)
	}
}

// TestFilesThatWaitForLongTakeNoLease: they are parked, and are cancelled at once all the same.
func TestFilesThatWaitForLongTakeNoLease(t *testing.T) {
	t.Parallel()
	const files = 40
	s := newShared(t, func(c *config.Config) {
		c.Retry.GreylistWaits = []config.Duration{{Duration: 20 * time.Minute}}
		c.Retry.GiveUpAfter = config.Duration{Duration: 6 * time.Hour}
	})
	s.pays(files)
	var last uuid.UUID
	s.unhindered(func(ctx context.Context) {
		for i := range files {
			last = s.sends(ctx, fmt.Sprintf("n%d-tempfail.test", i), 1)
		}
		s.until("all to be parked", func() bool {
			return s.sum("rollcall_verifications_parked_total", "") >= files && s.sum("rollcall_leases", "") == 0
		})
	})
	d, _, err := s.first.Detail(t.Context(), last.String())
	if err != nil || d.Status != "waiting" {
		t.Fatalf("a parked file is %q: %v", d.Status, err)
	}
	if left := s.node.Cluster.Load().Addresses; left != 0 {
		t.Errorf("%d addresses count as in work", left)
	}
	var ended api.Cancellation
	if _, err := s.first.AskJSON(t.Context(), "POST", "/v1/verifications/"+last.String()+"/cancel", nil,
		&ended); err != nil {
		t.Fatal(err)
	}
	if d, _, err = s.first.Detail(t.Context(), last.String()); err != nil || d.Status != "cancelled" {
		t.Errorf("a parked file that was cancelled is %q: %v", d.Status, err)
	}
}

// TestLargeFilesOfOneTenantLetOthersPass: they take more memory than there is for files.
func TestLargeFilesOfOneTenantLetOthersPass(t *testing.T) {
	t.Parallel()
	const files, addresses = 5, 120_000
	s := newShared(t, func(c *config.Config) { c.Limits.FileBytesAtOnce = 8 << 20 })
	s.pays(files * addresses)
	s.unhindered(func(ctx context.Context) {
		for range files {
			s.sends(ctx, "many-clean.test", addresses)
		}
		s.until("large files to wait for memory", func() bool { return s.sum("rollcall_files_waiting", "") >= files-2 })
	})
	if n := s.sum("rollcall_file_bytes", ""); n > 8<<20 {
		t.Errorf("%v bytes of files are in memory", n)
	}
}

// TestWhatParkedFilesLeaveInMemory: of the files themselves nothing. Their receiver remembers for a minute who
// offered it what, as it does of files that are over, and after that for ten minutes the number of each one's owner.
func TestWhatParkedFilesLeaveInMemory(t *testing.T) {
	if !effort.Long() {
		t.Skip("two thousand files take some minutes: run with -long")
	}
	const first, more = 2000, 2000
	s := newShared(t, func(c *config.Config) {
		c.Retry.GreylistWaits = []config.Duration{{Duration: time.Hour}}
		c.Retry.GiveUpAfter = config.Duration{Duration: 6 * time.Hour}
		c.Limits.MaxOpenVerifications = first + more
	})
	s.pays(first + more)
	sent := 0
	parked := func(files int) {
		sent += files
		for range files {
			s.sends(t.Context(), "all-tempfail.test", 1)
		}
		s.until("all files to be parked", func() bool {
			return s.sum("rollcall_verifications_parked_total", "") >= float64(sent) && s.sum("rollcall_leases", "") == 0
		})
	}
	heap := func() int64 {
		s.first.HTTP.CloseIdleConnections()
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	// The library keeps its actors in 32,768 maps, and what the first of each takes is never given back: 11 MB.
	registry := s.node.Cluster.System().ProcessRegistry
	for range 400_000 {
		if pid, added := registry.Add(nil, registry.NextId()); added {
			registry.Remove(pid)
		}
	}
	parked(first)
	if err := term.Sleep(t.Context(), forgottenAfter); err != nil {
		t.Fatal(err)
	}
	before := heap()
	parked(more)
	at := heap()
	if err := term.Sleep(t.Context(), forgottenAfter); err != nil {
		t.Fatal(err)
	}
	after := heap()
	t.Logf("%d files more take %d bytes each at once, and %d after %s", more, (at-before)/more, (after-before)/more,
		forgottenAfter)
	if each := (after - before) / more; each > 100 {
		t.Errorf("a parked file leaves %d bytes, want at most 100", each)
	}
}

// forgottenAfter is when a receiver has forgotten what was offered to it.
const forgottenAfter = 3 * time.Minute
