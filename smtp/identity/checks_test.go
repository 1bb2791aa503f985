package identity

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

func TestChecks(t *testing.T) {
	v6 := source()
	v6.Addr = netip.MustParseAddr("2001:db8::a")
	const reverse6 = "a.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa."
	short, address, behind := source(), source(), source()
	behind.Addr = netip.MustParseAddr("10.0.0.4")
	short.Hello, address.Hello = "probe", "192.0.2.10"
	for _, c := range []struct {
		name    string
		check   Check
		source  Source
		records []string
		broken  string // a name that gets SERVFAIL
		want    State
		saw     string
	}{
		{"all is well: PTR", PTR, source(), sound, "", OK, "probe.example and back"},
		{"all is well: hello", Hello, source(), sound, "", OK, "probe.example resolves to it"},
		{"all is well: SPF", SPF, source(), sound, "", OK, "example.org says pass"},
		{"all is well: return path", ReturnPath, source(), sound, "", OK, "example.org has an MX"},

		{"no PTR", PTR, source(), nil, "", Fail, "the address has no PTR"},
		{"PTR that leads nowhere", PTR, source(), sound[:1], "", Fail, "its PTR is probe.example, which does not"},
		{"PTR that leads elsewhere", PTR, source(), []string{sound[0], "probe.example. A 192.0.2.11"}, "", Fail,
			"its PTR is probe.example, which does not resolve to it"},
		{"the second of two PTR leads back", PTR, source(), []string{"10.2.0.192.in-addr.arpa. PTR other.example.",
			sound[0], sound[1]}, "", OK, "probe.example and back"},
		{"PTR of a dial-up line", PTR, source(), []string{"10.2.0.192.in-addr.arpa. PTR dyn-192-0-2-10.isp.example.",
			"dyn-192-0-2-10.isp.example. A 192.0.2.10"}, "", Warn, "looks like a dial-up address"},
		{"PTR of a dial-up line, reversed", PTR, source(), []string{
			"10.2.0.192.in-addr.arpa. PTR 10.2.0.192.isp.example.", "10.2.0.192.isp.example. A 192.0.2.10"}, "", Warn,
			"looks like a dial-up address"},
		{"PTR not known", PTR, source(), sound, "10.2.0.192.in-addr.arpa", Skipped, "not checked: PTR of 10.2.0.192"},
		{"name of the PTR not known", PTR, source(), sound, "probe.example", Skipped, "not checked: AAAA of probe.example"},
		{"IPv6", PTR, v6, []string{reverse6 + " PTR probe.example.", "probe.example. AAAA 2001:db8::a"}, "", OK,
			"probe.example and back"},
		{"IPv6 without PTR", PTR, v6, sound, "", Fail, "the address has no PTR"},

		{"hello that is short", Hello, short, sound, "", Fail, `"probe" is no full host name`},
		{"hello that is an address", Hello, address, sound, "", Fail, "is no full host name"},
		{"hello behind NAT", Hello, behind, []string{"probe.example. A 192.0.2.11"}, "", OK, "probe.example resolves"},
		{"hello behind NAT that does not resolve", Hello, behind, nil, "", Fail, "probe.example does not resolve"},
		{"hello that does not resolve", Hello, source(), nil, "", Fail, "probe.example does not resolve"},
		{"hello of another address", Hello, source(), []string{"probe.example. A 192.0.2.11"}, "", Warn,
			"probe.example resolves to 192.0.2.11"},
		{"hello not known", Hello, source(), sound, "probe.example", Skipped, "not checked"},

		{"no SPF", SPF, source(), nil, "", Warn, "example.org has no SPF record"},
		{"SPF of others", SPF, source(), []string{`example.org. TXT "v=spf1 ip4:192.0.2.11 -all"`}, "", Fail,
			"example.org says fail"},
		{"SPF of others, softly", SPF, source(), []string{`example.org. TXT "v=spf1 ip4:192.0.2.11 ~all"`}, "", Fail,
			"example.org says softfail"},
		{"SPF that says nothing", SPF, source(), []string{`example.org. TXT "v=spf1 ?all"`}, "", Warn,
			"example.org says neutral"},
		{"SPF that cannot be read", SPF, source(), []string{`example.org. TXT "v=spf1 ip4:300.1.1.1 -all"`}, "", Fail,
			"cannot be used"},
		{"two SPF records", SPF, source(), []string{`example.org. TXT "v=spf1 -all"`,
			`example.org. TXT "v=spf1 +all"`}, "", Fail, "cannot be used"},
		{"SPF in parts, by MX", SPF, source(), []string{`example.org. TXT "v=spf1 m" "x -all"`,
			"example.org. MX 1 mx.example.org.", "mx.example.org. A 192.0.2.10"}, "", OK, "example.org says pass"},
		{"SPF that is included", SPF, source(), []string{`example.org. TXT "v=spf1 include:_spf.example -all"`,
			`_spf.example. TXT "v=spf1 ip4:192.0.2.10 -all"`}, "", OK, "example.org says pass"},
		{"SPF included that is not known", SPF, source(), []string{
			`example.org. TXT "v=spf1 include:_spf.example -all"`}, "_spf.example", Skipped, "not checked"},
		{"SPF too long for UDP", SPF, source(), []string{`example.org. TXT "v=spf1 ` +
			strings.Repeat(`" "ip4:203.0.113.77 `, 40) + `ip4:192.0.2.10 -all"`}, "", OK, "example.org says pass"},
		{"SPF not known", SPF, source(), sound, "example.org", Skipped, "not checked"},
		{"SPF of IPv6", SPF, v6, sound, "", Fail, "example.org says fail"},

		{"return path that takes no mail", ReturnPath, source(), []string{"example.org. MX 0 ."}, "", Fail, "null MX"},
		{"return path without MX", ReturnPath, source(), []string{"example.org. A 192.0.2.25"}, "", OK,
			"has an address and no MX"},
		{"return path that is nowhere", ReturnPath, source(), nil, "", Fail, "has neither MX nor address"},
		{"return path not known", ReturnPath, source(), sound, "example.org", Skipped, "not checked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := newZone(t, c.records...)
			if c.broken != "" {
				z.breakName(c.broken, true)
			}
			var f Finding
			switch r := z.client(); c.check {
			case PTR:
				f = CheckPTR(t.Context(), r, c.source)
			case Hello:
				f = CheckHello(t.Context(), r, c.source)
			case SPF:
				f = CheckSPF(t.Context(), r, c.source)
			case ReturnPath:
				f = CheckReturnPath(t.Context(), r, c.source.ReturnPath)
			}
			effort.ErrorIf(t, f.Check != c.check || f.State != c.want || !strings.Contains(f.Saw, c.saw),
				"got %s, %s: %q; want %s, %q", f.Check, f.State, f.Saw, c.want, c.saw)
			effort.Is(t, f.State == OK, f.Next == "", f.State, "what to do next", f.Next)
			effort.Is(t, f.trouble, c.want == Skipped, "trouble")
		})
	}
}

func TestAServerThatIsAwayIsPassedOver(t *testing.T) {
	z := newZone(t, sound...)
	c := effort.Must(NewClient([]string{"127.0.0.1:1", z.addr}, 5*time.Second))(t)
	effort.Is(t, CheckPTR(t.Context(), c, source()).State, OK)
}

func TestBlockLists(t *testing.T) {
	for _, c := range []struct {
		name, record string
		want         State
		saw          string
	}{
		{"not listed", "", OK, "not on bl.example"},
		{"listed", "10.2.0.192.bl.example. A 127.0.0.2", Fail, "bl.example has it (127.0.0.2)"},
		{"listed for another reason", "10.2.0.192.bl.example. A 127.0.0.10", Fail, "bl.example has it (127.0.0.10)"},
		{"asked through a public resolver", "10.2.0.192.bl.example. A 127.255.255.254", Skipped,
			"you asked through a public resolver"},
		{"domain that was sold", "10.2.0.192.bl.example. A 203.0.113.9", Skipped, "no answer of a block list"},
		{"list of everything", "10.2.0.192.bl.example. A 127.0.0.1", Skipped, "no answer of a block list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := newZone(t)
			if c.record != "" {
				z.add(c.record)
			}
			l := NewLists([]string{"bl.example"}, func() ([]byte, error) { return nil, nil }, func([]byte) error { return nil })
			got := l.Check(t.Context(), z.client(), source(), time.Unix(1e9, 0))
			effort.ErrorIf(t, len(got) != 1 || got[0].State != c.want || !strings.Contains(got[0].Saw, c.saw) ||
				got[0].Source != "192.0.2.10" || got[0].List != "bl.example", "got %+v, want %s, %q", got, c.want,
				c.saw)
		})
	}
}

// TestAListIsAskedOnceADay also over a restart, and whatever it answers.
func TestAListIsAskedOnceADay(t *testing.T) {
	z := newZone(t)
	z.breakName("10.2.0.192.sick.example", true)
	var kept []byte
	begin := func() *Lists {
		return NewLists([]string{"bl.example", "sick.example"}, func() ([]byte, error) { return kept, nil },
			func(text []byte) error { kept = text; return nil })
	}
	l, now := begin(), time.Unix(1e9, 0)
	other := source()
	other.Addr = netip.MustParseAddr("192.0.2.11")
	for _, step := range []struct {
		after   time.Duration
		restart bool
		want    int // questions to each list about one address so far
	}{
		{0, false, 1}, {time.Minute, false, 1}, {12 * time.Hour, true, 1}, {24*time.Hour - 1, false, 1},
		{24 * time.Hour, true, 2}, {48*time.Hour - 1, false, 2}, {48 * time.Hour, false, 3},
	} {
		if step.restart {
			l = begin()
		}
		for _, s := range []Source{source(), other} {
			l.Check(t.Context(), z.client(), s, now.Add(step.after))
		}
		for _, name := range []string{"10.2.0.192.bl.example", "11.2.0.192.bl.example", "10.2.0.192.sick.example"} {
			effort.Is(t, z.questions(name), step.want, "after", step.after, "questions for", name)
		}
	}
	effort.Not(t, strings.Count(string(kept), "bl.example"), 0, "kept", kept)
	kept = []byte("{broken")
	effort.Is(t, len(begin().Check(t.Context(), z.client(), source(), now)), 2, "with a broken file")
}

func TestNamesAtBlockLists(t *testing.T) {
	for _, c := range []struct{ addr, want string }{
		{"192.0.2.99", "99.2.0.192.bad.example"}, // the example of RFC 5782 §2.1
		{"2001:db8:1:2:3:4:567:89ab", // and of §2.4
			"b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.bad.example"},
	} {
		effort.Is(t, listName(netip.MustParseAddr(c.addr), "bad.example"), c.want, c.addr)
	}
}

func TestClock(t *testing.T) {
	for _, c := range []struct {
		offset time.Duration
		known  bool
		want   State
	}{
		{0, false, Skipped}, {0, true, OK}, {clockOffset, true, OK}, {-clockOffset, true, OK},
		{clockOffset + 1, true, Warn}, {-clockOffset - 1, true, Warn}, {time.Hour, true, Warn},
	} {
		effort.Is(t, CheckClock(c.offset, c.known, time.Now()).State, c.want, c.offset, c.known)
	}
}

func TestRest(t *testing.T) {
	now := time.Unix(1e9, 0)
	a, b := Suspension{Source: "192.0.2.1"}, Suspension{Source: "192.0.2.2", Blocks: 3}
	gone := Suspension{Source: "192.0.2.3", Until: now.Add(time.Second), Why: "4 receivers refuse it"}
	back := Suspension{Source: "192.0.2.4", Until: now, Why: "4 receivers refuse it"}
	for _, c := range []struct {
		name string
		list []Suspension
		want string
	}{
		{"nothing is known", nil, ""},
		{"all is well", []Suspension{a, b}, "ok ok"},
		{"one rests", []Suspension{a, gone}, "ok warn"},
		{"all rest", []Suspension{gone, gone}, "fail fail"},
		{"the rest is over", []Suspension{back}, "ok"},
	} {
		var got []string
		for _, f := range CheckSuspensions(c.list, now) {
			got = append(got, string(f.State))
		}
		effort.Is(t, strings.Join(got, " "), c.want, c.name, got)
	}
}

func TestSpecialAddresses(t *testing.T) {
	for text, want := range map[string]bool{"127.0.0.1": true, "::1": true, "10.1.2.3": true, "172.16.0.1": true,
		"192.168.1.1": true, "fd00::1": true, "fe80::1": true, "169.254.1.1": true, "100.64.0.1": true,
		"::ffff:10.0.0.1": true, "100.128.0.1": false, "192.0.2.1": false, "2001:db8::1": false, "8.8.8.8": false} {
		effort.Is(t, special(netip.MustParseAddr(text)) != "", want, text)
	}
}
