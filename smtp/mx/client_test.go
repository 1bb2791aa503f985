package mx

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
)

const cleanMX, cleanA = "clean.test. MX 1 mx.clean.test.", "mx.clean.test. A 192.0.2.1"

const cleanRoute = "clean.test: mx.clean.test 192.0.2.1"

// write sends packed bytes as they are.
func write(w dns.ResponseWriter, m *dns.Msg, change func(packet []byte) []byte) {
	packet, err := m.Pack()
	if err != nil {
		return
	}
	_, _ = w.Write(change(packet))
}

// TestHostileAnswers: a forger or a broken server sends something before or instead of the answer. The client then
// finds the answer or returns an error, never a wrong route or a wrong "no".
func TestHostileAnswers(t *testing.T) {
	same := func(p []byte) []byte { return p }
	forged := func(q *dns.Msg, change func(*dns.Msg)) *dns.Msg {
		m := new(dns.Msg).SetRcode(q, dns.RcodeNameError)
		change(m)
		return m
	}
	for _, tc := range []struct {
		name string
		bad  func(w dns.ResponseWriter, q *dns.Msg)
		then bool // the true answer follows, or comes over TCP
		want string
	}{
		{"wrong id, then the answer", func(w dns.ResponseWriter, q *dns.Msg) {
			write(w, forged(q, func(m *dns.Msg) { m.Id++ }), same)
		}, true, cleanRoute},
		{"wrong question, then the answer", func(w dns.ResponseWriter, q *dns.Msg) {
			write(w, forged(q, func(m *dns.Msg) { m.Question[0].Name = "other.test." }), same)
		}, true, cleanRoute},
		{"wrong type, then the answer", func(w dns.ResponseWriter, q *dns.Msg) {
			write(w, forged(q, func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT }), same)
		}, true, cleanRoute},
		{"no question, then the answer", func(w dns.ResponseWriter, q *dns.Msg) {
			write(w, forged(q, func(m *dns.Msg) { m.Question = nil }), same)
		}, true, cleanRoute},
		{"the question itself, then the answer", func(w dns.ResponseWriter, q *dns.Msg) {
			write(w, q, same)
		}, true, cleanRoute},
		{"garbage, then the answer", func(w dns.ResponseWriter, q *dns.Msg) {
			_, _ = w.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		}, true, cleanRoute},
		{"empty packet, then the answer", func(w dns.ResponseWriter, q *dns.Msg) {
			_, _ = w.Write(nil)
		}, true, cleanRoute},
		{"a storm of wrong ids: TCP", func(w dns.ResponseWriter, q *dns.Msg) {
			for i := range 20 {
				write(w, forged(q, func(m *dns.Msg) { m.Id += uint16(1 + i) }), same)
			}
		}, false, cleanRoute},
		{"right id, cut in the middle: TCP", func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			rr, _ := dns.NewRR(cleanMX)
			m.Answer = []dns.RR{rr}
			write(w, m, func(p []byte) []byte { return p[:len(p)-5] })
		}, false, cleanRoute},
		{"truncated: TCP", func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			_ = w.WriteMsg(m)
		}, false, cleanRoute},
		{"longer than was asked for: TCP", func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			for range 100 {
				rr, _ := dns.NewRR("clean.test. TXT " + strings.Repeat("x", 100))
				m.Answer = append(m.Answer, rr)
			}
			write(w, m, same)
		}, false, cleanRoute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			z := startZone(t, cleanMX, cleanA)
			z.on("clean.test.", func(w dns.ResponseWriter, q *dns.Msg) {
				if w.LocalAddr().Network() == "udp" {
					tc.bad(w, q)
					if !tc.then {
						return
					}
				}
				z.answer(w, q)
			})
			r := startResolver(t, testOptions(z.addr))
			effort.Is(t, lookup(t, r, "clean.test"), tc.want)
			overTCP := slices.ContainsFunc(z.queries(), func(q string) bool { return strings.HasPrefix(q, "tcp") })
			effort.Not(t, overTCP, tc.then, "asked over TCP")
		})
	}
}

// TestHostileOverTCP: what is wrong over TCP too is an error.
func TestHostileOverTCP(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		tcp  func(w dns.ResponseWriter, q *dns.Msg)
		want string
	}{
		{"garbage", func(w dns.ResponseWriter, q *dns.Msg) { _, _ = w.Write([]byte("garbage garbage")) }, "error: malformed"},
		{"wrong id", func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			m.Id++
			_ = w.WriteMsg(m)
		}, "error: malformed"},
		{"truncated again", func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			_ = w.WriteMsg(m)
		}, "error: malformed"},
		{"silence", silent, "error: no answer in time"},
		{"closed at once", func(w dns.ResponseWriter, q *dns.Msg) { _ = w.Close() }, "error: malformed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			z := startZone(t, cleanMX, cleanA)
			z.on("clean.test.", func(w dns.ResponseWriter, q *dns.Msg) {
				if w.LocalAddr().Network() == "tcp" {
					tc.tcp(w, q)
					return
				}
				m := new(dns.Msg).SetReply(q)
				m.Truncated = true
				_ = w.WriteMsg(m)
			})
			effort.Is(t, lookup(t, startResolver(t, testOptions(z.addr)), "clean.test"), tc.want)
		})
	}
}

// TestServersTakeTurns: what one server does not answer the next one is asked,
// and a server that is away is not waited for again.
func TestServersTakeTurns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		first   func(t *testing.T) string // its address
		perName bool                      // the first server is asked for the second name too
	}{
		{"silent", func(t *testing.T) string {
			z := startZone(t)
			z.on("clean.test.", silent)
			z.on("mx.clean.test.", silent)
			return z.addr
		}, false},
		{"nobody there", func(t *testing.T) string { return closedPort(t) }, false},
		{"failing", func(t *testing.T) string {
			z := startZone(t)
			z.code("clean.test.", dns.RcodeServerFailure)
			z.code("mx.clean.test.", dns.RcodeServerFailure)
			return z.addr
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			good := startZone(t, cleanMX, cleanA)
			r := startResolver(t, testOptions(tc.first(t), good.addr))
			effort.Is(t, lookup(t, r, "clean.test"), cleanRoute)
			asked := r.Stats().Queries - uint64(len(good.queries()))
			// Up to three times for a name, because a question is repeated that is not answered soon; for the second
			// name only if it answers.
			effort.ErrorIf(t, asked == 0 || !tc.perName && asked > 3 || tc.perName && (asked < 2 || asked > 6),
				"the first server was asked %d times", asked)
		})
	}
}

// closedPort returns a loopback address on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	conn := effort.Must(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer conn.Close()
	return conn.LocalAddr().String()
}

// TestLostPacketIsSentAgain: one lost packet costs a tenth of the time, not the answer.
func TestLostPacketIsSentAgain(t *testing.T) {
	z := startZone(t, cleanMX, cleanA)
	var lost atomic.Bool
	z.on("clean.test.", func(w dns.ResponseWriter, q *dns.Msg) {
		if lost.CompareAndSwap(false, true) {
			return
		}
		z.answer(w, q)
	})
	r := startResolver(t, testOptions(z.addr))
	effort.Is(t, lookup(t, r, "clean.test"), cleanRoute)
	s := r.Stats()
	effort.ErrorIf(t, s.Repeated != 1 || s.Queries != 3, "%+v, want 3 queries, 1 repeated", s)
}

// TestServerWithoutEDNS: RFC 6891 §6.2.2.
func TestServerWithoutEDNS(t *testing.T) {
	z := startZone(t, cleanMX, cleanA)
	old := func(w dns.ResponseWriter, q *dns.Msg) {
		if q.IsEdns0() != nil {
			_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeFormatError))
			return
		}
		z.answer(w, q)
	}
	z.on("clean.test.", old)
	z.on("mx.clean.test.", old)
	effort.Is(t, lookup(t, startResolver(t, testOptions(z.addr)), "clean.test"), cleanRoute)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	up, mute, cross := startZone(t), startZone(t), startZone(t)
	mute.on(".", silent)
	cross.code(".", dns.RcodeRefused)
	for _, tc := range []struct {
		name    string
		servers []string
		want    Kind
	}{
		{"answers", []string{up.addr}, 0},
		{"refuses, so it is there", []string{cross.addr}, 0},
		{"one of two", []string{closedPort(t), up.addr}, 0},
		{"silent", []string{mute.addr}, TimedOut},
		{"nobody there", []string{closedPort(t)}, Unreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := startResolver(t, testOptions(tc.servers...)).Check(t.Context())
			var failed *Error
			if tc.want == 0 && err == nil || errors.As(err, &failed) && failed.Kind == tc.want {
				return
			}
			t.Errorf("Check says %v, want kind %s", err, tc.want)
		})
	}
}

// TestLookupEndsWithItsContext: a caller that gives up is let go at once.
func TestLookupEndsWithItsContext(t *testing.T) {
	z := startZone(t)
	ctx, cancel := context.WithCancel(t.Context())
	z.on("slow.test.", func(dns.ResponseWriter, *dns.Msg) { cancel() })
	o := testOptions(z.addr)
	o.Timeout = nameBudget
	r := startResolver(t, o)
	begin := time.Now()
	effort.Denied(r.Lookup(ctx, "slow.test"))(t, context.Canceled)
	took := time.Since(begin)
	effort.ErrorIf(t, took > 5*time.Second, "let go after %s", took)
}

// TestCloseEndsLookups: Close waits for nothing but what is under way, which it
// ends; it may be called twice, and nothing is looked up afterwards.
func TestCloseEndsLookups(t *testing.T) {
	z := startZone(t)
	under := make(chan struct{})
	var once sync.Once
	z.on("slow.test.", func(dns.ResponseWriter, *dns.Msg) { once.Do(func() { close(under) }) })
	o := testOptions(z.addr)
	o.Timeout = nameBudget
	r := effort.Must(New(o))(t)
	ended := make(chan error, 1)
	go func() {
		_, err := r.Lookup(context.Background(), "slow.test")
		ended <- err
	}()
	<-under
	for range 2 {
		effort.ErrIs(t, r.Close(), nil, "Close")
	}
	select {
	case err := <-ended:
		effort.Not(t, err, nil, "the lookup under way gave no error")
	case <-time.After(10 * time.Second):
		t.Fatal("the lookup under way did not end")
	}
	effort.Denied(r.Lookup(t.Context(), "other.test"))(t, ErrClosed, "after Close")
}

// TestManyAtOnce: more lookups than questions may be out, over kept sockets, all answered.
func TestManyAtOnce(t *testing.T) {
	effort.NotShort(t, "takes a second of a processor")
	t.Parallel()
	z := startZone(t)
	const domains = 2000
	for i := range domains {
		z.add(t, numbered(i)+". MX 1 mx."+numbered(i)+".", "mx."+numbered(i)+". A 192.0.2.1")
	}
	o := testOptions(z.addr)
	o.Timeout = 5 * time.Second
	r := startResolver(t, o)
	var all sync.WaitGroup
	for i := range domains {
		all.Go(func() {
			want := numbered(i) + ": mx." + numbered(i) + " 192.0.2.1"
			effort.Is(t, lookup(t, r, numbered(i)), want)
		})
	}
	all.Wait()
	if s := r.Stats(); s.Queries-s.Repeated < 2*domains { // on a busy machine a lookup may begin again
		t.Errorf("%+v, want at least %d queries", s, 2*domains)
	}
}

// TestSocketsAreKeptAndRetired: many questions share a socket, and no socket
// stays so long that its port can be found out.
func TestSocketsAreKeptAndRetired(t *testing.T) {
	z := startZone(t)
	var mu sync.Mutex
	ports := make(map[string]int)
	z.on("port.test.", func(w dns.ResponseWriter, q *dns.Msg) {
		mu.Lock()
		ports[w.RemoteAddr().String()]++
		mu.Unlock()
		z.answer(w, q)
	})
	c := newClient([]string{z.addr}, 5*time.Second)
	defer c.close()
	for range 2*socketUses + 1 {
		effort.Must(c.ask(t.Context(), "port.test.", dns.TypeA))(t)
	}
	mu.Lock()
	defer mu.Unlock()
	effort.ErrorIf(t, len(ports) < 3 || len(ports) > 10,
		"%d questions from %d ports, want 3", 2*socketUses+1, len(ports))
	for port, uses := range ports {
		effort.ErrorIf(t, uses > socketUses, "%d questions from %s, want at most %d", uses, port, socketUses)
	}
}
