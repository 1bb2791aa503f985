package mx

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// FuzzRoute lets a server answer with any bytes, over UDP and TCP: those for MX, then those for each address question.
// Only the number and the question are made right, without which an answer is dropped as a forger's. There is a route
// within bounds, a plain "no mail", or an error; what DNS does not deny is never denied by us.
func FuzzRoute(f *testing.F) {
	for _, records := range [][2]string{
		{"d.test. 60 IN MX 1 mx.d.test.", "mx.d.test. 60 IN A 192.0.2.1"},
		{"d.test. 60 IN MX 0 .", "mx.d.test. 60 IN A 10.0.0.1"},
		{"d.test. 60 IN CNAME d.test.", "mx.d.test. 60 IN CNAME mx.d.test."},
		{"d.test. 60 IN MX 1 192.0.2.1.", "d.test. 60 IN A 192.0.2.1"},
		{"d.test. 60 IN SOA a. b. 1 2 3 4 5", "d.test. 60 IN AAAA ::ffff:10.0.0.1"},
	} {
		f.Add(answerBytes(f, records[0]), answerBytes(f, records[1]))
	}
	nameError := []byte{0x81, 0x83, 0, 0, 0, 0, 0, 0}
	f.Add(nameError, nameError)
	f.Add([]byte{0x83, 0x80, 0xff, 0xff}, []byte{})
	server := startParrot(f)
	f.Fuzz(func(t *testing.T, toMX, toAddress []byte) {
		server.say(toMX, toAddress)
		o := testOptions(server.addr)
		o.Timeout = 200 * time.Millisecond // a lookup that only waits wastes the fuzzer's time
		r := effort.Must(New(o))(t)
		defer r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		route, err := r.Lookup(ctx, "d.test")
		var failed *Error
		switch {
		case err != nil && !errors.As(err, &failed):
			t.Fatalf("error %v, want an *Error", err)
		case err != nil:
			return
		case route.NoMail == smtp.DomainNotFound && !server.denies():
			t.Fatalf("%q and %q are taken for a domain that does not exist", toMX, toAddress)
		}
		checkRoute(t, o, route)
	})
}

// checkRoute holds a route to the bounds that it promises.
func checkRoute(t *testing.T, o Options, route Route) {
	t.Helper()
	none := len(route.Hosts) == 0
	effort.FatalIf(t, none != (route.NoMail != smtp.ReasonNone) || none != (route.Receiver == "") ||
		len(route.Hosts) > hostsMax, "%+v", route)
	total := 0
	for _, h := range route.Hosts {
		effort.FatalIf(t, !isHostName(h.Name) || h.Name != strings.ToLower(h.Name) || len(h.Addrs) == 0,
			"host %q with %d addresses", h.Name, len(h.Addrs))
		for _, a := range h.Addrs {
			effort.FatalIf(t, !o.Allow(a), "%v may not be dialled and is in the route", a)
		}
		total += len(h.Addrs)
	}
	effort.FatalIf(t, total > routeAddrsMax, "%d addresses", total)
}

// answerBytes is what follows the number of a message with one answer, without its question.
func answerBytes(f *testing.F, record string) []byte {
	f.Helper()
	rr := effort.Must(dns.NewRR(record))(f)
	m := &dns.Msg{Answer: []dns.RR{rr}}
	m.Response, m.RecursionAvailable = true, true
	packet := effort.Must(m.Pack())(f)
	// Flags, then the counts behind that of the questions, then the records.
	return append(append(packet[2:4:4], packet[6:12]...), packet[12:]...)
}

// parrot is a DNS server that answers with bytes that it was given.
type parrot struct {
	addr string

	mu   sync.Mutex // guards all below
	says [2][]byte  // to MX, to anything else
}

func startParrot(f *testing.F) *parrot {
	f.Helper()
	packets, listener := listenBoth(f)
	p := &parrot{addr: packets.LocalAddr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		in := make([]byte, 1<<16)
		for {
			n, from, err := packets.ReadFrom(in)
			if err != nil {
				return
			}
			if out := p.answer(in[:n]); len(out) <= 1<<15 {
				_, _ = packets.WriteTo(out, from)
			}
		}
	})
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(conn) })
		}
	})
	f.Cleanup(func() {
		_, _ = packets.Close(), listener.Close()
		running.Wait()
	})
	return p
}

// serve answers one question over TCP.
func (p *parrot) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // only against a hanging test
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	question := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, question); err != nil {
		return
	}
	out := p.answer(question)
	out = out[:min(len(out), 1<<16-1)]
	_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
}

func (p *parrot) say(toMX, toAddress []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.says = [2][]byte{toMX, toAddress}
}

// denies reports whether an answer has the code of a name that does not exist.
func (p *parrot) denies() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bytes := range p.says {
		if len(bytes) > 1 && bytes[1]&0xf == dns.RcodeNameError {
			return true
		}
	}
	return false
}

// answer puts the bytes behind the number of the question and the question itself.
func (p *parrot) answer(packet []byte) []byte {
	q := new(dns.Msg)
	if q.Unpack(packet) != nil || len(q.Question) != 1 {
		return nil
	}
	p.mu.Lock()
	bytes := p.says[1]
	if q.Question[0].Qtype == dns.TypeMX {
		bytes = p.says[0]
	}
	p.mu.Unlock()
	head := make([]byte, 8)
	copy(head, bytes)
	head[0] = head[0]&0x07 | 0x80 // an answer to a plain query
	out := binary.BigEndian.AppendUint16(nil, q.Id)
	out = append(out, head[:2]...)
	out = append(out, 0, 1)
	out = append(out, head[2:]...)
	bare := &dns.Msg{Question: q.Question}
	if question, err := bare.Pack(); err == nil {
		out = append(out, question[12:]...)
	}
	return append(out, bytes[min(8, len(bytes)):]...)
}
