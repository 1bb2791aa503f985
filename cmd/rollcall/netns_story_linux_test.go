package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"rollcall/cluster"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// TestClusterOnSeparateNetworks: three processes, each in a network namespace; PostgreSQL and the lab are in others.
// One process is cut off from the ledger and the other nodes while it works, another is killed, and the third takes
// their work over. Then the cut ends and the killed node joins again. Customers notice nothing: every outcome comes
// once, healthy nodes answer, no receiver's limit is exceeded by the lab's count, and no address is asked after it
// was settled.
func TestClusterOnSeparateNetworks(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	r := newNetRig(t, "a", "b", "c")
	for _, n := range r.nodes {
		r.start(n)
	}
	r.awaitWell()
	r.open(storyCredits)
	ctx, cancel := context.WithTimeout(t.Context(), storyWithin)
	defer cancel()
	began := time.Now()
	st := &stage{netRig: r, ctx: ctx, before: r.sheet(), events: len(r.events(0)), polls: r.poll(ctx)}
	defer func() {
		if t.Failed() {
			st.showLogs(began)
		}
	}()
	for file := range storyFiles {
		sample := storySample(file)
		st.samples = append(st.samples, sample)
		text := []byte("email\n" + strings.Join(sample, "\n") + "\n")
		st.customers = append(st.customers, submitAll(ctx, t, r.rig, text))
	}
	st.reach(0.05)
	killed, cut := st.busiest()
	had := st.holding(cut)
	st.cutOff(cut)
	st.die(killed)
	st.awaitTakeover(cut, had)
	st.start(killed)
	st.heal()
	for _, c := range st.customers {
		effort.OK(t, c.wait())
	}
	st.polls.stop()
	st.judge()
	t.Logf("%d addresses in %v; %s", storyFiles*len(st.samples[0]), time.Since(began).Round(100*time.Millisecond),
		strings.Join(st.said, "; "))
	for _, n := range r.nodes {
		r.stop(n)
	}
}

const (
	storyFiles     = 3         // verifications at once, so that every node can have one
	storyCredits   = 1_000_000 // more than the story takes
	storyReceivers = 10        // that answer plainly; every file has addresses at each of them
	storyEach      = 40        // addresses of a file at each receiver
	storyWithin    = 4 * time.Minute

	// takeoverSeen is how often the test reads from the ledger who has a lease.
	takeoverSeen = 50 * time.Millisecond

	// Each node's API is asked every pollEvery. It must answer within pollWithin, which is less than our client
	// waits.
	pollEvery  = 250 * time.Millisecond
	pollWithin = 20 * time.Second

	// logTail is how many lines of a node's log a failure shows.
	logTail = 25
)

// stage is the state of a running story.
type stage struct {
	*netRig
	ctx       context.Context
	samples   [][]string // of each file
	customers []*customer
	kills     []time.Time
	before    smtplab.Sheet
	events    int // number of the lab's events before the story
	polls     *polls
	said      []string // figures
}

// storySample makes the addresses of one file; no other file has them. Some are at each plain receiver, where a
// quarter don't exist, and some elsewhere.
func storySample(file int) (sample []string) {
	mark := string([]byte{'a' + byte(file)})
	for i := range storyEach {
		for receiver := range storyReceivers {
			name := "k" + mark + "o"
			if i%4 == 3 {
				name = "ghost" + mark
			}
			sample = append(sample, fmt.Sprintf("%s%d@r%d-clean.test", name, i, receiver))
		}
	}
	for i := range storyEach / 4 {
		for _, domain := range []string{"all-catchall.test", "slow-greylist.test", "one-onesession.test",
			"two-twomx.test", "none-nxdomain.test"} {
			sample = append(sample, fmt.Sprintf("k%so%d@%s", mark, i, domain))
		}
	}
	return sample
}

// settled returns how many addresses of the story are settled.
func (st *stage) settled() (n int64) {
	for _, c := range st.customers {
		n += c.settled()
	}
	return n
}

// reach waits until this part of the addresses is settled.
func (st *stage) reach(part float64) {
	st.t.Helper()
	for float64(st.settled()) < part*float64(storyFiles*len(st.samples[0])) {
		for _, c := range st.customers {
			effort.OK(st.t, c.peek())
		}
		st.pause(20 * time.Millisecond)
	}
}

// pause lets a fault last.
func (st *stage) pause(d time.Duration) {
	st.t.Helper()
	if err := term.Sleep(st.ctx, d); err != nil {
		st.t.Fatalf("the story takes too long: %d settled", st.settled())
	}
}

// say adds a line to the figures that the story prints.
func (st *stage) say(format string, args ...any) {
	st.said = append(st.said, fmt.Sprintf(format, args...))
}

// ids returns the verifications of the story that are known by now.
func (st *stage) ids() (all []uuid.UUID) {
	for _, c := range st.customers {
		c.mu.Lock()
		id, err := uuid.Parse(c.last.ID)
		c.mu.Unlock()
		if err == nil {
			all = append(all, id)
		}
	}
	return all
}

// lease says who works on a verification.
type lease struct {
	node  uuid.UUID // nil: nobody
	epoch int64
	done  bool
}

// leases reads all leases over a connection that no cut affects.
func (st *stage) leases() map[uuid.UUID]lease {
	st.t.Helper()
	rows := effort.Must(st.book.Query(st.ctx, "SELECT id, lease_node, epoch, completed > 0 FROM verifications"))(st.t)
	ours, all := st.ids(), map[uuid.UUID]lease{}
	var id, node []byte
	var l lease
	effort.Must(pgx.ForEachRow(rows, []any{&id, &node, &l.epoch, &l.done}, func() error {
		l.node = uuid.Nil
		copy(l.node[:], node)
		if slices.Contains(ours, uuid.UUID(id)) {
			all[uuid.UUID(id)] = l
		}
		return nil
	}))(st.t)
	return all
}

// holding returns the verifications that a node works on.
func (st *stage) holding(n *netNode) map[uuid.UUID]lease {
	st.t.Helper()
	var node []byte
	const latest = "SELECT node FROM nodes WHERE name = $1 ORDER BY started DESC LIMIT 1"
	effort.OK(st.t, st.book.QueryRow(st.ctx, latest, n.name).Scan(&node), "the identity", n.name)
	held := st.leases()
	for id, l := range held {
		if l.done || l.node != uuid.UUID(node) {
			delete(held, id)
		}
	}
	return held
}

// awaitTakeover waits until the verifications of a lost node have other owners or are finished.
func (st *stage) awaitTakeover(n *netNode, had map[uuid.UUID]lease) {
	st.t.Helper()
	files, began := len(had), time.Now()
	for len(had) > 0 {
		left := st.leases()
		for id, was := range had {
			if now := left[id]; now.done || now.epoch > was.epoch && now.node != uuid.Nil {
				delete(had, id)
			}
		}
		st.pause(takeoverSeen)
	}
	st.say("%d files of %s taken over after %v", files, n.name, time.Since(began).Round(100*time.Millisecond))
}

// die kills a node and waits until other nodes have taken its work over.
func (st *stage) die(n *netNode) {
	st.t.Helper()
	had := st.holding(n)
	st.kill(n)
	st.kills = append(st.kills, time.Now())
	st.awaitTakeover(n, had)
}

// busiest returns the node with the most verifications of the story, and the one with the next most.
func (st *stage) busiest() (most, next *netNode) {
	st.t.Helper()
	held := map[*netNode]int{}
	for _, n := range st.nodes {
		held[n] = len(st.holding(n))
	}
	nodes := slices.SortedFunc(maps.Keys(held), func(a, b *netNode) int { return held[b] - held[a] })
	return nodes[0], nodes[1]
}

// cutOff cuts a node off from the ledger and the other nodes. It still asks receivers, but need not answer customers.
func (st *stage) cutOff(n *netNode) {
	st.t.Helper()
	others := []string{database}
	for _, other := range st.nodes {
		if other != n {
			others = append(others, other.name)
		}
	}
	n.become(hurt)
	st.hub.cut(n.name, others...)
}

// heal ends the cut and waits until every node is healthy.
func (st *stage) heal() {
	st.t.Helper()
	st.hub.heal()
	for _, n := range st.nodes {
		if state, _ := n.look(); state == hurt {
			n.become(recovering)
		}
	}
	st.awaitWell()
}

// showLogs prints the last lines of the nodes' logs.
func (st *stage) showLogs(since time.Time) {
	for _, n := range st.nodes {
		text, err := os.ReadFile(n.log)
		if err != nil {
			continue
		}
		lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
			var l struct {
				Time  time.Time
				Level string
			}
			return json.Unmarshal([]byte(line), &l) == nil && (l.Time.Before(since) || l.Level == "INFO")
		})
		st.t.Logf("%s said (%s):\n%s", n.name, n.log, strings.Join(lines[max(0, len(lines)-logTail):], "\n"))
	}
}

// polls ask every node's API all the time.
type polls struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	asked   int           // guarded by mu
	slowest time.Duration // guarded by mu
	broken  []string      // guarded by mu
}

// poll begins to ask.
func (r *netRig) poll(ctx context.Context) *polls {
	ctx, cancel := context.WithCancel(ctx)
	p := &polls{cancel: cancel}
	for _, n := range r.nodes {
		c := client.NewAPI("http://"+n.place.addr+":8080", r.tenant.Key, func(string) {})
		c.HTTP = &http.Client{Timeout: pollWithin, Transport: r.hub.places[outside].transport()}
		p.ended.Go(func() {
			for term.Sleep(ctx, pollEvery) == nil {
				p.ask(ctx, c, n)
			}
		})
	}
	return p
}

// ask asks one node once. If the node is healthy before and after, it must have answered.
func (p *polls) ask(ctx context.Context, c *client.API, n *netNode) {
	state, changed := n.look()
	if state != well {
		return
	}
	began := time.Now()
	answer, err := once(ctx, c, "/v1/credits")
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	took := time.Since(began)
	if _, now := n.look(); now != changed || ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	p.slowest = max(p.slowest, took)
	if err != nil {
		p.broken = append(p.broken, fmt.Sprintf("%s at %s after %v: %v", n.name, began.Format(time.TimeOnly), took, err))
	}
}

func (p *polls) stop() {
	p.cancel()
	p.ended.Wait()
}

// settlementsOf returns when each address of a verification was settled, and by which epochs, from the ledger.
func (st *stage) settlementsOf(id string) (at map[string]time.Time, epochs map[int64]int) {
	st.t.Helper()
	raw := uuid.MustParse(id)
	const all = "SELECT epoch, created, payload FROM settlements WHERE verification = $1"
	rows := effort.Must(st.book.Query(st.ctx, all, raw[:]))(st.t)
	at, epochs = map[string]time.Time{}, map[int64]int{}
	var epoch, created int64
	var payload []byte
	var b ledger.Batch
	effort.Must(pgx.ForEachRow(rows, []any{&epoch, &created, &payload}, func() error {
		if err := b.Decode(payload); err != nil {
			return err
		}
		epochs[epoch] += b.Len()
		for i := range b.Len() {
			email := string(b.Email(i))
			if _, twice := at[email]; twice {
				return fmt.Errorf("%s is settled twice", email)
			}
			at[email] = time.UnixMilli(created)
		}
		return nil
	}))(st.t)
	return at, epochs
}

// judge compares everything after a story: results, ledger, lab and API.
func (st *stage) judge() {
	st.t.Helper()
	spent := int64(0)
	for i, c := range st.customers {
		spent += c.checkOutcomes(st.truth, st.samples[i])
	}
	st.customers[0].checkBalance(spent)
	began := time.Now()
	st.audit()
	st.say("audit took %v", time.Since(began).Round(time.Millisecond))
	st.judgeLimits()
	st.judgeQuestions()
	st.judgePolls()
}

// judgeLimits checks that, by the lab's count, no receiver's limit was exceeded at any moment.
func (st *stage) judgeLimits() {
	st.t.Helper()
	now, broken := st.sheet(), []string(nil)
	for name, r := range now.Receivers {
		broken = append(broken, exceeded(name, r, st.before.Receivers[name], netLimits)...)
	}
	slices.Sort(broken)
	effort.ErrorIf(st.t, len(broken) > 0,
		"%d limits of receivers were exceeded:\n%s", len(broken), strings.Join(broken, "\n"))
	effort.ErrorIf(st.t, now.Total.Data != 0 || now.EventsDropped != 0 || now.Uncounted != 0,
		"%d times DATA, %d events dropped, %d probes uncounted; want none", now.Total.Data, now.EventsDropped,
		now.Uncounted)
}

// judgeQuestions checks that every address was settled once and not asked after that.
func (st *stage) judgeQuestions() {
	st.t.Helper()
	events := st.netRig.events(st.events)
	began, asked := map[int]time.Time{}, map[string][]smtplab.Event{}
	for _, e := range events {
		switch e.Kind {
		case "connect":
			began[e.Session] = e.At
		case "rcpt":
			asked[e.Address] = append(asked[e.Address], e)
		}
	}
	var late []string
	probes, addresses := 0, 0
	for i, c := range st.customers {
		at, epochs := st.settlementsOf(c.id)
		effort.Is(st.t, len(at), len(st.samples[i]))
		st.say("file %d settled by epoch %v", i+1, epochs)
		for _, address := range st.samples[i] {
			if strings.HasSuffix(address, "-clean.test") {
				addresses, probes = addresses+1, probes+len(asked[address])
			}
			for _, e := range asked[address] {
				if after := e.At.Sub(at[address]); after > askedLate && !diedBetween(st.kills, began[e.Session], e.At) {
					late = append(late, fmt.Sprintf("%s %v after it was settled, in a session from %s at %s, begun at %s",
						address, after, e.Client, e.At.Format(timeMillis), began[e.Session].Format(timeMillis)))
				}
			}
		}
	}
	st.say("%d extra probes for %d plain addresses", probes-addresses, addresses)
	effort.ErrorIf(st.t, probes < addresses,
		"only %d probes were seen for %d addresses: is the referee blind?", probes, addresses)
	if len(late) > 0 {
		slices.Sort(late)
		st.t.Errorf("%d probes came after the outcome was settled, such as %s", len(late), late[0])
	}
}

// timeMillis shows the time of day of an event.
const timeMillis = "15:04:05.000"

// judgePolls checks that healthy nodes answered every question.
func (st *stage) judgePolls() {
	st.t.Helper()
	p := st.polls
	p.mu.Lock()
	defer p.mu.Unlock()
	st.say("API asked %d times, slowest answer %v", p.asked, p.slowest.Round(time.Millisecond))
	if len(p.broken) > 0 {
		st.t.Errorf("healthy nodes did not answer %d questions, such as %s", len(p.broken), p.broken[0])
	}
	effort.Not(st.t, p.asked, 0, "no node was asked: is the poller blind?")
}

// cutReceiver is a receiver in a network namespace. It answers every command and records it.
type cutReceiver struct {
	at    netip.AddrPort
	lines chan string          // of its sessions
	conns chan syscall.RawConn // its sessions
	ended chan error           // by which they ended
}

// newCutReceiver listens at a place and serves sessions.
func newCutReceiver(t *testing.T, p *place) *cutReceiver {
	t.Helper()
	l := effort.Must(p.listen(p.addr + ":0"))(t)
	r := &cutReceiver{at: netip.MustParseAddrPort(l.Addr().String()), lines: make(chan string, 100),
		conns: make(chan syscall.RawConn, 9), ended: make(chan error, 9)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			t.Cleanup(func() { _ = conn.Close() })
			raw, _ := conn.(*net.TCPConn).SyscallConn()
			r.conns <- raw
			go r.serve(conn)
		}
	}()
	return r
}

func (r *cutReceiver) serve(conn net.Conn) {
	defer conn.Close()
	_, _ = io.WriteString(conn, "220 mx.test\r\n")
	in := bufio.NewScanner(conn)
	for in.Scan() {
		r.lines <- in.Text()
		_, _ = io.WriteString(conn, "250 fine\r\n")
	}
	r.ended <- in.Err()
}

// awaitLine waits for a command.
func (r *cutReceiver) awaitLine(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	for {
		select {
		case line := <-r.lines:
			if strings.HasPrefix(line, want) {
				return
			}
		case <-deadline:
			t.Fatalf("%s did not come", want)
		}
	}
}

// dialFrom dials from inside a place.
type dialFrom struct {
	*place
	smtp.Dialer
}

// DialContext implements smtp.Dialer.
func (d dialFrom) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = d.in(func() error {
		conn, err = d.Dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// TestACutEndsWhatIsUnderWay: a cut swallows a RCPT. If the system gives up the connection before the cut ends, the
// RCPT is not sent again; its slot stays reserved, because nobody knows the session's end. A session from the same port
// ends it at the receiver. A second session may wait longer, and its RCPT arrives after the cut. That proves that there
// was a cut and that it ended. A third session had sent nothing, and says QUIT after the cut.
func TestACutEndsWhatIsUnderWay(t *testing.T) {
	effort.NotShort(t, "the system gives a connection up after seconds")
	t.Parallel()
	needSpaces(t)
	h := newHub(t, "a", labHome)
	dial := func(ctx context.Context, r *cutReceiver, unacknowledged time.Duration) *smtp.Session {
		limits := smtp.DefaultLimits()
		limits.Unacknowledged, limits.Unended, limits.Rcpt, limits.Quit = unacknowledged, time.Hour, time.Hour, time.Second
		dialer := smtp.NewDialer(smtp.DialerOptions{Port: int(r.at.Port()), ConnectTimeout: smtp.ConnectTimeout,
			AllowNetworks: []netip.Prefix{netip.PrefixFrom(r.at.Addr(), 32)}})
		return effort.Must(smtp.Open(ctx, dialFrom{h.places["a"], dialer}, "mx.test", r.at, smtp.SessionOptions{
			HelloName: "probe.test", ReturnPath: "back@probe.test", TLS: smtp.TLSOff, Limits: limits}))(t)
	}
	open := func(unacknowledged time.Duration) (*cutReceiver, *smtp.Session) {
		r := newCutReceiver(t, h.places[labHome])
		return r, dial(t.Context(), r, unacknowledged)
	}
	ask := func(s *smtp.Session, local string) error {
		_, err := s.Probe(t.Context(), []smtp.Address{{Local: local, Domain: "mx.test"}}, smtp.Ask{})
		return err
	}
	short, shortSession := open(cluster.DefaultTimes().Unacknowledged)
	long, longSession := open(time.Hour)
	idle, idleSession := open(cluster.DefaultTimes().Unacknowledged)
	for i, s := range []*smtp.Session{shortSession, longSession, idleSession} {
		effort.OK(t, ask(s, fmt.Sprintf("before%d", i)))
	}
	old := <-short.conns
	effort.Within(t, "our system has acknowledged all", func() bool {
		n := 1
		_ = old.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		return n == 0
	})
	h.cut("a", labHome)
	asked := make(chan error, 1)
	go func() { asked <- ask(longSession, "late") }()
	idleSession.Quit()
	err := ask(shortSession, "late")
	effort.FatalIf(t, err == nil || shortSession.Open(), "asked through a cut: %v", err)
	t.Logf("given up: %v", err)
	h.heal()
	long.awaitLine(t, "RCPT TO:<late") // or the RSET before it
	effort.ErrIs(t, <-asked, nil, "what may wait")
	idle.awaitLine(t, "QUIT")
	<-idleSession.Ending().Gone
	select {
	case <-shortSession.Ending().Gone:
		t.Error("the slot of a session whose end nobody knows is free")
	default:
	}
	effort.ErrorIf(t, len(short.ended) > 0, "the receiver has noticed the end of a session without being told")
	began, from := time.Now(), *shortSession.Ending().Lost.Load()
	again := dial(smtp.DialFrom(t.Context(), from), short, time.Hour)
	effort.ErrIs(t, <-short.ended, syscall.ECONNRESET, "the end of the lost session at the receiver")
	t.Logf("a session from the same port opened after %v", time.Since(began))
	again.Quit()
	for line := next(short.lines); line != ""; line = next(short.lines) {
		effort.ErrorIf(t, strings.HasPrefix(line, "RSET") || strings.Contains(line, "late"),
			"came after the heal: %s", line)
	}
	longSession.Quit()
}

// next is a line that is there, or "".
func next(lines chan string) string {
	select {
	case line := <-lines:
		return line
	default:
		return ""
	}
}
