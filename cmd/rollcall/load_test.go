package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// loadWait bounds one verification under load.
const loadWait = 10 * time.Minute

// wideOpen is a throttle file without practical limits. An address whose session fails is asked again soon; the
// default waits would take 5 min.
//
//go:embed testdata/wide_open.toml
var wideOpen string

// processorOf returns the processor time that a process has used so far (Linux).
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

// cleanFile makes a file of n addresses, spread over domains that answer honestly and at once. One in five does not
// exist.
func cleanFile(n, domains int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range n {
		name := "anna"
		if (i+i/domains)%5 == 4 { // not always at the same domains
			name = "ghost"
		}
		fmt.Fprintf(&b, "%s.m%s@d%d-clean.test\n", name, letters(i/domains), i%domains)
	}
	return b.Bytes()
}

// letters spells a number in letters. A mailbox with such a name exists at a clean receiver of the lab.
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

// mustHandIn is handIn, but ends the test on an error.
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

// resetMemoryMost sets the peak memory of a process to its present memory, and returns that (Linux).
func resetMemoryMost(pid int) (int64, error) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return 0, err
	}
	return memoryMost(pid)
}

// These tests measure a node's memory while one or ten clients download a final file, and while ten connected clients
// have stopped reading:
//
//	go test ./cmd/rollcall -run TestLoadDownloads -long -v

const (
	downloadClients = 10
	// stoppedAfter is how much a client reads before it stops: more than the first part of a file, and more than
	// buffers on the way can hold.
	stoppedAfter = 4 << 20
	// downloadGrowthMax bounds what ten downloads may add to the node's memory. With a million rows they add some 40
	// MB, mostly garbage. If each held a third of its file, they would add 330 MB.
	downloadGrowthMax = 96 << 20
)

// settled writes a final verification into the ledger of a stopped node. The addresses of each settlement are spread
// over the whole file, as if each receiver answered at its own speed.
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

// checkedDownload reads a whole results file and checks the order of its rows.
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

// downloads reads the results of one verification with several clients at once.
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

// stopped lets clients begin a download and stop reading. Then it runs meanwhile, and closes the downloads.
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

// memoryWithin checks how much more memory than before the node took at its peak.
func (r *rig) memoryWithin(pid int, before int64, what string) {
	r.t.Helper()
	most := effort.Must(memoryMost(pid))(r.t)
	r.t.Logf("%s; the node had %d MB before and %d MB at the peak", what, before>>20, most>>20)
	if most-before > downloadGrowthMax {
		r.t.Errorf("%s: %d MB more, at most %d wanted", what, (most-before)>>20, downloadGrowthMax>>20)
	}
}

// TestSpeed measures the speeds in docs/developers/measured.md. The node is a built binary; the lab and a client run
// in the test's process. -binaries measures several binaries in turn on the same lists; -rounds repeats that.
//
//	go test ./cmd/rollcall -run '^TestSpeed$/^Z' -long -v -timeout 60m -rounds 3 -binaries /tmp/before,/tmp/after

var (
	binaries = flag.String("binaries", "", "rollcall binaries of TestSpeed and TestWorlds, with commas; \"\": this tree's")
	rounds   = flag.Int("rounds", 1, "how often TestSpeed measures each binary")
)

// underTest returns the binaries to measure; "" is the binary of this tree.
func underTest() []string { return strings.Split(*binaries, ",") }

// named returns the name of a binary in a table.
func named(path string) string {
	if path == "" {
		return "this tree"
	}
	return filepath.Base(path)
}

// speedWork is one list, and the limits of the node that works on it.
type speedWork struct {
	name               string
	addresses, domains int
	turn               time.Duration
	pipelining         bool
	perTransaction     int // RCPTs; 0: the default
}

func speedWorks() (works []speedWork) {
	for _, list := range []speedWork{
		{name: "Z", addresses: 200_000, domains: 2_000},
		{name: "L", addresses: 20_000, domains: 1_000, turn: 20 * time.Millisecond},
	} {
		for _, list.pipelining = range []bool{false, true} {
			for _, list.perTransaction = range []int{0, 100} {
				works = append(works, list)
			}
		}
	}
	return append(works,
		speedWork{name: "M a tenth", addresses: 100_000, domains: 500, pipelining: true, perTransaction: 100},
		speedWork{name: "M", addresses: 1_000_000, domains: 5_000, pipelining: true, perTransaction: 100})
}

func (w speedWork) String() string {
	words := "plain"
	if w.pipelining {
		words = "PIPELINING"
	}
	rcpts := "default"
	if w.perTransaction > 0 {
		rcpts = strconv.Itoa(w.perTransaction)
	}
	return w.name + " " + words + " " + rcpts
}

// settings returns settings with 64 connections and no other limits.
func (w speedWork) settings() string {
	change := []string{"connections = 4", "connections = 64", "rcpts_per_transaction = 100",
		fmt.Sprintf("pipelining = %v", w.pipelining)}
	if w.perTransaction > 0 {
		change[3] += fmt.Sprintf("\nrcpts_per_transaction = %d", w.perTransaction)
	}
	return strings.NewReplacer(change...).Replace(wideOpen)
}

// file makes addresses that are spread over domains by Zipf's law; 22 in 100 don't exist.
func (w speedWork) file() []byte {
	return []byte("email\n" + strings.Join(drawList(w.addresses, zipf(w.domains, "clean"), "ghost", 220), "\n") + "\n")
}

// zipf draws a domain of a personality by Zipf's law.
func zipf(domains int, personality string) func(int, *rand.Rand) string {
	until, sum := make([]float64, domains), 0.0
	for i := range until {
		sum += 1 / float64(i+1)
		until[i] = sum
	}
	return func(_ int, random *rand.Rand) string {
		return fmt.Sprintf("d%d-%s.test", sort.SearchFloat64s(until, random.Float64()*sum), personality)
	}
}

// speed is the measurement of one run.
type speed struct {
	engine    time.Duration // from the creation to the end, by the node's log
	processor time.Duration // of the node
	objects   float64       // number of objects that the node allocated
	memory    int64         // its peak, in bytes
	held      float64       // most accepted addresses that were not settled a second later
	seen      time.Duration // time from the end until a client saw it
	sheet     smtplab.Tally
}

// TestSpeed prints a row for each binary, work and round.
func TestSpeed(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	for _, w := range speedWorks() {
		t.Run(w.String(), func(t *testing.T) {
			file := w.file()
			for range *rounds {
				for _, path := range underTest() {
					s := w.measure(t, path, file)
					s.log(t, w, path)
				}
			}
		})
	}
}

// log prints the row of a run.
func (s speed) log(t *testing.T, w speedWork, path string) {
	n := float64(w.addresses)
	t.Logf("| %s | %s | %.2f s | %.0f/s | %.1f us | %.1f objects | %d MB | %.0f held | seen after %.2f s | %.2f RCPTs, "+
		"%.4f connections |", w, named(path), s.engine.Seconds(), n/s.engine.Seconds(),
		float64(s.processor.Microseconds())/n, s.objects/n, s.memory>>20, s.held, s.seen.Seconds(),
		float64(s.sheet.Rcpts)/n, float64(s.sheet.Sessions)/n)
}

func (w speedWork) measure(t *testing.T, path string, file []byte) (s speed) {
	t.Helper()
	o := quickLab()
	o.Latency = w.turn
	lab := startLab(t, o)
	defer stopLab(t, lab) // each host of a lab takes an open file, so many labs would take too many
	r := newRig(t, lab.DNSAddr(), lab.SMTPPort(), w.settings())
	r.binary = path
	node := r.serves()
	log := node.listen()
	r.open(int64(w.addresses))
	ctx, cancel := context.WithTimeout(t.Context(), loadWait)
	defer cancel()
	c, pid := r.client(), node.command.Process.Pid
	before := effort.Must(processorOf(pid))(t)
	const objects = "go_memstats_mallocs_total"
	first, second := r.metric(objects), r.metric(objects) // reading the metric allocates objects too
	id := effort.Must(handIn(ctx, c, "speed.csv", file))(t)
	seen := make(chan time.Time, 1)
	go func() { seen <- seeTheEnd(ctx, c, id) }()
	held, looks := r.mostHeld(ctx, log, lab)
	after := effort.Must(processorOf(pid))(t)
	s.processor, s.held = after-before, held
	s.objects = r.metric(objects) - second - float64(looks+1)*(second-first)
	s.memory = effort.Must(memoryMost(pid))(t)
	ended := log.first("verification finished")
	s.engine, s.seen, s.sheet = ended.Sub(log.first("verification created")), (<-seen).Sub(ended), lab.Manners().Total
	if d, err := look(ctx, c, id); err != nil || d.Progress.Completed != int64(w.addresses) || s.sheet.Data > 0 {
		t.Errorf("%+v, %v; %d DATA", d, err, s.sheet.Data)
	}
	node.terminate()
	return s
}

// seeTheEnd polls a verification at the service's Retry-After, and returns the time when it saw the end.
func seeTheEnd(ctx context.Context, c *client.API, id string) time.Time {
	for {
		d, wait, err := c.Detail(ctx, id)
		if err != nil || d.CompletedAt != nil || term.Sleep(ctx, wait) != nil {
			return time.Now()
		}
	}
}

var validOutcomes = regexp.MustCompile(`(?m)^rollcall_outcomes_total\{outcome="valid".*\} (\S+)$`)

// mostHeld waits for the end of a run. It returns the most addresses that, at one look, the lab had accepted a second
// before and that were not settled, and the number of looks.
func (r *rig) mostHeld(ctx context.Context, log *nodeLog, lab *smtplab.Lab) (most float64, looks int) {
	r.t.Helper()
	const every, until = 250 * time.Millisecond, 4 // looks in a second
	var accepted []float64
	for log.count("verification finished") == 0 {
		accepted = append(accepted, float64(lab.Manners().Total.Accepted))
		settled := 0.0
		for _, match := range validOutcomes.FindAllStringSubmatch(get(r.t, r.admin+"/metrics"), -1) {
			n, _ := strconv.ParseFloat(match[1], 64)
			settled += n
		}
		most = max(most, accepted[max(0, len(accepted)-until)]-settled)
		effort.OK(r.t, term.Sleep(ctx, every), "no end in sight", settled, "are valid")
	}
	return most, len(accepted)
}
