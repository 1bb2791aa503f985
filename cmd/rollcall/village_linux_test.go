package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/cmd/rollcall/client"
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
	l := newLarge(t)
	r, v, node := l.rig, l.village, l.node
	log := node.listen()
	r.open(int64(*manyAddresses))
	ctx, cancel := context.WithTimeout(t.Context(), manyWithin)
	defer cancel()
	c, file := r.client(), villageFile(*manyAddresses, *manyDomains)
	id := mustHandIn(ctx, t, c, file)
	began, d, receivers, told := time.Now(), api.Detail{}, 0.0, time.Now()
	for d.CompletedAt == nil {
		var err error
		if d, err = look(ctx, c, id); err != nil {
			t.Fatal(err)
		}
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
		if err := term.Sleep(ctx, time.Second); err != nil {
			t.Fatalf("no end in sight: %+v", d)
		}
	}
	peak, err := memoryMost(node.command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d addresses at %d domains in %s: peak %d MB, at most %.0f receivers, %d warnings; %d valid, %d invalid, %d "+
		"RCPTs",
		*manyAddresses, *manyDomains, time.Since(began).Round(time.Second), peak>>20, receivers, log.warnings(),
		v.accepted.Load(), v.refused.Load(), v.accepted.Load()+v.refused.Load())
	if peak > manyMemory {
		t.Errorf("peak of %d MB, want at most %d", peak>>20, manyMemory>>20)
	}
	if d.Progress.Completed != int64(*manyAddresses) {
		t.Errorf("%d of %d are known", d.Progress.Completed, *manyAddresses)
	}
	if code := node.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d", code)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	v.port = listener.Addr().(*net.TCPAddr).Port
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

var (
	largeFiles  = flag.Int("large-files", 5, "files of each of two tenants in TestMemoryOfLargeFiles")
	largeWithin = flag.Duration("large-within", 10*time.Minute, "after which TestMemoryOfLargeFiles stops looking")
)

// large is a built node beside the village, with tenants of its own.
type large struct {
	*rig
	node    *background
	village *village
}

func newLarge(t *testing.T) *large {
	t.Helper()
	if !effort.Long() {
		t.Skip("takes minutes: run it with -long")
	}
	v := newVillage(t)
	r := newRig(t, rigOptions{dns: v.dns, smtpPort: v.port, settings: fmt.Sprintf(`
[limits]
max_rows = %d
max_file_bytes = 1000000000
`, *manyAddresses+1) + wideOpen})
	l := &large{rig: r, node: r.serve(), village: v}
	l.node.waitFor("node started")
	return l
}

// client opens a workspace, and gives a client of it.
func (l *large) client(workspace string, credits int64) *client.API {
	l.t.Helper()
	token, err := client.ReadToken(filepath.Join(l.folder, "rollcall-data"))
	var who client.Tenant
	if err == nil {
		who, err = client.OpenTenant(l.t.Context(), client.NewAdmin(l.admin, token), client.TenantOptions{
			File: filepath.Join(l.folder, workspace+".json"), Workspace: workspace, Credits: credits})
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return client.NewAPI(l.api, who.Key, func(string) {})
}

// TestMemoryOfLargeFiles measures what a node takes for large files of two tenants at once. With one file
// each and with five the peak is about the same, for a workspace has one large file in work at a time:
//
//	go test ./cmd/rollcall -run MemoryOfLargeFiles -long -v -many-addresses 5000000 -many-domains 200000 -large-files 5
func TestMemoryOfLargeFiles(t *testing.T) {
	l := newLarge(t)
	ctx, cancel := context.WithTimeout(t.Context(), *largeWithin+time.Minute)
	defer cancel()
	file := villageFile(*manyAddresses, *manyDomains)
	began := time.Now()
	credits := int64(*largeFiles) * int64(*manyAddresses)
	clients := [2]*client.API{l.client("first", credits), l.client("second", credits)}
	var ids []string
	for range *largeFiles {
		for _, c := range clients {
			id, err := handIn(ctx, c, "many.csv", file)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
	}
	t.Logf("%d files of %d MB are uploaded after %s", len(ids), len(file)>>20, time.Since(began).Round(time.Second))
	ended := 0
	for ended < len(ids) && time.Since(began) < *largeWithin {
		if err := term.Sleep(ctx, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		states, done := map[string]int{}, int64(0)
		ended = 0
		for i, id := range ids {
			d, err := look(ctx, clients[i%2], id)
			if err != nil {
				t.Fatal(err)
			}
			states[string(d.Status)]++
			done += d.Progress.Completed
			if d.CompletedAt != nil {
				ended++
			}
		}
		peak, err := memoryMost(l.node.command.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v, %d addresses known, peak %d MB, %.0f MB of files in work, %.0f files wait",
			time.Since(began).Round(time.Second),
			states, done, peak>>20, l.metric(ctx, "rollcall_file_bytes")/(1<<20), l.metric(ctx, "rollcall_files_waiting"))
	}
	if code := l.node.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d", code)
	}
}

// TestSmallFilesBesideALargeOne measures a thousand files of ten addresses, of a hundred tenants, alone and
// beside one large file of another:
//
//	go test ./cmd/rollcall -run SmallFilesBesideALargeOne -long -v -many-addresses 5000000 -many-domains 200000
func TestSmallFilesBesideALargeOne(t *testing.T) {
	const tenants, files = 100, 10
	l := newLarge(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	clients := make([]*client.API, tenants)
	for i := range clients {
		clients[i] = l.client(fmt.Sprintf("small%d", i), 3*files*10)
	}
	thousand := func(what string) {
		began := time.Now()
		took := l.smallFiles(ctx, clients, files)
		t.Logf("%s: %d files of ten addresses in %s; a file took %s in the median, %s at the 99th percentile, %s at most",
			what,
			len(took), time.Since(began).Round(time.Millisecond), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	}
	thousand("first")
	thousand("alone")
	c := l.client("large", int64(*manyAddresses))
	id, err := handIn(ctx, c, "many.csv", villageFile(*manyAddresses, *manyDomains))
	if err != nil {
		t.Fatal(err)
	}
	thousand(fmt.Sprintf("beside %d addresses", *manyAddresses))
	d, err := look(ctx, c, id)
	if err != nil || d.CompletedAt != nil {
		t.Errorf("the large file is over, or nobody knows: %v", err)
	}
	peak, err := memoryMost(l.node.command.Process.Pid)
	t.Logf("the large file: %s, %d known; peak %d MB, %v", d.Status, d.Progress.Completed, peak>>20, err)
}

// smallFiles has ten tenants at a time send their files, one after the other, and gives how long each took, sorted.
func (l *large) smallFiles(ctx context.Context, clients []*client.API, files int) []time.Duration {
	l.t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	free := make(chan struct{}, 10)
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			for n := range files {
				began := time.Now()
				err := smallFile(ctx, c, fmt.Sprintf("d%d.test", i*files+n))
				mu.Lock()
				took, failed = append(took, time.Since(began).Round(time.Millisecond)), errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if failed != nil || len(took) < len(clients)*files {
		l.t.Fatalf("%d of %d small files: %v", len(took), len(clients)*files, failed)
	}
	slices.Sort(took)
	return took
}

// smallFile sends ten addresses of a domain, and waits until all are known.
func smallFile(ctx context.Context, c *client.API, domain string) error {
	var text strings.Builder
	text.WriteString("email\n")
	for i := range 10 {
		fmt.Fprintf(&text, "anna.small%d@%s\n", i, domain)
	}
	id, err := handIn(ctx, c, "small.csv", []byte(text.String()))
	if err != nil {
		return err
	}
	var d api.Detail
	for d.CompletedAt == nil {
		if d, err = look(ctx, c, id); err != nil {
			return err
		}
		if err := term.Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("no end of a small file in sight: %+v", d)
		}
	}
	return nil
}
