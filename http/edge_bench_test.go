package http_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/config/effort"
	httpd "rollcall/http"
)

// benchConns are the connections of a benchmark, each with one request at a time.
const benchConns = 64

// hammer sends raw on many kept connections until n answers of status 200 came back, and gives how many
// there were in a second.
func hammer(b *testing.B, address string, raw []byte, n int) float64 {
	b.Helper()
	conns := make([]net.Conn, benchConns)
	for i := range conns {
		c := effort.Must(net.Dial("tcp", address))(b)
		defer c.Close()
		conns[i] = c
	}
	began := time.Now()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			r := bufio.NewReader(c)
			var res fasthttp.Response
			for range n / benchConns {
				if _, err := c.Write(raw); err != nil {
					b.Error(err)
					return
				}
				if err := res.Read(r); err != nil || res.StatusCode() != 200 {
					b.Errorf("answer %d, %v", res.StatusCode(), err)
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(began).Seconds()
}

// bareServer is the smallest server that the library can make: a map of keys to answers. It gives its address.
func bareServer(b *testing.B, key string) string {
	known := map[string]string{key: `{"credits":1000000}`}
	l := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(b)
	s := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		answer, ok := known[string(ctx.Request.Header.Peek("X-API-Key"))]
		if !ok {
			ctx.SetStatusCode(fasthttp.StatusUnauthorized)
			return
		}
		ctx.SetContentType("application/json")
		ctx.SetBodyString(answer)
	}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	b.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// BenchmarkCreditsDetailHistory measures what customers read all the time, with a real key and ledger, beside a bare
// server, in turn: while nothing is written, and while the ledger is written 50 times a second. Medians.
func BenchmarkCreditsDetailHistory(b *testing.B) {
	const each = 20_000 // requests
	for _, written := range []bool{false, true} {
		b.Run(fmt.Sprintf("written=%t", written), func(b *testing.B) {
			e := newEdge(b, func(o *httpd.Options) {
				o.Limits.Reads = httpd.Rate{PerSecond: 1e9, Burst: 1e9}
				o.Log = slog.New(slog.NewJSONHandler(io.Discard, nil)) // info, as in production
			})
			var last uuid.UUID
			for range 25 {
				last = e.verified(1, results(1))
			}
			if written {
				defer e.writeOften()()
			}
			reads := []struct{ name, address, path string }{{"bare", bareServer(b, e.key), "/v1/credits"},
				{"credits", e.server.Addr().String(), "/v1/credits"},
				{"detail", e.server.Addr().String(), "/v1/verifications/" + last.String()},
				{"history", e.server.Addr().String(), "/v1/verifications"}}
			rates := make([][]float64, len(reads))
			for b.Loop() {
				for i, r := range reads {
					raw := "GET " + r.path + " HTTP/1.1\r\nHost: a\r\nX-API-Key: " + e.key + "\r\n\r\n"
					rates[i] = append(rates[i], hammer(b, r.address, []byte(raw), each))
				}
			}
			for i, r := range reads {
				slices.Sort(rates[i])
				b.ReportMetric(rates[i][len(rates[i])/2], r.name+"/s")
				b.ReportMetric(rates[i][len(rates[i])/2]/rates[0][len(rates[0])/2], r.name+"/bare")
			}
		})
	}
}

// writeOften writes to the ledger 50 times a second until the function that it gives is called.
func (e *edge) writeOften() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.Tick(20 * time.Millisecond)
		for ctx.Err() == nil {
			<-tick
			if _, err := e.book.Grant(context.Background(), uuid.New(), e.workspace, 1, "test"); err != nil {
				e.t.Errorf("write: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
