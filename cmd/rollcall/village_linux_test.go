package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/http/api"
)

var (
	manyAddresses = flag.Int("many-addresses", 1_000_000, "addresses of TestMemoryOfManyDomains")
	manyDomains   = flag.Int("many-domains", 40_000, "domains of TestMemoryOfManyDomains")
)

const (
	// manyMemory is what a node may take for 5,000,000 addresses at 200,000 domains.
	manyMemory = 600 << 20
	manyWithin = 3 * time.Hour
)

// TestMemoryOfManyDomains measures what a node takes for one file of very many domains, each with a
// receiver of its own:
//
//	go test ./cmd/rollcall -run MemoryOfManyDomains -long -v -timeout 4h -many-addresses 5000000 -many-domains 200000
func TestMemoryOfManyDomains(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	v := newVillage(t)
	r := newRig(t, rigOptions{dns: v.dns, smtpPort: v.port, settings: fmt.Sprintf(`
[limits]
max_rows = %d
max_file_bytes = 1000000000
`, *manyAddresses+1) + wideOpen})
	node := r.serve()
	node.waitFor("node started")
	log := node.listen()
	r.open(int64(*manyAddresses))
	ctx, cancel := context.WithTimeout(t.Context(), manyWithin)
	defer cancel()
	c, file := r.client(), villageFile(*manyAddresses, *manyDomains)
	id := mustHandIn(ctx, t, c, file)
	began, d, receivers, told := time.Now(), api.Detail{}, 0.0, time.Now()
	for d.CompletedAt == nil {
		d = effort.Must(look(ctx, c, id))(t)
		living := r.metric(ctx, "rollcall_receivers")
		receivers = max(receivers, living)
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			peak, _ := memoryMost(node.command.Process.Pid)
			t.Logf("%s: %d of %d, peak %d MB, %.0f receivers live, %.0f wait, %.0f sessions",
				time.Since(began).Round(time.Second),
				d.Progress.Completed, *manyAddresses, peak>>20, living, r.metric(ctx, "rollcall_receivers_waiting"),
				r.metric(ctx, "rollcall_smtp_sessions"))
		}
		effort.OK(t, term.Sleep(ctx, time.Second), "no end in sight", d)
	}
	peak := effort.Must(memoryMost(node.command.Process.Pid))(t)
	t.Logf("%d addresses at %d domains in %s: peak %d MB, at most %.0f receivers, %d warnings; %d valid, %d invalid, %d "+
		"RCPTs",
		*manyAddresses, *manyDomains, time.Since(began).Round(time.Second), peak>>20, receivers, log.warnings(),
		v.accepted.Load(), v.refused.Load(), v.accepted.Load()+v.refused.Load())
	if peak > manyMemory {
		t.Errorf("peak of %d MB, want at most %d", peak>>20, manyMemory>>20)
	}
	effort.Is(t, d.Progress.Completed, int64(*manyAddresses), *manyAddresses, "known")
	node.terminate()
}

// villageFile is a file of addresses over domains d0.test, d1.test and so on; a fifth of them is refused.
func villageFile(n, domains int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range n {
		name := "anna"
		if (i+i/domains)%5 == 4 {
			name = "ghost"
		}
		fmt.Fprintf(&b, "%s%d@d%d.test\n", name, i/domains, i%domains)
	}
	return b.Bytes()
}

// village is any number of receivers, each at an address of its own on loopback, that share one
// listening socket: a lab has one for each, of which a system allows too few.
type village struct {
	dns               string
	port              int
	accepted, refused atomic.Int64
}

// newVillage starts the receivers and their DNS server, which end with the test.
func newVillage(t *testing.T) *village {
	t.Helper()
	v := &village{}
	listener, err := net.Listen("tcp4", "0.0.0.0:0") // whoever is not from this machine is hung up on
	effort.OK(t, err)
	v.port = listener.Addr().(*net.TCPAddr).Port
	packets := effort.Must(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	v.dns = packets.LocalAddr().String()
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(v.name)}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ActivateAndServe() })
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go v.speak(conn)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		_ = server.Shutdown()
		running.Wait()
	})
	return v
}

// name answers a question: the host of dN.test is mx.dN.test, at the Nth address of 127.64.0.0/10.
func (v *village) name(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	name := strings.ToLower(q.Question[0].Name)
	domain, isHost := strings.CutPrefix(name, "mx.")
	label, _, _ := strings.Cut(domain, ".")
	n, err := strconv.ParseUint(strings.TrimPrefix(label, "d"), 10, 21)
	header := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET, Ttl: 3600}
	switch {
	case err != nil:
		m.Rcode = dns.RcodeNameError
	case !isHost && header.Rrtype == dns.TypeMX:
		m.Answer = append(m.Answer, &dns.MX{Hdr: header, Preference: 1, Mx: "mx." + domain})
	case isHost && header.Rrtype == dns.TypeA:
		n++
		at := net.IPv4(127, byte(64+n>>16), byte(n>>8), byte(n))
		m.Answer = append(m.Answer, &dns.A{Hdr: header, A: at})
	}
	_ = w.WriteMsg(m)
}

// speak is one session: it knows those whose names begin with anna.
func (v *village) speak(conn net.Conn) {
	defer conn.Close()
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil || !from.Addr().IsLoopback() {
		return
	}
	in := bufio.NewReaderSize(conn, 512)
	say := func(text string) { _, _ = conn.Write([]byte(text + "\r\n")) }
	say("220 village ESMTP")
	for {
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Minute))
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch verb := strings.ToUpper(line[:min(len(line), 4)]); verb {
		case "QUIT":
			say("221 2.0.0 bye")
			return
		case "RCPT":
			if strings.Contains(line, "<anna") {
				v.accepted.Add(1)
				say("250 2.1.5 ok")
			} else {
				v.refused.Add(1)
				say("550 5.1.1 no such user")
			}
		default:
			say("250 2.0.0 ok")
		}
	}
}
