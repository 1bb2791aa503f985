package smtplab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

func TestSheetCountsWhatClientsDo(t *testing.T) {
	l := startLab(t, func(o *Options) { o.EventsMax = 5 })
	one := dialHost(t, l, "mx1.a-nopipe.test")
	one.play(`
		< 220
		> RCPT TO:<anna@a-nopipe.test>
		< 503
		> EHLO probe.example
		< 250
		> MAIL FROM:<>
		< 250
		> MAIL FROM:<>
		< 503
		> RCPT TO:<anna@a-nopipe.test>
		< 250
		> RCPT TO:<ghost@a-nopipe.test>
		< 550
		> RCPT TO:<overquota@a-nopipe.test>
		< 452
		> DATA
		< 554
		> RSET
		< 250`)
	two := dialHost(t, l, "mx1.a-nopipe.test")
	two.says("", "220")
	two.send("EHLO x\r\nMAIL FROM:<>\r\nRCPT TO:<anna@a-nopipe.test>\r\n")
	two.play("< 250\n< 250\n< 250")
	one.play("> QUIT\n< 221\n< EOF")
	_ = two.conn.Close()
	effort.Within(t, "both sessions end", func() bool { return l.Manners().Total.SessionsOpen == 0 })

	sheet := l.Manners()
	got := sheet.Receivers["a-nopipe.test"]
	effort.ErrorIf(t, got.FirstSession.IsZero() || got.LastSession.Before(got.FirstSession),
		"session times %v and %v", got.FirstSession, got.LastSession)
	got.FirstSession, got.LastSession = time.Time{}, time.Time{}
	want := Tally{
		Sessions: 2, SessionsAtOnce: 2, SessionsIn1s: 2, SessionsIn60s: 2,
		Rcpts: 5, RcptsIn1s: 5, RcptsIn60s: 5, RcptsPerSession: 4, RcptsPerTx: 3,
		Accepted: 2, Deferred: 1, Refused: 2, RefusedPerSession: 1,
		Data: 1, OutOfOrder: 2, UnaskedGroups: 2, Rsets: 1, Quits: 1, HungUp: 1,
	}
	effort.Is(t, got, want, "receiver's tally")
	same := map[string]Tally{"host": sheet.Hosts["mx1.a-nopipe.test"], "total": sheet.Total}
	for name, other := range same {
		other.FirstSession, other.LastSession = time.Time{}, time.Time{}
		effort.Is(t, other, want, name, "tally")
	}
	effort.ErrorIf(t, sheet.Addresses != 3 || sheet.AddressRcptsMax != 2 || sheet.Uncounted != 0,
		"addresses %d, most %d, uncounted %d", sheet.Addresses, sheet.AddressRcptsMax, sheet.Uncounted)
	effort.Is(t, l.Rcpts("anna@a-nopipe.test"), 2, "RCPTs for anna")
	checkEvents(t, l)
	effort.Denied(json.Marshal(sheet))(t, nil, "sheet as JSON")
}

// checkEvents checks the events of the sessions above. The lab keeps only five of them.
func checkEvents(t *testing.T, l *Lab) {
	t.Helper()
	var kinds []string
	for _, e := range l.Events() {
		kinds = append(kinds, e.Kind)
		effort.ErrorIf(t, e.Host != "mx1.a-nopipe.test" || e.Client != "127.0.0.1" || e.At.IsZero() || e.Session < 1,
			"event %+v", e)
	}
	effort.Is(t, strings.Join(kinds, " "), "connect rcpt rcpt rcpt rcpt", "events")
	e := l.Events()[2]
	effort.ErrorIf(t, e.Address != "anna@a-nopipe.test" || e.Code != 250, "third event %+v", e)
	effort.Is(t, l.Manners().EventsDropped, 4)
}

func TestAddressesBeyondTheBoundAreCountedTogether(t *testing.T) {
	l := startLab(t, func(o *Options) { o.AddressesMax = 0 })
	w := dialHost(t, l, "mx1.clean.test")
	w.play(opening + "> RCPT TO:<anna@clean.test>\n< 250")
	if s := l.Manners(); s.Uncounted != 1 || s.Addresses != 0 {
		t.Errorf("uncounted %d, addresses %d; want 1 and 0", s.Uncounted, s.Addresses)
	}
}

func TestGreylistingWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		personality, first string
		early              int
	}{
		{"greylist", "451 4.7.1 Greylisted, please try again in ", 1},
		{"quietgrey", "450 Not now", 0},
		{"fullgrey", "452 4.2.2 Greylisted", 0},
	} {
		t.Run(c.personality, func(t *testing.T) {
			t.Parallel()
			const wait = 2 * time.Second // asked three times within it, on a busy machine too
			l := startLab(t, func(o *Options) { o.GreylistWait = wait })
			w := dialHost(t, l, "mx1.a-"+c.personality+".test")
			w.t = t
			w.play(opening)
			start := time.Now()
			rcpt := "RCPT TO:<anna@a-" + c.personality + ".test>"
			w.says(rcpt, c.first)
			w.says("RCPT TO:<ghost@a-"+c.personality+".test>", c.first)
			w.says(rcpt, c.first)
			effort.Is(t, l.Manners().Total.TooEarly, c.early)
			passes := func(rcpt, code string) {
				effort.Within(t, "the address passes", func() bool {
					w.send(rcpt + "\r\n")
					return strings.HasPrefix(w.reply(), code)
				})
			}
			passes(rcpt, "250")
			waited := time.Since(start)
			effort.ErrorIf(t, waited < wait, "passed after %v", waited)
			passes("RCPT TO:<ghost@a-"+c.personality+".test>", "550")
			w.says("RSET", "250")
			w.says("MAIL FROM:<another@probe.example>", "250")
			w.says(rcpt, c.first)
		})
	}
}

func TestGreylistingLearnsAClient(t *testing.T) {
	var m memory
	now := time.Unix(1_800_000_000, 0)
	const wait = time.Minute
	for i := range greylistPasses {
		rcpt := string(rune('a' + i))
		left, known := m.greylist("us", rcpt, greylistRule{wait: wait}, now)
		effort.FatalIf(t, left != wait || known, "first time of %s: %v, %v", rcpt, left, known)
		left, _ = m.greylist("us", rcpt, greylistRule{wait: wait}, now.Add(2*wait))
		effort.FatalIf(t, left > 0, "second time of %s: still %v", rcpt, left)
		left, _ = m.greylist("us", rcpt, greylistRule{wait: wait}, now.Add(2*wait))
		effort.FatalIf(t, left > 0, "third time of %s: still %v", rcpt, left)
	}
	left, _ := m.greylist("us", "new", greylistRule{wait: wait}, now)
	effort.ErrorIf(t, left > 0, "a client that came back %d times waits %v", greylistPasses, left)
	left, _ = m.greylist("them", "new", greylistRule{wait: wait}, now)
	effort.ErrorIf(t, left != wait, "another client waits %v, want %v", left, wait)
	left, _ = m.greylist("us", "new", greylistRule{wait: wait, always: true}, now)
	effort.ErrorIf(t, left != wait, "where no client is learned it waits %v, want %v", left, wait)
}

func TestPostscreenPassesTheSecondVisit(t *testing.T) {
	t.Parallel()
	l := startLab(t, nil)
	script := opening + "> RCPT TO:<anna@a-postscreen.test>\n"
	one := dialHost(t, l, "mx1.a-postscreen.test")
	one.play(script + "< 450 4.3.2\n> RCPT TO:<anna@a-postscreen.test>\n< 450 4.3.2")
	dialHost(t, l, "mx1.a-postscreen.test").play(script + "< 250")
}

func TestEarlyTalkIsSeen(t *testing.T) {
	t.Parallel()
	l := startLab(t, nil)
	w := dialHost(t, l, "mx1.a-pregreet.test")
	w.send("EHLO x\r\n")
	w.play("< 220\n< 250")
	quiet := dialHost(t, l, "mx1.b-pregreet.test")
	quiet.play(opening)
	sheet := l.Manners()
	early, late := sheet.Receivers["a-pregreet.test"], sheet.Receivers["b-pregreet.test"]
	effort.Is(t, early.EarlyTalk, 1, "early talk")
	effort.Is(t, late.EarlyTalk, 0, "early talk")
}

// TestOneSessionAfterAnotherIsOneAtOnce keeps one session open at a time, ended
// with QUIT or by closing, at a receiver that allows one.
func TestOneSessionAfterAnotherIsOneAtOnce(t *testing.T) {
	l := startLab(t, nil)
	for i := range 100 {
		w := dialHost(t, l, "mx1.a-onesession.test")
		w.says("", "220")
		if i%2 == 0 {
			w.says("QUIT", "221")
		}
		_ = w.conn.Close()
	}
	got := l.Manners().Receivers["a-onesession.test"]
	effort.ErrorIf(t, got.SessionsAtOnce != 1 || got.LimitsHit != 0 || got.Sessions != 100,
		"%d sessions, %d at once, %d over the limit", got.Sessions, got.SessionsAtOnce, got.LimitsHit)
}

// TestLastReplyIsNotLost sends on behind the command whose reply ends the session.
func TestLastReplyIsNotLost(t *testing.T) {
	l := startLab(t, nil)
	w := dialHost(t, l, "mx1.a-clean.test")
	w.says("", "220")
	w.send("QUIT\r\n" + strings.Repeat("NOOP\r\n", 1000))
	w.play("< 221\n< EOF")
}

func TestLimitsStepIn(t *testing.T) {
	l := startLab(t, nil)
	t.Run("sessions at once", func(t *testing.T) {
		first := dialHost(t, l, "mx1.a-onesession.test")
		first.says("", "220")
		dialHost(t, l, "mx1.a-onesession.test").play("< 421 4.7.0\n< EOF")
		first.play("> QUIT\n< 221\n< EOF")
		effort.Within(t, "there is room again", func() bool {
			w := dialHost(t, l, "mx1.a-onesession.test")
			defer func() { _ = w.conn.Close() }()
			return strings.HasPrefix(w.reply(), "220")
		})
	})
	t.Run("new sessions in a minute", func(t *testing.T) {
		for range 20 {
			dialHost(t, l, "mx1.a-fewconnects.test").says("", "220")
		}
		dialHost(t, l, "mx1.a-fewconnects.test").play("< 421\n< EOF")
	})
	t.Run("RCPTs in a second", func(t *testing.T) {
		w := dialHost(t, l, "mx1.a-ratelimit.test")
		w.t = t
		w.play(opening)
		limited := 0
		for range 6 {
			w.send("RCPT TO:<anna@a-ratelimit.test>\r\n")
			if strings.HasPrefix(w.reply(), "450 4.7.1") {
				limited++
			}
		}
		hits := l.Manners().Receivers["a-ratelimit.test"].LimitsHit
		effort.ErrorIf(t, limited == 0 || hits != limited, "%d replies of the limit, %d counted", limited, hits)
	})
	t.Run("slow after errors", func(t *testing.T) {
		p := Personality{Name: "soft", Guard: GuardSlow, GuardAt: 1}
		effort.OK(t, l.Add(Domain{Name: "soft.example", Personality: p}))
		w := dialHost(t, l, "mx1.soft.example")
		w.t = t
		w.play(opening + `
			> RCPT TO:<ghost@soft.example>
			< 550
			> RCPT TO:<ghost@soft.example>
			< 421 4.7.0
			< EOF`)
	})
	t.Run("sessions of the lab", func(t *testing.T) {
		small := startLab(t, func(o *Options) { o.SessionsMax = 1 })
		dialHost(t, small, "mx1.a-clean.test").says("", "220")
		dialHost(t, small, "mx1.b-clean.test").play("< 421\n< EOF")
	})
}

// TestWindowAgainstModel adds events at random times and counts them naively.
func TestWindowAgainstModel(t *testing.T) {
	effort.Unraced(t, "plain calls with values")
	random := rand.New(rand.NewPCG(1, 2))
	w := window{span: time.Second}
	now := time.Unix(1_800_000_000, 0)
	var all []time.Time
	most := 0
	for range 5000 {
		now = now.Add(time.Duration(random.IntN(int(20 * time.Millisecond))))
		all = append(all, now)
		want := 0
		for _, at := range all {
			if now.Sub(at) < w.span {
				want++
			}
		}
		most = max(most, want)
		effort.MustBe(t, w.add(now), want, "after", len(all), "events: in the window")
	}
	effort.Is(t, w.most, most, "most")
	for range windowMax + 10 {
		w.add(now)
	}
	effort.Is(t, w.most, windowMax, "a full window says")
}

func TestStopEndsEveryGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	l := effort.Must(Start(Defaults()))(t)
	for _, personality := range []string{"clean", "silent", "tarpit", "pregreet", "endless"} {
		dialHost(t, l, "mx1.a-"+personality+".test")
	}
	dialHost(t, l, "mx1.b-clean.test").says("", "220")
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	for range 2 {
		effort.OK(t, l.Stop(ctx))
	}
	// The helper that waits in Stop, and the runtime, may take a moment more.
	effort.Within(t, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}

func TestTakenPortIsNamed(t *testing.T) {
	l := startLab(t, nil)
	o := Defaults()
	o.SMTPPort = l.SMTPPort()
	second, err := Start(o)
	effort.ErrorIf(t, !errors.Is(err, ErrPortTaken), "same SMTP port: %v, %v; want ErrPortTaken", second, err)
	o = Defaults()
	o.DNSListen = netip.MustParseAddrPort(l.DNSAddr())
	second, err = Start(o)
	effort.ErrorIf(t, !errors.Is(err, ErrPortTaken), "same DNS port: %v, %v; want ErrPortTaken", second, err)
}

func TestNetworkOfTheHosts(t *testing.T) {
	for _, c := range []struct {
		name, network, dns string
		want               string // "": fits
	}{
		{"the default", networkText, "127.0.0.1:0", ""},
		{"private", "10.77.0.0/16", "10.77.0.1:53", ""},
		{"private, DNS on loopback", "192.168.7.0/24", "127.0.0.1:0", ""},
		{"the whole of 172.16.0.0/12", "172.16.0.0/12", "127.0.0.1:0", ""},
		{"public", "192.0.2.0/24", "127.0.0.1:0", "Network"},
		{"public before a private part", "172.0.0.0/8", "127.0.0.1:0", "Network"},
		{"public behind a private beginning", "192.168.0.0/15", "127.0.0.1:0", "Network"},
		{"with what must not be dialled", "10.0.0.0/8", "127.0.0.1:0", "Network"},
		{"too small", "10.77.0.0/25", "127.0.0.1:0", "Network"},
		{"an address in it", "10.77.0.1/16", "127.0.0.1:0", "Network"},
		{"IPv6", "fd00::/16", "127.0.0.1:0", "Network"},
		{"DNS elsewhere", "10.77.0.0/16", "10.78.0.1:53", "DNSListen"},
	} {
		o := Defaults()
		o.Network, o.DNSListen = netip.MustParsePrefix(c.network), netip.MustParseAddrPort(c.dns)
		err := o.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s with DNS at %s: got %v, want %q", c.name, c.network, c.dns, err, c.want)
		}
	}
}

func TestAFullNetworkTakesNoMoreHosts(t *testing.T) {
	l := startLab(t, func(o *Options) { o.Network = netip.MustParsePrefix("127.68.0.0/24") })
	open := func(i int) error {
		name := fmt.Sprintf("d%d-clean.test", i)
		l.mu.Lock()
		defer l.mu.Unlock()
		_, err := l.openHost("mx1."+name, l.receiverOf(name, l.personas["clean"]), true)
		return err
	}
	for i := range 254 { // without the network's own address and the first one
		effort.OK(t, open(i), "host", i)
	}
	effort.Is(t, open(254), ErrHostsMax, "one host more than addresses")
}

func TestTheSheetIsShownWhileTheLabRuns(t *testing.T) {
	l := startLab(t, func(o *Options) { o.EventsMax = 100 })
	w := dialHost(t, l, "mx1.acme-clean.test")
	w.says("", "220 ")
	w.says("HELO probe.example", "250 ")
	w.says("MAIL FROM:<a@probe.example>", "250 ")
	w.says("RCPT TO:<anna@acme-clean.test>", "250 ")
	w.says("RCPT TO:<nobody@acme-clean.test>", "550 ")
	show := func(method, path string) (int, string) {
		t.Helper()
		answer := httptest.NewRecorder()
		l.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
		text := effort.Must(io.ReadAll(answer.Result().Body))(t)
		return answer.Code, string(text)
	}
	var sheet Sheet
	_, text := show("GET", "/sheet")
	effort.FatalIf(t, json.Unmarshal([]byte(text), &sheet) != nil, "no sheet: %s", text)
	got := sheet.Receivers["acme-clean.test"]
	effort.ErrorIf(t, got.SessionsOpen != 1 || got.SessionsAtOnce != 1 || got.SessionsIn60s != 1 ||
		got.RcptsIn1s != 2 || got.Refused != 1, "the sheet of the receiver: got %+v", got)
	for _, c := range []struct {
		name, method, path string
		code               int
		kinds              string
	}{
		{"all events", "GET", "/events", 200, "connect rcpt rcpt"},
		{"later events", "GET", "/events?after=2", 200, "rcpt"},
		{"none yet", "GET", "/events?after=7", 200, ""},
		{"no number", "GET", "/events?after=-1", 400, ""},
		{"nothing there", "GET", "/", 404, ""},
		{"no change", "POST", "/sheet", http.StatusMethodNotAllowed, ""},
	} {
		code, text := show(c.method, c.path)
		var kinds []string
		for line := range strings.Lines(text) {
			var e Event
			if code == 200 && json.Unmarshal([]byte(line), &e) == nil {
				kinds = append(kinds, e.Kind)
			}
		}
		if got := strings.Join(kinds, " "); code != c.code || got != c.kinds {
			t.Errorf("%s: got %d with %q, want %d with %q", c.name, code, got, c.code, c.kinds)
		}
	}
}
