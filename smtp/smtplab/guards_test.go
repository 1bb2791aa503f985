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

	"rollcall/config/effort"
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
