package edge

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	httpd "rollcall/http"
	"rollcall/http/apikey"
	"rollcall/ledger"
)

// wide are limits that nobody meets.
var wide = Limits{Reads: Rate{1e9, 1e9}, Creates: Rate{1e9, 1e9}, Downloads: 1e9}

// benchLimiters runs a benchmark with the owner of the keys on the node that asks,
// and on another in a process of its own.
func benchLimiters(b *testing.B, run func(b *testing.B, l *Limiter)) {
	for _, c := range []struct {
		name string
		find func(b *testing.B) func(kind, key string) *actor.PID
	}{
		{"owner here", func(b *testing.B) func(kind, key string) *actor.PID {
			return newPlace(b, home(), newOptions(wide, whole)).resolve
		}},
		{"owner in another process", func(b *testing.B) func(kind, key string) *actor.PID {
			return startFar(b, wide).resolve
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			here := nodeAt(b, newOptions(wide, whole), c.find(b))
			connected(b, here)
			run(b, here)
			b.ReportMetric(float64(metric(b, here.options.Metrics.asks, "answered"))/float64(b.N), "questions/request")
			if lost := metric(b, here.options.Metrics.fallbacks, "reads"); lost > 0 {
				b.Logf("%d requests were not answered by the owner", lost)
			}
		})
	}
}

// BenchmarkRead measures one token: requests of one key, one after the other and 64
// at once, and of 64 keys at once.
func BenchmarkRead(b *testing.B) {
	for _, c := range []struct{ requests, keys int }{{1, 1}, {64, 1}, {64, 64}} {
		b.Run(fmt.Sprintf("%d at once of %d keys", c.requests, c.keys), func(b *testing.B) {
			benchLimiters(b, func(b *testing.B, l *Limiter) {
				var done sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for i := range c.requests {
					key := fmt.Sprint("key ", i%c.keys)
					done.Go(func() {
						for range b.N / c.requests {
							l.Read(key)
						}
					})
				}
				done.Wait()
			})
		})
	}
}

// smallBook is a ledger with one key.
type smallBook struct {
	httpd.Book
	key ledger.Key
}

func (b smallBook) KeyByID(context.Context, string) (ledger.Key, error) { return b.key, nil }
func (b smallBook) Secret(context.Context, string, int) ([]byte, error) { return make([]byte, 32), nil }
func (b smallBook) Balance(context.Context, uuid.UUID) (ledger.Balance, error) {
	return ledger.Balance{}, nil
}

// BenchmarkCredits measures GET /v1/credits of one key over 64 connections, by the
// server's own limits and by those of the cluster.
func BenchmarkCredits(b *testing.B) {
	b.Run("one node alone", func(b *testing.B) { benchCredits(b, nil) })
	benchLimiters(b, func(b *testing.B, l *Limiter) { benchCredits(b, l) })
}

func benchCredits(b *testing.B, l httpd.Limiter) {
	text, key := apikey.New()
	limits := httpd.DefaultLimits()
	limits.Reads = httpd.Rate{PerSecond: wide.Reads.PerSecond, Burst: wide.Reads.Burst}
	s, err := httpd.New(httpd.Options{Listen: "127.0.0.1:0",
		Book:         smallBook{key: ledger.Key{ID: key.ID, SecretSHA256: key.SHA256}},
		PublicUpload: func(uuid.UUID) string { return "" }, Limits: limits, Limiter: l, MaxFileBytes: 1, MaxRows: 1,
		PerWorkspace: ledger.Limits{Open: 1, Stored: 1 << 30, Unpaid: 1}, UploadExpiry: time.Hour, Log: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Start(); err != nil {
		b.Fatal(err)
	}
	hammer(b, s.Addr().String(), []byte("GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: "+text+"\r\n\r\n"))
	b.StopTimer()
	if err := s.Stop(context.Background()); err != nil {
		b.Error(err)
	}
}

// hammer sends raw on many kept connections until b.N answers of status 200 came back.
func hammer(b *testing.B, address string, raw []byte) {
	b.Helper()
	const conns = 64
	all := make([]net.Conn, conns)
	for i := range all {
		c, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		all[i] = c
	}
	b.ResetTimer()
	began := time.Now()
	var done sync.WaitGroup
	for i, c := range all {
		n := b.N / conns
		if i < b.N%conns {
			n++
		}
		done.Go(func() {
			r := bufio.NewReader(c)
			var res fasthttp.Response
			for range n {
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
	done.Wait()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "requests/s")
}
