package smtplab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
	"rollcall/smtp"
)

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
