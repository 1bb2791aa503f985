package sqlstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
)

const (
	// crashURL is the variable that makes the test binary the child of a crash test.
	crashURL = "ROLLCALL_CRASH_LEDGER"
	// crashRounds and crashLines say how often the child is killed, and after how
	// many acknowledged steps at most: some two seconds in all of a default run.
	crashRounds = 4
	crashLines  = 800
	// crashWorkers work at once in the child, and so may each have one step that was committed and not yet told.
	crashWorkers = 4
)

// TestWhatWasAnsweredSurvivesKill runs a child process that works on a ledger and prints each step after the ledger has
// answered it. The child is killed with signal 9 at a random line; then the ledger is opened again, must hold every
// printed step, and its audit must find nothing.
func TestWhatWasAnsweredSurvivesKill(t *testing.T) {
	effort.Children(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")
	effort.OK(t, sqlstore.Migrate(t.Context(), url))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	granted := 0
	for round := range effort.Cases(crashRounds) {
		told := killedAfter(t, url, 1+random.IntN(crashLines))
		granted += told["grant"].count
		checkAfterKill(t, url, told, granted, crashWorkers*(round+1))
	}
}

// steps are what the child told about one kind of step.
type steps struct {
	count int
	last  map[uuid.UUID]int64 // the greatest number told for each verification
}

// killedAfter runs the child until it told so many steps, and kills it.
func killedAfter(t *testing.T, url string, lines int) map[string]*steps {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // far beyond what the lines take
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChildOfTheCrashTest$")
	child.Env = append(os.Environ(), crashURL+"="+url)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	effort.OK(t, err)
	told := map[string]*steps{"create": {}, "grant": {}, "durable": {}, "settle": {}}
	read := 0
	for in := bufio.NewScanner(out); in.Scan(); {
		words := strings.Fields(in.Text())
		if len(words) != 3 || told[words[0]] == nil {
			continue // the line in which it died, or the test runner's own
		}
		id, err := uuid.Parse(words[1])
		number, wrong := strconv.ParseInt(words[2], 10, 64)
		effort.OK(t, errors.Join(err, wrong), "line", in.Text())
		s := told[words[0]]
		if s.last == nil {
			s.last = map[uuid.UUID]int64{}
		}
		s.count++
		s.last[id] = max(s.last[id], number)
		if read++; read == lines {
			effort.OK(t, child.Process.Kill())
		}
	}
	if err := child.Wait(); err == nil || read < lines {
		t.Fatalf("the child ended by itself after %d steps: %v", read, err)
	}
	return told
}

// checkAfterKill holds the ledger against what was told.
func checkAfterKill(t *testing.T, url string, told map[string]*steps, granted, untold int) {
	t.Helper()
	s := effort.Must(sqlstore.Open(t.Context(), url, sqlstore.Options{}))(t)
	defer func() {
		effort.ErrIs(t, s.Close(), nil)
	}()
	report, err := s.Audit(t.Context())
	effort.ErrorIf(t, err != nil || len(report.Violations) > 0, "audit: %+v, %v", report.Violations, err)
	states := func(kind string) map[uuid.UUID]int64 { return told[kind].last }
	for id := range states("create") {
		effort.Denied(s.UploadState(t.Context(), id))(t, nil, "created and gone")
	}
	for id, bytes := range states("durable") {
		u, err := s.UploadState(t.Context(), id)
		effort.ErrorIf(t, err != nil || u.Durable < bytes, "%d bytes were durable, %d are: %v", bytes, u.Durable, err)
	}
	for id, number := range states("settle") {
		n := int64(0)
		err := s.Settled(t.Context(), id, func([]int64) error { n++; return nil })
		effort.ErrorIf(t, err != nil || n < number, "%d settlements were answered, %d are there: %v", number, n, err)
	}
	sum := ledger.Credits(0)
	list, err := s.Workspaces(t.Context())
	for _, w := range list {
		b, failed := s.Balance(t.Context(), w.ID)
		err = errors.Join(err, failed)
		sum += b.Granted
	}
	effort.ErrorIf(t, err != nil || int(sum) < granted || int(sum) > granted+untold,
		"%d credits were granted, %d are there, at most %d untold: %v", granted, sum, untold, err)
}

// TestChildOfTheCrashTest is the child: it works until it is killed.
func TestChildOfTheCrashTest(t *testing.T) {
	url := os.Getenv(crashURL)
	if url == "" {
		return // not a child
	}
	s := effort.Must(sqlstore.Open(t.Context(), url, sqlstore.Options{}))(t)
	var told sync.Mutex // one line at a time
	tell := func(kind string, id uuid.UUID, number int64) {
		told.Lock()
		defer told.Unlock()
		fmt.Printf("%s %s %d\n", kind, id, number)
	}
	var workers sync.WaitGroup
	for range crashWorkers {
		workers.Go(func() {
			d := ledgertest.NewFixture(t, s, 0)
			for !t.Failed() {
				work(d, tell)
			}
		})
	}
	workers.Wait()
}

// work takes one file through its life, telling each step after its answer.
func work(d *ledgertest.Fixture, tell func(kind string, id uuid.UUID, number int64)) {
	for range 6 {
		d.Grants(1)
		tell("grant", d.Workspace, 0)
	}
	v := d.Creates(9)
	tell("create", v.ID, 0)
	u, err := d.OpenUpload(d.T.Context(), v.ID)
	for at := int64(0); at < 9 && err == nil; at += 3 {
		if u, err = d.AppendChunk(d.T.Context(), v.ID, u.Writer, at, []byte("xyz")); err == nil {
			tell("durable", v.ID, u.Durable)
		}
	}
	if err != nil {
		d.T.Errorf("upload: %v", err)
		return
	}
	// The oldest file that nobody has, which may be one that a killed child left.
	list, err := d.Lease(d.T.Context(), d.Node, 1, ledgertest.Hour)
	if err != nil || len(list) == 0 {
		return
	}
	v = list[0]
	l := ledger.Lease{Verification: v.ID, Node: d.Node, Epoch: v.Epoch}
	if v.Status == ledger.Preparing {
		v, err = d.Prepare(d.T.Context(), l, 6, 0, 6)
		effort.ErrorIf(d.T, err != nil, "prepare: %v", err)
	}
	for v.Status == ledger.Verifying {
		first := v.Total - v.Left()
		v = d.Settles(l, v.Settlements+1, first, first+1, smtp.Outcomes[first%5])
		tell("settle", v.ID, v.Settlements)
	}
}
