//go:build unix

package dashboard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
// that asks when it was told to. It reports how much of a core that takes (core-%), the test's clients counted in, and how
// often the pages ask (polls/s).
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
		ctx, end := context.WithCancel(b.Context())
		var asked atomic.Int64
		var pages sync.WaitGroup
		for i, path := range paths {
			pages.Go(func() { g.keepOpen(ctx, path, time.Duration(i)*5*time.Second/openPages, &asked) })
		}
		<-time.After(settleFor)
		before, polls := processor(b), asked.Load()
		<-time.After(watchFor)
		took, polled := processor(b)-before, asked.Load()-polls
		end()
		pages.Wait()
		b.ReportMetric(100*took.Seconds()/watchFor.Seconds(), "core-%")
		b.ReportMetric(float64(polled)/watchFor.Seconds(), "polls/s")
		b.ReportMetric(1000*took.Seconds()/float64(polled), "ms/poll")
	}
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
