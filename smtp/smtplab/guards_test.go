package smtplab

import (
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// dialFrom connects to a host from a loopback address of ours.
func dialFrom(t testing.TB, l *Lab, host, source string) *wire {
	t.Helper()
	dialer := net.Dialer{Timeout: testTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	conn, err := dialer.Dial("tcp", hostAddr(t, l, host))
	effort.OK(t, err, "dial", host, "from", source)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return &wire{t: t, conn: conn, r: newReader(conn)}
}

// mxOf is the host mx1 of a domain of the lab.
func mxOf(domain string) string {
	zone := zoneOf(domain)
	return "mx1." + builtin()[personalityName(zone)].hostZone(zone)
}

// codes asks for one address after the other, "b" for one that does not exist and "g" for one that does, in one
// transaction, and gives their codes. A session that ends is "end".
func (w *wire) codes(domain, pattern string) string {
	w.t.Helper()
	var out []string
	for i, c := range pattern {
		local := "anna." + letters(i)
		if c == 'b' {
			local = "ghost." + letters(i)
		}
		w.send("RCPT TO:<" + local + "@" + domain + ">\r\n")
		line, err := w.r.ReadString('\n')
		if err == io.EOF {
			return strings.Join(append(out, "end"), " ")
		}
		effort.OK(w.t, err)
		out = append(out, line[:3])
	}
	return strings.Join(out, " ")
}

func times(n int, what string) string { return strings.TrimSpace(strings.Repeat(what+" ", n)) }

func TestGuardsTripAtTheirBound(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	for _, c := range []struct {
		personality, guard string
		before             string // what is asked just below the bound
		codes              string
		at                 string // the one more, and its answer
		then               string
	}{
		{"chasquid", "errors", "gbb", "250 550 550", "b", "421"},
		{"postfix", "slow", strings.Repeat("b", 10), times(10, "550"), "b", "550"},
		{"exim", "half", strings.Repeat("b", 10), times(10, "550"), "g", "550"},
		{"cisco", "harvest", strings.Repeat("b", 25), times(25, "550"), "g", "550"},
		{"ciscoqueue", "silent", strings.Repeat("b", 25), times(25, "550"), "b", "250"},
		{"forcepoint", "share", strings.Repeat("b", 5), times(5, "550"), "b", "end"},
		{"ionos", "policy", strings.Repeat("b", 25), times(25, "550"), "b", "450"},
		{"symantec", "window", strings.Repeat("b", 25), times(25, "550"), "b", "451"},
		{"nospamtoday", "row", strings.Repeat("b", 9) + "g" + strings.Repeat("b", 9),
			times(9, "550") + " 250 " + times(9, "550"), "b", "421"},
		{"yahooold", "excess", strings.Repeat("b", 25), times(25, "554"), "b", "421"},
	} {
		t.Run(c.personality, func(t *testing.T) {
			l := startLab(t, nil)
			domain := "a-" + c.personality + ".test"
			w := dialFrom(t, l, mxOf(domain), "127.0.0.1")
			w.play(opening)
			effort.Is(t, w.codes(domain, c.before), c.codes, "below the bound")
			effort.Is(t, len(l.Manners().Tripped), 0, "tripped below the bound")
			effort.Is(t, w.codes(domain, c.at), c.then, "at the bound")
			sheet := l.Manners()
			want := map[string]int{c.guard: 1}
			effort.ErrorIf(t, !maps.Equal(sheet.Tripped, want), "tripped %v, want %v", sheet.Tripped, want)
			effort.Is(t, sheet.Receivers[domain].Tripped, 1, "tally", sheet.Receivers[domain])
			effort.Is(t, sheet.Total.LimitsHit, 1, "tally", sheet.Receivers[domain])
			other := dialFrom(t, l, mxOf(domain), "127.0.0.2")
			other.play(opening)
			if got, want := other.codes(domain, "g"), "250"; got != want {
				t.Errorf("another source: %s, want %s", got, want)
			}
		})
	}
}

func TestGoodAddressesKeepGuardsQuiet(t *testing.T) {
	l := startLab(t, nil)
	for _, c := range []struct{ personality, pattern string }{
		{"exim", strings.Repeat("gb", 15)},
		{"symantec", strings.Repeat("gb", 40)},
		{"nospamtoday", strings.Repeat("bbbbbbbbbg", 4)},
		{"forcepoint", "gggggbgb"},
		{"mox", strings.Repeat("b", 30)},
	} {
		w := dialFrom(t, l, mxOf("a-"+c.personality+".test"), "127.0.0.1")
		w.play(opening)
		w.codes("a-"+c.personality+".test", c.pattern)
	}
	effort.Is(t, len(l.Manners().Tripped), 0, "tripped")
}

func TestForcepointBlocksTheAddress(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	l := startLab(t, func(o *Options) { o.HourLasts = 500 * time.Millisecond })
	const domain = "a-forcepoint.test"
	w := dialFrom(t, l, mxOf(domain), "127.0.0.1")
	w.play(opening)
	start := time.Now()
	effort.MustBe(t, w.codes(domain, "bbbbbb"), times(5, "550")+" end", "six unknown")
	dialFrom(t, l, mxOf(domain), "127.0.0.1").play("< EOF")
	dialFrom(t, l, mxOf(domain), "127.0.0.2").play("< 220")
	effort.Within(t, "the block ends", func() bool {
		w := dialFrom(t, l, mxOf(domain), "127.0.0.1")
		line, _ := w.r.ReadString('\n')
		return line != ""
	})
	waited := time.Since(start)
	effort.ErrorIf(t, waited < 3*500*time.Millisecond, "blocked for %v, want 3 hours of 500 ms", waited)
}

func TestIonosWantsOneHelloName(t *testing.T) {
	l := startLab(t, nil)
	const domain = "a-ionos.test"
	for _, c := range []struct{ hello, code string }{
		{"one.example", "250"}, {"ONE.example", "250"}, {"two.example", "450"},
	} {
		w := dialFrom(t, l, mxOf(domain), "127.0.0.1")
		w.play("< 220\n> EHLO " + c.hello + "\n< 250\n> MAIL FROM:<>\n< 250")
		effort.Is(t, w.codes(domain, "g"), c.code, fmt.Sprintf("as %s", c.hello))
	}
	effort.Not(t, l.Manners().Tripped["policy"], 0, "the guard did not count the second name")
}

func TestBadTransactionsEndASession(t *testing.T) {
	l := startLab(t, nil)
	const domain = "a-badtx.test"
	for _, good := range []bool{false, true} {
		w := dialHost(t, l, mxOf(domain))
		w.play("< 220\n> EHLO x\n< 250")
		if good {
			w.play("> MAIL FROM:<>\n< 250\n> RCPT TO:<anna@" + domain + ">\n< 250\n> RSET\n< 250")
		}
		for range 11 {
			w.play("> MAIL FROM:<>\n< 250\n> RCPT TO:<ghost@" + domain + ">\n< 550\n> RSET\n< 250")
		}
		if good {
			w.play("> MAIL FROM:<>\n< 250")
		} else {
			w.play("> MAIL FROM:<>\n< 550 5.1.0\n< EOF")
		}
	}
	effort.Same(t, l.Manners().Tripped, map[string]int{"transactions": 1}, "tripped")
}

func TestYahooOldPunishesWhoComesBack(t *testing.T) {
	l := startLab(t, nil)
	const domain = "a-yahooold.test"
	w := dialHost(t, l, mxOf(domain))
	w.play(opening)
	w.codes(domain, strings.Repeat("b", 26))
	w = dialHost(t, l, mxOf(domain))
	w.play(opening)
	effort.Is(t, w.codes(domain, "g"), "553", "in the next session")
}

// TestAPatientClientTripsNoGuard asks every guard for unknown addresses alone, two
// in a session and 20 in an hour, and gets a refusal for each of them.
func TestAPatientClientTripsNoGuard(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	const hour, perHour, perSession, hours = 400 * time.Millisecond, 20, 2, 3
	l := startLab(t, func(o *Options) { o.HourLasts = hour })
	var running sync.WaitGroup
	for _, p := range Personalities() {
		if p.Guard == GuardNone || p.CatchAll {
			continue
		}
		running.Go(func() {
			domain := "a-" + p.Name + ".test"
			for i := range hours {
				for range perHour / perSession {
					w := dialFrom(t, l, mxOf(domain), "127.0.0.1")
					w.play("< 220\n> EHLO x\n< 250")
					for j := range perSession {
						w.send(fmt.Sprintf("MAIL FROM:<>\r\nRCPT TO:<ghost%d@%s>\r\nRSET\r\n", j, domain))
						w.play("< 250\n< 55\n< 250")
					}
					w.play("> QUIT\n< 221")
				}
				if i < hours-1 {
					l.wait(hour)
				}
			}
		})
	}
	running.Wait()
	effort.Is(t, len(l.Manners().Tripped), 0, "tripped")
}

func TestBlocksBySourceAddress(t *testing.T) {
	l := startLab(t, nil)
	for _, c := range []struct{ host, source, says string }{
		{"mx1.a-blockone.test", "127.0.0.7", "554 5.7.1"},
		{"mx1.a-blockone.test", "127.0.0.8", "220"},
		{"mx1.a-blockone.test", "127.0.0.7", "554 5.7.1"},
		{"mx1.b-blockone.test", "127.0.0.8", "554 5.7.1"},
		{"mx1.a-blockeven.test", "127.0.0.7", "220"},
		{"mx1.a-blockeven.test", "127.0.0.8", "554 5.7.1"},
	} {
		dialFrom(t, l, c.host, c.source).says("", c.says)
	}
}

// localsOf has a local part of every kind that is answered alike at each try.
var localsOf = [Busy + 1]string{
	NotFound: "ghost", Exists: "anna", Disabled: "disabled", Full: "full", OverQuota: "overquota",
	Restricted: "restricted", Busy: "busy",
}

// mxHosts asks DNS for the MX of a domain.
func mxHosts(t *testing.T, l *Lab, domain string) []string {
	t.Helper()
	var out []string
	for _, rr := range ask(t, l, "tcp", domain, dns.TypeMX).Answer {
		if mx, ok := rr.(*dns.MX); ok {
			out = append(out, strings.TrimSuffix(mx.Mx, "."))
		}
	}
	return out
}

// openAt speaks until a transaction is open, with STARTTLS where that is offered.
func openAt(t *testing.T, l *Lab, host string) *wire {
	t.Helper()
	w := dialHost(t, l, host)
	w.play("< 220\n> EHLO probe.example")
	if hello := w.reply(); strings.Contains(hello, "STARTTLS") {
		w.play("> STARTTLS\n< 220\nTLS\n> EHLO probe.example\n< 250")
	}
	w.play("> MAIL FROM:<a@probe.example>\n< 250")
	return w
}

// answersByMailbox are the personalities that must answer each kind by its reply.
func answersByMailbox() []Personality {
	var out []Personality
	for _, p := range Personalities() {
		switch p.Family {
		case "provider", "gateway", "regional", "software":
			if p.Fixed == smtp.Undecided && !p.Greylist {
				out = append(out, p)
			}
		}
	}
	return out
}

// TestProvidersAnswerEachKindOfMailbox holds the replies that come against the
// truth about them: nothing is right that no reply could tell.
func TestProvidersAnswerEachKindOfMailbox(t *testing.T) {
	l := startLab(t, func(o *Options) { o.SecondLasts = time.Millisecond })
	for _, p := range answersByMailbox() {
		t.Run(p.Name, func(t *testing.T) {
			domain := "a-" + p.Name + ".test"
			hosts := mxHosts(t, l, domain)
			effort.FatalIf(t, len(hosts) == 0 || !strings.HasSuffix(hosts[0], "."+p.MXSuffix) && p.MXSuffix != "",
				"MX %v, want a name beneath %s", hosts, p.MXSuffix)
			w := openAt(t, l, hosts[0])
			for kind := range Busy + 1 {
				address := localsOf[kind] + "@" + domain
				reply := w.says("RCPT TO:<"+address+">", "")
				w.play("> RSET\n< 250\n> MAIL FROM:<a@probe.example>\n< 250")
				class, want := reply[0], byte('5')
				switch e := l.Truth(address); {
				case kind == Exists:
					want = '2'
				case kind == OverQuota, e.Outcome == smtp.Unknown && class == '4', p.Words.Mailboxes[kind] == "" &&
					kind == Busy, strings.HasPrefix(p.Words.Mailboxes[kind], "4"):
					want = '4'
				case e.Outcome == smtp.Valid && kind != Busy:
					want = '2'
				}
				effort.Is(t, class, want, address, reply, "the truth is", l.Truth(address))
			}
		})
	}
}

func TestWhatProvidersSayAboutUsIsNeverValid(t *testing.T) {
	l := startLab(t, nil)
	n := 0
	for _, p := range Personalities() {
		if p.Base == "" {
			continue
		}
		n++
		e := l.Truth("anna@a-" + p.Name + ".test")
		effort.ErrorIf(t, e.Knowable || !e.Wrong(smtp.Valid) || e.Outcome != smtp.Unknown && !p.Hard,
			"%s: %+v", p.Name, e)
		said := 0
		for _, words := range []string{p.Words.Greeting, p.Words.Hello, p.Words.Mail, p.Words.Any} {
			if words != "" {
				said++
			}
			effort.ErrorIf(t, strings.HasPrefix(words, "2"), "%s: says %q", p.Name, words)
		}
		effort.Is(t, said, 1, fmt.Sprintf("%s: speaks at stages", p.Name))
	}
	effort.ErrorIf(t, n < 70, "%d personalities speak about us", n)
}

func TestOnlyTheLabsOwnNamesBeneathProviders(t *testing.T) {
	l := startLab(t, nil)
	for _, d := range []Domain{
		{Name: "firm.example", Personality: Personality{MXSuffix: "l.google.com"}},
		{Name: "tenant.example", Records: []string{"tenant.example. IN MX 1 mx1.a-google.l.google.com."}},
	} {
		effort.OK(t, l.Add(d))
	}
	for _, c := range []struct {
		name  string
		rcode int
		found bool
	}{
		{"mx1.a-google.l.google.com", dns.RcodeSuccess, true},
		{"mx1.firm-example.l.google.com", dns.RcodeSuccess, true},
		{"mx2.a-google.l.google.com", dns.RcodeNameError, false},
		{"a-google.l.google.com", dns.RcodeNameError, false},
		{"gmail-smtp-in.l.google.com", dns.RcodeRefused, false},
		{"mx1.a-clean.l.google.com", dns.RcodeRefused, false},
		{"mx1.a-yahoo.l.google.com", dns.RcodeRefused, false},
		{"l.google.com", dns.RcodeRefused, false},
		{"mx1.a-google.test", dns.RcodeSuccess, false},
	} {
		in := ask(t, l, "udp", c.name, dns.TypeA)
		effort.ErrorIf(t, in.Rcode != c.rcode || len(in.Answer) > 0 != c.found,
			"%s: %s with %d records", c.name, dns.RcodeToString[in.Rcode], len(in.Answer))
	}
	hosts := mxHosts(t, l, "firm.example")
	effort.ErrorIf(t, len(hosts) != 1 || hosts[0] != "mx1.firm-example.l.google.com", "MX of firm.example: %v", hosts)
	for _, c := range []struct{ host, domain string }{
		{"mx1.firm-example.l.google.com", "firm.example"},
		{"mx1.a-google.l.google.com", "tenant.example"},
	} {
		w := openAt(t, l, c.host)
		w.says("RCPT TO:<anna@"+c.domain+">", "250")
		w.says("RCPT TO:<anna@other.example>", "550 5.7.1")
	}
	effort.Is(t, l.Truth("busy@tenant.example").Outcome, smtp.Valid, "a tenant at Google")
}

func TestTheSecondHostOfNicRuAnswers(t *testing.T) {
	l := startLab(t, nil)
	for n, want := range []string{"451 Please try another server", "250", "550"} {
		host, local := fmt.Sprintf("mx%d.a-nicru.nic.ru", min(n+1, 2)), localsOf[Exists]
		if n == 2 {
			local = localsOf[NotFound]
		}
		openAt(t, l, host).says("RCPT TO:<"+local+"@a-nicru.test>", want)
	}
}

func TestGreylistsOfTheWorld(t *testing.T) {
	const wait = 300 * time.Millisecond
	for _, p := range Personalities() {
		if !p.Greylist || p.PerVisit || strings.HasPrefix(p.Family, "hostile") {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			l := startLab(t, func(o *Options) { o.GreylistWait = wait })
			domain := "a-" + p.Name + ".test"
			least := wait
			if p.GreylistWait > 0 {
				least = wait * (p.GreylistWait / time.Second) / (postgreyWait / time.Second)
			}
			start := time.Now()
			w := openAt(t, l, mxHosts(t, l, domain)[0])
			w.says("RCPT TO:<anna@"+domain+">", "4")
			l.wait(least)
			effort.Within(t, "the address passes", func() bool {
				w.send("RCPT TO:<anna@" + domain + ">\r\n")
				passed := strings.HasPrefix(w.reply(), "250")
				if !passed && p.GreylistEarly {
					l.wait(least) // asking on would begin the wait again and again
				}
				return passed
			})
			waited := time.Since(start)
			effort.ErrorIf(t, waited < least, "passed after %v, want %v", waited, least)
		})
	}
}

func TestPleskPunishesWhoAsksTooEarly(t *testing.T) {
	m := memory{}
	start := time.Unix(1_800_000_000, 0)
	const wait = 5 * time.Minute
	for _, c := range []struct {
		at   time.Duration
		left time.Duration
	}{
		{0, wait}, {wait - time.Second, wait}, {wait + time.Second, wait}, {2*wait + time.Second, 0},
	} {
		left, _ := m.greylist("us", "a@b.test", greylistRule{wait: wait, early: true}, start.Add(c.at))
		effort.Is(t, left, c.left, fmt.Sprintf("after %v", c.at))
	}
}

func TestHelloGreyKnowsTheHelloName(t *testing.T) {
	l := startLab(t, func(o *Options) { o.GreylistWait = 100 * time.Millisecond })
	const rcpt = "> RCPT TO:<anna@a-hellogrey.test>\n< "
	w := dialHost(t, l, "mx1.a-hellogrey.test")
	w.play("< 220\n> EHLO one.example\n< 250\n> MAIL FROM:<>\n< 250\n" + rcpt + "450")
	effort.Within(t, "the address passes", func() bool {
		w.send("RCPT TO:<anna@a-hellogrey.test>\r\n")
		return strings.HasPrefix(w.reply(), "250")
	})
	w.play("> EHLO two.example\n< 250\n> MAIL FROM:<>\n< 250\n" + rcpt + "450")
}
