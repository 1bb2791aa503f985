package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/smtp/smtplab"
)

// These are the figures of docs/developers/measured.md about speed: a built binary as the node, the lab and a client in
// the test's process. -binaries measures several binaries in turn on the same lists, -rounds all of them again.
//
//	go test ./cmd/rollcall -run '^TestSpeed$/^Z' -long -v -timeout 60m -rounds 3 -binaries /tmp/before,/tmp/after

var (
	binaries = flag.String("binaries", "", "rollcall binaries of TestSpeed and TestWorlds, with commas; \"\": this tree's")
	rounds   = flag.Int("rounds", 1, "how often TestSpeed measures each binary")
)

// underTest is the binaries that are measured, "" for the one of this tree.
func underTest() []string { return strings.Split(*binaries, ",") }

// named is a binary in a table.
func named(path string) string {
	if path == "" {
		return "this tree"
	}
	return filepath.Base(path)
}

// speedWork is one list and what the node may do with it.
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

// settings let 64 connections do what they can.
func (w speedWork) settings() string {
	change := []string{"connections = 4", "connections = 64", "rcpts_per_transaction = 100",
		fmt.Sprintf("pipelining = %v", w.pipelining)}
	if w.perTransaction > 0 {
		change[3] += fmt.Sprintf("\nrcpts_per_transaction = %d", w.perTransaction)
	}
	return strings.NewReplacer(change...).Replace(wideOpen)
}

// file has addresses over domains as often as Zipf's law says; 22 in 100 of them don't exist.
func (w speedWork) file() []byte {
	return []byte("email\n" + strings.Join(drawList(w.addresses, zipf(w.domains, "clean"), "ghost", 220), "\n") + "\n")
}

// zipf draws of so many domains of a personality, each as often as Zipf's law says.
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

// speed is what one run took.
type speed struct {
	engine    time.Duration // from the creation to the end, as the node's log has them
	processor time.Duration // of the node
	objects   float64       // that the node allocated
	memory    int64         // its peak, in bytes
	held      float64       // the most acceptances that were not settled a second later
	seen      time.Duration // how long after the end a client saw it
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
	defer stopLab(t, lab) // each host of a lab is an open file, of which there are not enough for many labs
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
	first, second := r.metric(objects), r.metric(objects) // a look takes some too
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

// seeTheEnd looks at a verification as often as the service says, and gives when it saw the end.
func seeTheEnd(ctx context.Context, c *client.API, id string) time.Time {
	for {
		d, wait, err := c.Detail(ctx, id)
		if err != nil || d.CompletedAt != nil || term.Sleep(ctx, wait) != nil {
			return time.Now()
		}
	}
}

var validOutcomes = regexp.MustCompile(`(?m)^rollcall_outcomes_total\{outcome="valid".*\} (\S+)$`)

// mostHeld waits for the end of a run, and gives the most addresses that the lab had accepted a second before without
// their being settled, and how often it looked.
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
