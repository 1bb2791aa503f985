package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rollcall/cmd/rollcall/node"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
)

// Fault injection: each row switches on a fault of our own, or a receiver's reaction to one, and a whole node
// verifies a small labelled file against the lab. An outcome never blames an address for a fault on our side.

const (
	// faultEnd bounds the work on a row that ends by itself, with time for a busy machine. Addresses not finished by
	// then prove nothing.
	faultEnd = 90 * time.Second

	// faultsAtOnce is how many rows run at the same time, because they mostly wait.
	faultsAtOnce = 16

	// faultWait is how long receivers of a row greylist. An address is given up after eight times that.
	faultWait = 500 * time.Millisecond

	// endlessEnd bounds the work on a row that never ends, because guards let too little through or defer for good.
	endlessEnd = 12 * time.Second

	// vanishedEnd bounds the run with vanished receivers. Their addresses are given up by then, but the longest pause
	// before a node dials them again is longer.
	vanishedEnd = 25 * time.Second
)

type fault struct {
	name string

	// on switches the fault on. The file holds the addresses of list, and faultKinds at each of personalities.
	on            func(t *testing.T, l *smtplab.Lab, c *config.Config)
	personalities []string
	list          func(t *testing.T, l *smtplab.Lab) []labelled
	during        func(t *testing.T, tr *trial) // runs beside the verification until it returns

	// blind rows allow no knowledge: every address must end as unknown or be unfinished.
	blind bool
	// known is the percentage of the knowable addresses that must get their outcome.
	known int
	// end bounds the work on this row; 0: faultEnd.
	end time.Duration
}

// faultKinds are local parts, in turn of an existing and a missing mailbox.
var faultKinds = []string{"anna.adler", "no-such-one", "ben.bauer", "not-here-two", "carla.conti", "gone-away-3"}

func TestOwnFaultsAreNeverToldOfAnAddress(t *testing.T) {
	effort.NotShort(t, "a whole node")
	t.Parallel()
	var rows sync.WaitGroup
	slots := make(chan struct{}, faultsAtOnce)
	for _, group := range []struct {
		name string
		rows []fault
	}{ // rows that wait longest come first
		{"connections", connectionFaults()}, {"inner", innerFaults()}, {"refusals", refusalFaults()},
		{"manners", mannersFaults()},
	} {
		for _, f := range group.rows {
			slots <- struct{}{}
			rows.Go(func() {
				defer func() { <-slots }()
				t.Run(group.name+"/"+f.name, f.run)
			})
		}
	}
	rows.Wait()
}

// run verifies the row's list with the fault on.
func (f fault) run(t *testing.T) {
	effort.OnlyNode(t)
	lab := trialLab()
	lab.GreylistWait, lab.SecondLasts = faultWait, 250*time.Millisecond
	tr := startTrial(t, lab, func(l *smtplab.Lab, c *config.Config) {
		c.Retry.GiveUpAfter = config.Duration{Duration: 8 * faultWait}
		c.Retry.GreylistWaits = []config.Duration{{Duration: faultWait}, {Duration: 2 * faultWait}}
		c.Retry.ControlWaits = []config.Duration{{Duration: faultWait / 4}, {Duration: faultWait / 2}}
		if f.on != nil {
			f.on(t, l, c)
		}
	})
	list := f.addresses(t, tr.lab)
	if f.during != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.during(t, tr)
		}()
		defer func() { <-done }()
	}
	all, id := tr.verify(t, list, cmp.Or(f.end, faultEnd))
	f.check(t, all)
	again := tr.replay(t, id, all)
	effort.Is(t, again.Same, again.Addresses, "replayed")
}

func (f fault) addresses(t *testing.T, l *smtplab.Lab) []labelled {
	var list []labelled
	if f.list != nil {
		list = f.list(t, l)
	}
	for i, p := range f.personalities {
		for _, local := range faultKinds {
			list = append(list, labelled{address: fmt.Sprintf("%s@f%d-%s.test", local, i, p), personality: p})
		}
	}
	for i := range list {
		list[i].want = l.Truth(list[i].address)
	}
	return list
}

// check compares the results with what the row promises.
func (f fault) check(t *testing.T, all []judged) {
	t.Helper()
	for _, j := range all {
		effort.ErrorIf(t, f.blind && j.outcome != smtp.Undecided && j.outcome != smtp.Unknown,
			"%s is told %v %v", j.address, j.outcome, j.reason)
	}
	if r := newScoreReport([]part{{all: all}}); len(r.Wrong) > 0 || r.Found*100 < r.Knowable*f.known {
		t.Errorf("%d of %d are known, want %d %%: %+v", r.Found, r.Knowable, f.known, r)
	}
}

// saying makes domains that answer every RCPT with one of these texts, whatever the address. The texts speak about
// us.
func saying(stage smtp.Stage, texts []string) func(t *testing.T, l *smtplab.Lab) []labelled {
	return func(t *testing.T, l *smtplab.Lab) (list []labelled) {
		for i, text := range texts {
			w := smtplab.Words{}
			switch stage {
			case smtp.StageGreeting:
				w.Greeting = text
			case smtp.StageHello:
				w.Hello = text
			case smtp.StageMail:
				w.Mail = text
			default:
				w.Any = text
			}
			name := fmt.Sprintf("says%d-%s.test", i, stage)
			effort.OK(t, l.Add(smtplab.Domain{Name: name, Personality: smtplab.Personality{Name: "own", Words: w,
				Fixed: smtp.Unknown}}))
			for _, local := range faultKinds[:2] {
				list = append(list, labelled{address: local + "@" + name, personality: text})
			}
		}
		return list
	}
}

// refusalFaults are receivers that refuse us in the words for a missing mailbox.
func refusalFaults() []fault {
	return []fault{
		{name: "source blocked", blind: true, personalities: []string{"blocked", "policy"}},
		{name: "source blocked at the greeting", blind: true, list: saying(smtp.StageGreeting, []string{
			"554 5.7.1 No SMTP service for you", "550 5.1.1 Host {client} is on our block list",
			"571 Email from {client} is currently blocked by us", "554 mx.test ESMTP not accepting messages",
			"550 5.7.606 Access denied, banned sending IP [{client}]", "521 5.7.1 Blocked by reputation filter",
		})},
		// This is a limit for us: no address is given up because of it.
		{name: "deferred at the greeting", blind: true, end: endlessEnd, list: saying(smtp.StageGreeting, []string{
			"421 4.7.0 {client} deferred due to complaints",
		})},
		{name: "words that may mean anybody", blind: true, list: saying(smtp.StageRcpt, []string{
			"550 Requested action not taken: mailbox unavailable", "550 mail.{hello} does not exist",
			"550 5.1.1 <postmaster@{hello}>: user unknown", "550 [{client}] not found", "550 5.0.0 it is suspended",
		})},
		{name: "words that may mean anybody, beside others who are accepted", known: 100,
			personalities: []string{"unavailable", "unavailable"}},
		{name: "no PTR", blind: true, personalities: []string{"noptr"}, list: saying(smtp.StageRcpt, []string{
			"550 5.7.25 The IP address has no PTR record set up",
			"450 4.7.25 cannot find your reverse hostname, [{client}]",
			"554 5.7.1 Fix reverse DNS for {client}", "550 Reverse lookup of {client} failed",
			"550 5.7.1 inconsistent or no DNS PTR record for your address",
		})},
		{name: "hello name refused", blind: true, personalities: []string{"badhello"},
			list: saying(smtp.StageRcpt, []string{
				"504 5.5.2 <{hello}>: Helo command rejected: need fully-qualified hostname",
				"550 5.7.1 <{hello}>: Helo command rejected: Host not found", "550 Access denied - Invalid HELO name",
				"501 5.5.4 HELO argument {hello} invalid",
			})},
		{name: "SPF refused", blind: true, personalities: []string{"badspf"}, list: saying(smtp.StageMail, []string{
			"550 5.7.23 SPF validation failed", "554 SPF: {client} is not allowed to send for this domain",
		})},
		{name: "SPF refused at RCPT", blind: true, list: saying(smtp.StageRcpt, []string{
			"550 5.7.23 The message was rejected because of SPF policy", "550 SPF check failed for postmaster@{hello}",
			"554 5.7.1 Sender SPF record does not permit {client}",
		})},
		{name: "return path refused", blind: true, personalities: []string{"badsender"},
			list: saying(smtp.StageRcpt, []string{
				"550 5.1.8 Sender address rejected: Domain not found", "553 5.1.8 Sender domain does not resolve",
				"550 5.7.27 Sender address has null MX", "550 5.1.7 Invalid return path",
				"550 Sender verify failed", "451 4.1.8 Domain of sender address does not resolve",
			})},
		{name: "source blocked at RCPT", blind: true, list: saying(smtp.StageRcpt, []string{
			"550 5.7.1 Service unavailable; Client host [{client}] blocked using zen.test",
			"554 5.7.1 <{address}>: Recipient address rejected: see http://lookup.test/bl?ip={client}",
			"550 5.2.1 Mailbox unavailable. Your IP {client} is blacklisted",
			"550 permanent failure for one or more recipients ({address}:blocked)",
			"550 5.7.1 Mail from {client} was rejected due to poor reputation",
			"550 High probability of spam", "554 5.7.1 You are not allowed to connect",
			"550 Requested action not taken: mailbox unavailable; reject due to policy restrictions",
			"550 5.4.1 All recipient addresses rejected : Access denied",
			"554 5.7.1 Message refused: sender is listed by our DNSBL",
			"550-{address}\n550 denied, {client} is in a black list", "550 5.7.0 Local Policy Violation",
			"550 mailbox unavailable or access denied", "553 5.3.0 {address} DNSBL:RBL 521 {client} is blocked",
		})},
	}
}

// connectionFaults are faults between us and the receiver.
func connectionFaults() []fault {
	clean := []string{"clean", "exchange", "starttls", "catchall"}
	return []fault{
		{name: "TLS broken", personalities: []string{"tlsbroken", "tlsstalled", "tlsinjected", "htlsgarbage",
			"hflood", "hstall", "tlsonly"}},
		{name: "hosts that bear less than they offer", personalities: []string{"helo", "heloonly", "heloagain", "tlsdies",
			"tlsmute"},
			known: 90},
		{name: "a backup that accepts everything", personalities: []string{"backup", "backup", "backup", "backup"}},
		{name: "DNS is away", blind: true, personalities: clean,
			on: func(t *testing.T, _ *smtplab.Lab, c *config.Config) { c.DNS.Servers = []string{deadPort(t)} }},
		{name: "DNS says SERVFAIL", blind: true, personalities: []string{"servfail", "dnsrefused", "aliasloop"}},
		{name: "DNS is silent", blind: true, personalities: []string{"dnssilent"},
			on: func(_ *testing.T, _ *smtplab.Lab, c *config.Config) {
				c.DNS.Timeout = config.Duration{Duration: time.Second}
			}},
		{name: "port 25 closed for us", blind: true, personalities: clean,
			on: func(t *testing.T, _ *smtplab.Lab, c *config.Config) {
				c.SMTP.Port = int(netPort(t, deadPort(t)))
			}},
		{name: "sessions are cut", personalities: []string{"flaky", "droprcpt", "resetmail", "short", "closing",
			"h421rset", "h421behind", "hpartial", "hresethalf", "hhalf"}},
		{name: "one of two sources is refused", personalities: []string{"blockone", "blockeven", "clean"},
			on: func(_ *testing.T, _ *smtplab.Lab, c *config.Config) {
				c.SMTP.SourceAddresses = []string{"127.0.0.2", "127.0.0.3"}
			}},
		{name: "garbage in texts", personalities: []string{"nonascii", "formula", "hnul", "heightbit", "hcrlf",
			"hlong", "hrandom", "hhttp", "lying", "htwice", "hearly", "hearlytls", "htwicetls"}},
	}
}

// mannersFaults: we ask too much or too fast, and guards react.
func mannersFaults() []fault {
	wide := func(t *testing.T, _ *smtplab.Lab, c *config.Config) { openedWide(t, c, true) }
	guarded := func(t *testing.T, l *smtplab.Lab) []labelled { return guardedList(t, l, "guard") }
	return []fault{
		{name: "guards tripped on purpose", end: endlessEnd, on: wide, list: guarded},
		{name: "far too fast", on: func(t *testing.T, _ *smtplab.Lab, c *config.Config) {
			openedWide(t, c, true)
			connections := 50
			rate := config.Rate(throttle.Rate{Events: 1_000_000, Per: time.Second})
			c.Throttle.Default.Connections, c.Throttle.Default.RcptRate = &connections, &rate
		}, list: func(t *testing.T, l *smtplab.Lab) []labelled { return guardedList(t, l, "limit") }},
		{name: "too many recipients in a transaction", known: 100, on: wide, personalities: []string{"onercpt", "fewrcpts"}},
		{name: "a message size is refused", blind: true, list: saying(smtp.StageMail, []string{
			"552 5.3.4 Message size exceeds fixed limit", "552 5.2.3 Message too large",
		})},
		{name: "greylisting that never ends", blind: true, end: endlessEnd, list: saying(smtp.StageRcpt, []string{
			"451 4.7.1 Greylisting in action, please come back later", "450 Not now", "452 4.2.2 Greylisted",
			"421 4.7.0 Try again later", "450 4.3.2 Service currently unavailable",
		})},
	}
}

// guardedList has forty missing mailboxes and then ten existing ones at each personality of a family.
func guardedList(t *testing.T, l *smtplab.Lab, family string) (list []labelled) {
	t.Helper()
	for _, p := range smtplab.Personalities() {
		if p.Family != family {
			continue
		}
		for i := range 50 {
			local := "no-such-" + letters(i)
			if i >= 40 {
				local = "good." + letters(i)
			}
			list = append(list, labelled{address: fmt.Sprintf("%s@g-%s.test", local, p.Name), personality: p.Name})
		}
	}
	effort.FatalIf(t, len(list) == 0, "the lab has no family %q", family)
	return list
}

// innerFaults: our own parts fail.
func innerFaults() []fault {
	plain := []string{"clean", "plain", "exchange", "catchall", "greylist", "twomx"}
	return []fault{
		{name: "receivers vanish in the middle", end: vanishedEnd, personalities: append(plain, plain...),
			during: func(t *testing.T, tr *trial) {
				effort.Within(t, "RCPTs", func() bool { return tr.lab.Manners().Total.Rcpts > 8 })
				stopLab(t, tr.lab)
			}},
		{name: "the ledger stalls", personalities: plain, known: 100, during: stallLedger},
	}
}

// stallLedger holds the ledger's write lock for longer than a writer waits.
func stallLedger(t *testing.T, tr *trial) {
	effort.Within(t, "RCPTs", func() bool { return tr.lab.Manners().Total.Rcpts > 4 })
	db, err := sql.Open("sqlite", "file:"+filepath.Join(tr.folder, "ledger.db"))
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	for _, statement := range []string{"PRAGMA busy_timeout(20000)", "BEGIN IMMEDIATE"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
			return
		}
	}
	<-time.After(stallLasts)
	effort.Denied(conn.ExecContext(t.Context(), "ROLLBACK"))(t, nil)
}

// stallLasts is longer than the 5 s that a writer waits for its turn.
const stallLasts = 6 * time.Second

// deadPort is an address on loopback where nobody listens.
func deadPort(t *testing.T) string {
	t.Helper()
	l := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

func netPort(t *testing.T, address string) (port uint16) {
	t.Helper()
	effort.Must(fmt.Sscanf(address[strings.LastIndexByte(address, ':')+1:], "%d", &port))(t)
	return port
}

// Hostile receivers beside honest ones: the honest receivers' addresses get answers, and the node's memory is bounded
// by what its sessions may hold.

// hostileKinds are receivers that hold a session as long as they can, or send as much as they can.
var hostileKinds = []string{"hsilent", "silenthello", "silentmail", "silentrcpt", "hstutter", "hendless",
	"hendlessline", "hwindow", "hlong", "hextensions", "hstall", "hflood", "hrandom", "hecho"}

// hostileWorld says how many receivers of each kind there are.
type hostileWorld struct {
	files, perFile int           // hostile domains, with one address each
	wait           time.Duration // for the honest file
	memory         int64         // of the node at its peak
}

// The bound of memory is what an idle node takes, plus 128 KiB for each session that a node may open: a guess of
// twice what a session takes.
const hostileIdle = 160 << 20

func TestHonestReceiversBesideHostileOnes(t *testing.T) {
	t.Parallel()
	w := hostileWorld{files: 2, perFile: 150, wait: cliWait, memory: hostileIdle + 300*128<<10}
	if effort.Long() {
		w = hostileWorld{files: 10, perFile: 1000, wait: 10 * time.Minute, memory: hostileIdle + node.SessionsMax*128<<10}
	}
	o := smtplab.Defaults()
	o.HostsMax, o.SessionsMax = w.files*w.perFile+1000, 2*node.SessionsMax
	lab := startLab(t, o)
	r := newRig(t, lab.DNSAddr(), lab.SMTPPort(), `
[retry]
greylist_waits = ["5s"]
give_up_after = "1m"
`)
	node := r.serves()
	ctx, cancel := context.WithTimeout(t.Context(), w.wait)
	defer cancel()
	r.open(1_000_000)
	c := r.client()
	for i := range w.files {
		var file bytes.Buffer
		file.WriteString("email\n")
		for j := range w.perFile {
			fmt.Fprintf(&file, "anna.adler@x%d-%d-%s.test\n", i, j, hostileKinds[j%len(hostileKinds)])
		}
		mustHandIn(ctx, t, c, file.Bytes())
	}
	least := min(w.files*w.perFile/2, 900) // a workspace may use half of the receivers in memory
	await(ctx, t, "sessions at hostile receivers", func() bool { return lab.Manners().Total.SessionsOpen >= least })
	open := lab.Manners().Total.SessionsOpen
	honest := cleanFile(200, 20)
	id := mustHandIn(ctx, t, c, honest)
	took := awaitEnd(ctx, t, c, id)
	var text bytes.Buffer
	effort.OK(t, writeResults(ctx, c, id, &text))
	rows := effort.Must(readRows(&text))(t)
	for _, email := range strings.Fields(string(honest))[1:] {
		effort.Is(t, rows[email].outcome, lab.Truth(email).Outcome, email)
	}
	peak, err := memoryMost(node.command.Process.Pid)
	if err != nil || peak > w.memory {
		t.Errorf("the node took %d MB, want at most %d MB: %v", peak>>20, w.memory>>20, err)
	}
	t.Logf("%d hostile receivers, %d sessions held when 200 honest addresses came: answered in %.1f s, "+
		"the node's peak is %d MB", w.files*w.perFile, open, took.Seconds(), peak>>20)
	node.terminate()
}

// TestReceiversThatAnswerNobody: a file with receivers that never answer ends by itself. Most of its addresses are
// never asked, because a node asks few at a time at such a receiver.
func TestReceiversThatAnswerNobody(t *testing.T) {
	t.Parallel()
	kinds := []string{"hextensions", "hendlessrcpt", "dropgreeting", "droprcpt", "unreachable"}
	if effort.Long() {
		kinds = append(kinds, "silent") // the node waits a minute for a greeting
	}
	n := labNode(t, t.TempDir(), func(c *config.Config) {
		openedWide(t, c, false)
		c.Retry.GiveUpAfter = config.Duration{Duration: 2 * time.Second}
	})
	const each = 300
	var file strings.Builder
	file.WriteString("email\n")
	for i := range each * len(kinds) {
		fmt.Fprintf(&file, "anna%d@x-%s.test\n", i, kinds[i%len(kinds)])
	}
	begun := time.Now()
	v := finish(t, n, submit(t, n, []byte(file.String()), ledger.Credits(each*len(kinds))), 2*cliWait)
	for email, r := range results(t, n, v) {
		effort.Is(t, r.Outcome, smtp.Unknown, fmt.Sprintf("%s is", email))
	}
	t.Logf("%d addresses are unknown after %.1f s", v.Rows, time.Since(begun).Seconds())
}

// unfolded joins the lines of a text.
func unfolded(text string) string { return strings.Join(strings.Fields(text), " ") }
