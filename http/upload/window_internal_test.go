package upload

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/http/listen"
)

// TestTheFloorUnderAClientsRate lets a client write to the reader of a body in the
// time of a bubble, each second so many bytes, and wants to know how long it is read.
func TestTheFloorUnderAClientsRate(t *testing.T) {
	const window, floor = 10 * time.Second, 4000 // 400 a second
	for _, c := range []struct {
		name   string
		rate   func(second int) int
		cutMin time.Duration // 0: all is read
		cutMax time.Duration
	}{
		{"ten times the floor", func(int) int { return 4000 }, 0, 0},
		{"a tenth above the floor", func(int) int { return 450 }, 0, 0},
		{"all of a window in its last second", func(s int) int { return max(1, (s%9)/8*5000) }, 0, 0},
		{"half the floor", func(int) int { return 200 }, window, window},
		{"nothing", func(int) int { return 0 }, window, window},
		{"fast, and then below the floor", func(s int) int { return max(1, 5000-s*1000) }, window, 2 * window},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const all = 200_000
				client, server := net.Pipe()
				conn := &listen.Conn{Conn: server}
				s := &Server{o: Options{Window: window, WindowBytes: floor}}
				r := &put{s: s, conn: conn, store: all, pending: make([]byte, 0, all+1)}
				var sent atomic.Int64
				var writer sync.WaitGroup
				writer.Go(func() {
					tick := time.Tick(time.Second)
					for second := 0; sent.Load() < all; second++ {
						n, err := client.Write(make([]byte, min(c.rate(second), int(all-sent.Load()))))
						if sent.Add(int64(n)); err != nil {
							return
						}
						<-tick
					}
				})
				began := time.Now()
				err := r.readAll(conn)
				took := time.Since(began)
				synctest.Wait() // until the client knows what it has sent
				_ = server.Close()
				_ = client.Close()
				writer.Wait()
				switch {
				case c.cutMin == 0 && (err != nil || sent.Load() != all):
					t.Errorf("cut after %s and %d bytes: %v", took, sent.Load(), err)
				case c.cutMin > 0 && (!listen.IsTimeout(err) || took < c.cutMin || took > c.cutMax):
					t.Errorf("%v after %s, want a cut after %s to %s", err, took, c.cutMin, c.cutMax)
				case c.cutMin == 0 && len(r.pending) != all:
					t.Errorf("%d bytes are kept of %d", len(r.pending), all)
				}
			})
		})
	}
}
