package upload

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/http/listen"
)

// TestTheFloorUnderAClientsRate: a client writes a number of bytes each second, in a bubble. The test checks how long
// its body is read.
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

// TestUploadsAreReadAtTheRateOfTheirWorkspace: two uploads of one workspace together keep to its rate, and another
// workspace's upload does not wait for them. No client is cut because of the time in which nothing was read from it.
func TestUploadsAreReadAtTheRateOfTheirWorkspace(t *testing.T) {
	const all, rate, clients = 1_000_000, 20_000, 2
	const window, floor = 10 * time.Second, 150_000 // a client could not keep this rate while it is not read
	synctest.Test(t, func(t *testing.T) {
		s := &Server{o: Options{Window: window, WindowBytes: floor}, rates: newPaces(rate), ending: make(chan struct{}),
			metrics: newMetrics(prometheus.NewRegistry())}
		began := time.Now()
		read := func(workspace byte, size int, took *time.Duration) {
			client, server := net.Pipe()
			c := &listen.Conn{Conn: server}
			r := &put{s: s, conn: c, store: int64(size), pending: make([]byte, 0, 1<<20+1)}
			r.state.Workspace = uuid.UUID{workspace}
			go func() {
				for left := size; left > 0; left -= min(left, 16<<10) { // in pieces, as the kernel delivers them
					_, _ = client.Write(make([]byte, min(left, 16<<10)))
				}
			}()
			effort.OK(t, r.readAll(c), "workspace", workspace, "after", time.Since(began))
			*took = time.Since(began)
			_ = server.Close()
		}
		var readers sync.WaitGroup
		var took [clients + 1]time.Duration
		for i := range clients {
			readers.Go(func() { read(1, all, &took[i]) })
		}
		readers.Go(func() { read(2, rate, &took[clients]) })
		readers.Wait()
		// Nothing waits for the last piece, or for what one second at the rate brings.
		const want, less = clients * all / rate * time.Second, 3 * time.Second
		if last := max(took[0], took[1]); last > want || last < want-less {
			t.Errorf("both were read after %s, want %s or up to %s less", last, want, less)
		}
		effort.Is(t, took[clients], 0, "the other workspace's is read after")
		effort.Is(t, len(s.rates.paid), 2)
	})
}

// TestTheEndOfANodeEndsWaiting: a request that waits for its workspace's rate ends when the node stops.
func TestTheEndOfANodeEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		c := &listen.Conn{Conn: server}
		s := &Server{o: Options{Window: time.Minute, WindowBytes: 1}, rates: newPaces(1), ending: make(chan struct{}),
			metrics: newMetrics(prometheus.NewRegistry())}
		r := &put{s: s, conn: c, store: 2000, pending: make([]byte, 0, 4000)}
		time.AfterFunc(3*time.Second, func() {
			s.draining.Store(true)
			close(s.ending)
		})
		go func() { _, _ = client.Write(make([]byte, 1000)) }()
		began := time.Now()
		if err := r.readAll(c); !errors.Is(err, errDraining) || time.Since(began) != 3*time.Second {
			t.Errorf("ended after %s with %v", time.Since(began), err)
		}
	})
}
