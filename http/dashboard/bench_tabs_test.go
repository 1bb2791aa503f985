//go:build unix

package dashboard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/smtp"
)

const (
	openPages = 1000
	settleFor = 40 * time.Second // until all pages have their pace
	watchFor  = 60 * time.Second
)

// BenchmarkOpenTabs has 1,000 pages of verifications that do not change open for a minute, each with a connection of its own
// that asks when it was told to. The browsers are another process. It reports how much of a core the node takes (core-%), and
// how often the pages ask (polls/s).
func BenchmarkOpenTabs(b *testing.B) {
	g := newRig(b)
	if _, err := g.book.Grant(context.Background(), uuid.New(), g.workspace, 10*openPages, "test"); err != nil {
		b.Fatal(err)
	}
	paths := make([]string, openPages)
	for i := range paths {
		v := g.verification(fmt.Sprintf("open-%d.csv", i), 3, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
		paths[i] = g.path("/verifications/" + v.ID.String() + "/live")
	}
	for b.Loop() {
		asked, end := g.startTabs(paths)
		<-time.After(settleFor)
		before, polls := processor(b), asked.Load()
		<-time.After(watchFor)
		took, polled := processor(b)-before, asked.Load()-polls
		end()
		b.ReportMetric(100*took.Seconds()/watchFor.Seconds(), "core-%")
		b.ReportMetric(float64(polled)/watchFor.Seconds(), "polls/s")
		b.ReportMetric(1000*took.Seconds()/float64(polled), "ms/poll")
	}
}

// tabsOf is what the process of the browsers is told: the node, the session, and the parts that they ask for.
const tabsOf = "ROLLCALL_TABS_OF"

// startTabs starts a process with a browser's page for each path. It gives how often they have asked so far.
func (g *rig) startTabs(paths []string) (asked *atomic.Int64, end func()) {
	g.t.Helper()
	command := exec.Command(os.Args[0], "-test.run", "^TestTabsOfABenchmark$")
	command.Env = append(os.Environ(), tabsOf+"="+strings.Join(append([]string{g.url, g.as["viewer"].session}, paths...), " "))
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		g.t.Fatal(err)
	}
	asked = &atomic.Int64{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				asked.Store(n)
			}
		}
	}()
	return asked, func() {
		_ = in.Close()
		<-read
		if err := command.Wait(); err != nil {
			g.t.Errorf("the browsers: %v", err)
		}
	}
}

// TestTabsOfABenchmark is the process of the browsers of BenchmarkOpenTabs. It ends with its standard input.
func TestTabsOfABenchmark(t *testing.T) {
	told := strings.Fields(os.Getenv(tabsOf))
	if len(told) < 3 {
		t.Skip("it is the other process of BenchmarkOpenTabs")
	}
	g := &rig{t: t, url: told[0], as: map[string]*browser{"viewer": {session: told[1]}}}
	paths := told[2:]
	ctx, end := context.WithCancel(t.Context())
	var asked atomic.Int64
	var pages sync.WaitGroup
	for i, path := range paths {
		pages.Go(func() { g.keepOpen(ctx, path, time.Duration(i)*5*time.Second/time.Duration(len(paths)), &asked) })
	}
	pages.Go(func() {
		tick := time.NewTicker(time.Second / 4)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			fmt.Println(asked.Load())
		}
	})
	_, _ = io.Copy(io.Discard, os.Stdin)
	end()
	pages.Wait()
}

var paceOf = regexp.MustCompile(`data-hx-trigger="every (\d+)s"`)

// keepOpen is one open page: it asks, and again when it was told to, until the context ends.
func (g *rig) keepOpen(ctx context.Context, path string, first time.Duration, asked *atomic.Int64) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		g.t.Error(err)
		return
	}
	defer conn.Close()
	answers, tag, again := bufio.NewReader(conn), "", time.NewTimer(first)
	pace := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nCookie: __Host-rollcall=%s\r\nIf-None-Match: %s\r\n\r\n", path,
			g.as["viewer"].session, tag)
		a, err := http.ReadResponse(answers, nil)
		if err != nil || a.StatusCode != 200 && a.StatusCode != 304 {
			g.t.Errorf("%s: %v", path, err)
			return
		}
		if body, _ := io.ReadAll(a.Body); a.StatusCode == 200 {
			tag = a.Header.Get("ETag")
			if found := paceOf.FindSubmatch(body); found != nil {
				pace, _ = strconv.Atoi(string(found[1]))
			}
		}
		if pace == 0 {
			g.t.Errorf("%s does not say when to ask again", path)
			return
		}
		asked.Add(1)
		again.Reset(time.Duration(pace) * time.Second)
	}
}

// processor is what this process has taken of the processor so far.
func processor(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
