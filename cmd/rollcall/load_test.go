package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// loadWait bounds one verification under load.
const loadWait = 10 * time.Minute

// wideOpen is an allowance that stands in nobody's way. An address whose session
// fails is asked again soon: with the default waits one such would take 5 min.
const wideOpen = `
[retry]
greylist_waits = ["1s"]
[throttle.default]
connections = 4
connection_rate = "1000000/s"
rcpt_rate = "1000000/s"
rcpts_per_connection = 1000000
rcpts_per_transaction = 100
refused_per_session = 1000000
refused_per_hour = 1000000
`

// processorOf is the processor time of a process so far (Linux).
func processorOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields, ticks := strings.Fields(rest), 0
	for _, field := range fields[11:13] { // user and system, in ticks of 10 ms
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// cleanFile makes a file of n addresses spread over domains that answer honestly
// and at once; one in five does not exist.
func cleanFile(n, domains int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range n {
		name := "anna"
		if (i+i/domains)%5 == 4 { // not all of them at the same domains
			name = "ghost"
		}
		fmt.Fprintf(&b, "%s.m%s@d%d-clean.test\n", name, letters(i/domains), i%domains)
	}
	return b.Bytes()
}

// letters spells a number from 0 in letters, so that a clean receiver of the lab
// knows the mailbox that is named after it.
func letters(n int) string {
	var out []byte
	for ; n > 0 || len(out) == 0; n /= 26 {
		out = append(out, byte('a'+n%26))
	}
	return string(out)
}

// handIn makes a verification and uploads its file.
func handIn(ctx context.Context, c *client.API, name string, file []byte) (string, error) {
	made, err := c.Create(ctx, uuid.New(), int64(len(file)), name)
	if err != nil {
		return "", err
	}
	return made.ID, c.Upload(ctx, made.Upload.URL, bytes.NewReader(file), int64(len(file)), func(int64) {})
}

// mustHandIn is handIn where nothing may fail.
func mustHandIn(ctx context.Context, t testing.TB, c *client.API, file []byte) string {
	t.Helper()
	return effort.Must(handIn(ctx, c, "list.csv", file))(t)
}

// quickLab is a lab without latency that never refuses a session: a node opens node.SessionsMax at most.
func quickLab() smtplab.Options {
	o := smtplab.Defaults()
	o.SessionsMax = 10_000
	return o
}

// resetMemoryMost makes the present memory the peak, and gives it (Linux).
func resetMemoryMost(pid int) (int64, error) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return 0, err
	}
	return memoryMost(pid)
}

// How much memory a node takes while one and ten clients download a final file,
// and while ten that have stopped reading are connected:
//
//	go test ./cmd/rollcall -run TestLoadDownloads -long -v

const (
	downloadClients = 10
	// stoppedAfter is what a client reads before it stops: less than any buffer on
	// the way could hide, more than the first part of a file.
	stoppedAfter = 4 << 20
	// downloadGrowthMax bounds what ten downloads may add to the node's memory. With a million rows they add some 40
	// MB, most of it garbage; 330 MB more would show that each holds a third of its file.
	downloadGrowthMax = 96 << 20
)

// settled writes a final verification into the ledger of a node that is down. Each settlement has addresses of all
// places of the file, as when all receivers answer at their own pace.
func (r *rig) settled(total int64) uuid.UUID {
	r.t.Helper()
	url := "sqlite:" + filepath.Join(r.folder, "rollcall-data", "ledger.db")
	book := effort.Must(sqlstore.Open(r.t.Context(), url, sqlstore.Options{}))(r.t)
	defer func() { _ = book.Close() }()
	workspace := effort.Must(uuid.Parse(r.tenant.Workspace))(r.t)
	d := &ledgertest.Fixture{Book: book, T: r.t, Workspace: workspace, Node: uuid.New()}
	v, lease := d.Prepares(total)
	batches := total / 1000
	for number := int64(1); number <= batches; number++ {
		s := ledger.Settlement{Lease: lease, Number: number}
		for ordinal := number - 1; ordinal < total; ordinal += batches {
			s.Results = append(s.Results, ledgertest.OneResult(ordinal, smtp.Valid))
		}
		v = effort.Must(d.Settle(r.t.Context(), s))(r.t)
	}
	effort.FatalIf(r.t, !v.Status.Final(), "seeded: %+v", v)
	return v.ID
}

// checkedDownload reads the whole of a results file and that each row is in its place.
func checkedDownload(answer *http.Response, total int64) (n int64, err error) {
	lines := bufio.NewReaderSize(answer.Body, 64<<10)
	var want []byte
	for row := int64(-1); row < total; row++ {
		line, err := lines.ReadSlice('\n')
		n += int64(len(line))
		if err != nil {
			return n, fmt.Errorf("row %d: %w", row, err)
		}
		want = fmt.Appendf(want[:0], "user%d@example.test,valid,", row)
		if row >= 0 && !bytes.HasPrefix(line, want) {
			return n, fmt.Errorf("row %d is %q", row, line)
		}
	}
	if _, err := lines.ReadByte(); err != io.EOF {
		return n, fmt.Errorf("after the last row: %w", err)
	}
	return n, nil
}

// downloads reads the results of one verification with some clients at once.
func (r *rig) downloads(id uuid.UUID, clients int, total int64) (bytes int64, took time.Duration) {
	r.t.Helper()
	var wait sync.WaitGroup
	read, began := make([]int64, clients), time.Now()
	for i := range clients {
		wait.Go(func() {
			answer, err := once(r.t.Context(), r.client(), "/v1/verifications/"+id.String()+"/results")
			if err != nil {
				r.t.Error(err)
				return
			}
			defer answer.Body.Close()
			read[i], err = checkedDownload(answer, total)
			effort.ErrorIf(r.t, err != nil, "%v", err)
		})
	}
	wait.Wait()
	for _, n := range read {
		bytes += n
	}
	return bytes, time.Since(began)
}

// stopped has some clients begin a download and stop reading, does what is asked meanwhile, and lets them go.
func (r *rig) stopped(id uuid.UUID, clients int, meanwhile func()) {
	r.t.Helper()
	for range clients {
		answer := effort.Must(once(r.t.Context(), r.client(), "/v1/verifications/"+id.String()+"/results"))(r.t)
		defer answer.Body.Close()
		effort.Must(io.CopyN(io.Discard, answer.Body, stoppedAfter))(r.t)
	}
	meanwhile()
}

func TestLoadDownloads(t *testing.T) {
	t.Parallel()
	total := int64(100_000)
	if effort.Long() {
		total = 1_000_000
	}
	r := newRig(t, "127.0.0.1:1", 25, "")
	r.environ = append(r.environ, "ROLLCALL_HTTP_DOWNLOADS_AT_ONCE=100")
	node := r.serves()
	r.open(total)
	node.terminate()
	id := r.settled(total)
	node = r.serves()
	pid := node.command.Process.Pid
	for _, clients := range []int{1, downloadClients} {
		before, err := resetMemoryMost(pid)
		if err != nil {
			t.Skip("this system does not tell a peak of memory:", err)
		}
		bytes, took := r.downloads(id, clients, total)
		r.memoryWithin(pid, before, fmt.Sprintf("%d rows, %d clients: %.0f MB/s together", total, clients,
			float64(bytes)/1e6/took.Seconds()))
	}
	r.stopped(id, downloadClients, func() {
		before := effort.Must(resetMemoryMost(pid))(t)
		bytes, took := r.downloads(id, 1, total)
		r.memoryWithin(pid, before, fmt.Sprintf("%d rows, %d clients that stopped, and one more: %.0f MB/s", total,
			downloadClients, float64(bytes)/1e6/took.Seconds()))
	})
	node.terminate()
}

// memoryWithin says how much memory the node took at most since it had before.
func (r *rig) memoryWithin(pid int, before int64, what string) {
	r.t.Helper()
	most := effort.Must(memoryMost(pid))(r.t)
	r.t.Logf("%s; the node had %d MB before and %d MB at the peak", what, before>>20, most>>20)
	if most-before > downloadGrowthMax {
		r.t.Errorf("%s: %d MB more, at most %d wanted", what, (most-before)>>20, downloadGrowthMax>>20)
	}
}
