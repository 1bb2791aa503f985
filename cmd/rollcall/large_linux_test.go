package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/http/api"
)

var (
	largeFiles  = flag.Int("large-files", 5, "files of each of two tenants in TestMemoryOfLargeFiles")
	largeWithin = flag.Duration("large-within", 10*time.Minute, "after which TestMemoryOfLargeFiles stops looking")
)

// large is a built node beside the village, with tenants of its own.
type large struct {
	*rig
	node    *background
	village *village
}

func newLarge(t *testing.T) *large {
	t.Helper()
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	v := newVillage(t)
	r := newRig(t, rigOptions{dns: v.dns, smtpPort: v.port, settings: fmt.Sprintf(`
[limits]
max_rows = %d
max_file_bytes = 1000000000
`, *manyAddresses+1) + wideOpen})
	l := &large{rig: r, node: r.serve(), village: v}
	l.node.waitFor("node started")
	return l
}

// client opens a workspace, and gives a client of it.
func (l *large) client(workspace string, credits int64) *client.API {
	l.t.Helper()
	token, err := client.ReadToken(filepath.Join(l.folder, "rollcall-data"))
	var who client.Tenant
	if err == nil {
		who, err = client.OpenTenant(l.t.Context(), client.NewAdmin(l.admin, token), client.TenantOptions{
			File: filepath.Join(l.folder, workspace+".json"), Workspace: workspace, Credits: credits})
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return client.NewAPI(l.api, who.Key, func(string) {})
}

// handIn makes a verification and uploads its file.
func handIn(ctx context.Context, c *client.API, name string, file []byte) (string, error) {
	made, err := c.Create(ctx, uuid.New(), int64(len(file)), name)
	if err != nil {
		return "", err
	}
	return made.ID, c.Upload(ctx, made.Upload.URL, bytes.NewReader(file), int64(len(file)), func(int64) {})
}

// TestMemoryOfLargeFiles measures what a node takes for large files of two tenants at once. With one file
// each and with five the peak is about the same, for a workspace has one large file in work at a time:
//
//	go test ./cmd/rollcall -run MemoryOfLargeFiles -long -v -many-addresses 5000000 -many-domains 200000 -large-files 5
func TestMemoryOfLargeFiles(t *testing.T) {
	l := newLarge(t)
	ctx, cancel := context.WithTimeout(t.Context(), *largeWithin+time.Minute)
	defer cancel()
	file := villageFile(*manyAddresses, *manyDomains)
	began := time.Now()
	credits := int64(*largeFiles) * int64(*manyAddresses)
	clients := [2]*client.API{l.client("first", credits), l.client("second", credits)}
	var ids []string
	for range *largeFiles {
		for _, c := range clients {
			id, err := handIn(ctx, c, "many.csv", file)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
	}
	t.Logf("%d files of %d MB are uploaded after %s", len(ids), len(file)>>20, time.Since(began).Round(time.Second))
	ended := 0
	for ended < len(ids) && time.Since(began) < *largeWithin {
		if err := term.Sleep(ctx, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		states, done := map[string]int{}, int64(0)
		ended = 0
		for i, id := range ids {
			d, err := look(ctx, clients[i%2], id)
			if err != nil {
				t.Fatal(err)
			}
			states[string(d.Status)]++
			done += d.Progress.Completed
			if d.CompletedAt != nil {
				ended++
			}
		}
		peak, err := memoryMost(l.node.command.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v, %d addresses known, peak %d MB, %.0f MB of files in work, %.0f files wait",
			time.Since(began).Round(time.Second),
			states, done, peak>>20, l.metric(ctx, "rollcall_file_bytes")/(1<<20), l.metric(ctx, "rollcall_files_waiting"))
	}
	if code := l.node.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d", code)
	}
}

// TestSmallFilesBesideALargeOne measures a thousand files of ten addresses, of a hundred tenants, alone and
// beside one large file of another:
//
//	go test ./cmd/rollcall -run SmallFilesBesideALargeOne -long -v -many-addresses 5000000 -many-domains 200000
func TestSmallFilesBesideALargeOne(t *testing.T) {
	const tenants, files = 100, 10
	l := newLarge(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	clients := make([]*client.API, tenants)
	for i := range clients {
		clients[i] = l.client(fmt.Sprintf("small%d", i), 3*files*10)
	}
	thousand := func(what string) {
		began := time.Now()
		took := l.smallFiles(ctx, clients, files)
		t.Logf("%s: %d files of ten addresses in %s; a file took %s in the median, %s at the 99th percentile, %s at most",
			what,
			len(took), time.Since(began).Round(time.Millisecond), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	}
	thousand("first")
	thousand("alone")
	c := l.client("large", int64(*manyAddresses))
	id, err := handIn(ctx, c, "many.csv", villageFile(*manyAddresses, *manyDomains))
	if err != nil {
		t.Fatal(err)
	}
	thousand(fmt.Sprintf("beside %d addresses", *manyAddresses))
	d, err := look(ctx, c, id)
	if err != nil || d.CompletedAt != nil {
		t.Errorf("the large file is over, or nobody knows: %v", err)
	}
	peak, err := memoryMost(l.node.command.Process.Pid)
	t.Logf("the large file: %s, %d known; peak %d MB, %v", d.Status, d.Progress.Completed, peak>>20, err)
}

// smallFiles has ten tenants at a time send their files, one after the other, and gives how long each took, sorted.
func (l *large) smallFiles(ctx context.Context, clients []*client.API, files int) []time.Duration {
	l.t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	free := make(chan struct{}, 10)
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			for n := range files {
				began := time.Now()
				err := smallFile(ctx, c, fmt.Sprintf("d%d.test", i*files+n))
				mu.Lock()
				took, failed = append(took, time.Since(began).Round(time.Millisecond)), errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if failed != nil || len(took) < len(clients)*files {
		l.t.Fatalf("%d of %d small files: %v", len(took), len(clients)*files, failed)
	}
	slices.Sort(took)
	return took
}

// smallFile sends ten addresses of a domain, and waits until all are known.
func smallFile(ctx context.Context, c *client.API, domain string) error {
	var text strings.Builder
	text.WriteString("email\n")
	for i := range 10 {
		fmt.Fprintf(&text, "anna.small%d@%s\n", i, domain)
	}
	id, err := handIn(ctx, c, "small.csv", []byte(text.String()))
	if err != nil {
		return err
	}
	var d api.Detail
	for d.CompletedAt == nil {
		if d, err = look(ctx, c, id); err != nil {
			return err
		}
		if err := term.Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("no end of a small file in sight: %+v", d)
		}
	}
	return nil
}
