package evidence

import (
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/smtp"
)

func rawOf(lines ...string) Raw {
	return Raw{
		Hello: "Probe.Example", Source: "192.0.2.25",
		Address:    smtp.Address{Local: "No.Such.User", Domain: "example.com"},
		ReturnPath: smtp.Address{Local: "ask.back", Domain: "back.example"},
		Reply:      smtp.Reply{Code: 550, Lines: lines},
	}
}

func TestClean(t *testing.T) {
	tests := []struct{ in, want string }{
		{"User  Unknown\t\x00!", "user unknown !"},
		{"Größe ÜBER Limit", "größe über limit"},
		{"ЯЩИК не найден", "ящик не найден"},
		{"İSTİFADƏÇİ", "istifadəçi"}, // the small letter takes fewer bytes
		{"bo\xeete inconnue", "boîte inconnue"},
		{"zero\u200bwidth\u00a0space", "zero width space"},

		// What we brought along.
		{"<No.Such.User@EXAMPLE.com>: gone", "<^>: gone"},
		{"no.such.user here", "^ here"},
		{"xno.such.user no.such.users", "xno.such.user no.such.users"},
		{"at example.com, not at example.comx", "at ~, not at example.comx"},
		{"probe.example[192.0.2.25]", `\[~]`},
		{"192.0.2.255 1192.0.2.25", "192.0.2.255 1192.0.2.25"},
		{"25.2.0.192.bl.test and host-192-0-2-25.test", "~.bl.test and host-~.test"},
		{"ask.back of back.example", `\ of \`},

		{"<Ask.Back@back.example>: unknown", `<\>: unknown`},
		{"'no.such.user@example.com' is gone, to=no.such.user@example.com", "^' is gone, ^"},
		{"mail.back.example, x.no.such.user@example.com", `mail.\, ~`},

		// Addresses of others.
		{"talk to <Jane.Roe+x@mail.test>.", "talk to <~>."},
		{"talk to jane@mail.test.", "talk to ~."},
		{`"jane roe"@mail.test said`, "~ said"},
		{"bounce+jane=mail.test@list.test", "~"},
		{"jane@[192.0.2.1] jane＠mail.test", "~ ~"},
		{"mailto:jane@mail.test", "mailto:~"},
		{"no.such.user@example.com...user unknown", "^...user unknown"},
		{"jane@ is gone, @mail.test stays", "~ is gone, ~mail.test stays"},

		// The address that was asked, inside a sentence without spaces or between its signs.
		{"用户“no.such.user@example.com”不存在", "用户“^”不存在"},
		{"no.such.user@example.comは不明なユーザーです", "^は不明なユーザーです"},
		{"ñno.such.user@example.com jane.no.such.user@example.com", "~ ~"},
		{"用户jane@example.com不存在", "~"},

		// URLs keep their words.
		{"https://help.test/c=rdns&ip=1", "https://help.test/c=rdns&ip=1"},
		{"http://jane:pw@help.test/x?a=jane%40mail.test&p=ipv6_guidelines", "http://~help.test/x?a=~&p=ipv6_guidelines"},
		{"http://help.test/?id=0a1b2c3d4e5f6a7b&c=r0201", "http://help.test/?id=~&c=r0201"},

		// Tickets go, codes stay.
		{"[S3140] AS780090 TSS04 OFR_416 4.7.650 AUP#1310", "[s3140] as780090 tss04 ofr_416 4.7.650 aup#1310"},
		{"id 3b1f0a9c-5d7e-4aab-9c1d-0123456789ab.", "id ~."},
		{"d2e1a72fcca58-3b1f0a9c5d7si12345 - gsmtp", "~-~ - gsmtp"},
		{"recipientunknown 123456789012345", "recipientunknown 123456789012345"},
	}
	for _, test := range tests {
		effort.Is(t, Clean(rawOf(test.in)), test.want, test.in)
	}
}

// "user" is a word of replies, whoever is called so.
func TestUnreadable(t *testing.T) {
	for _, tc := range []struct {
		line string
		code int
		want bool
	}{
		{"\x85\x93\x8d\x81 \x81\x8d\x8f\x90 \x9d", 550, true}, // as KOI8-R, which it isn't
		{"\xff\xfe\xff\xfe \x00\xff", 550, true},
		{"\xff\xfe\xff\xfe \x00\xff", 450, false},
		{"user \x81\x8d unknown", 550, false},
		{"<no.such.user@example.com>", 550, false},
		{"", 550, false},
	} {
		raw := rawOf(tc.line)
		raw.Stage, raw.Reply.Code = smtp.StageRcpt, tc.code
		a := Note(raw)
		effort.ErrorIf(t, a.Unreadable() != tc.want, "%d %q: %q is unreadable: %v", tc.code, tc.line, a.Text, !tc.want)
	}
}

func TestCleanKeepsAPlainWord(t *testing.T) {
	for _, local := range []string{"user", "-user", "user+", "`user`"} {
		r := rawOf("user unknown")
		r.Address.Local = local
		effort.Is(t, Clean(r), "user unknown", local)
	}
}

// A name that our source was written to without a space goes too.
func TestCleanTakesANameBesideTheSource(t *testing.T) {
	r := rawOf("probe.host2001:db8::25: blocked")
	r.Hello, r.Source = "probe.host", "2001:db8::25"
	got, want := Clean(r), `\~: blocked`
	effort.ErrorIf(t, got != want, "%q, want %q", got, want)
}

func TestCleanKnowsIPv6HoweverSpelled(t *testing.T) {
	r := rawOf("ip 2001:db8::25: blocked, [2001:DB8:0:0::25] [IPv6:2001:0db8:0000::0025]. 2001:db8::251 "+
		"5.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.bl.test", "at 10:30")
	r.Source = "2001:db8::25"
	want := "ip ~: blocked, [~] [ipv6:~]. 2001:db8::251 ~.ip6.bl.test at 10:30"
	effort.Is(t, Clean(r), want)
}

// The beginning and the end of the last line are kept, and no piece of an address.
func TestCleanBoundsTheText(t *testing.T) {
	long := strings.Repeat("please read ", 50) + "first.secret-local-part-of-somebody@mail.test " +
		strings.Repeat("our pages ", 300)
	got := Clean(rawOf(long, strings.Repeat("jane@mail.test ", 500)+"user unknown"))
	effort.ErrorIf(t, len(got) > TextMax || !strings.HasPrefix(got, "please read") ||
		!strings.HasSuffix(got, "user unknown") || strings.Contains(got, "secret") || strings.Contains(got, "jane") ||
		strings.Contains(got, "mail.test"), "%d bytes: %q", len(got), got)
	for size := TextMax - 3; size < TextMax+3; size++ {
		got := Clean(rawOf(strings.Repeat("x ", size/2) + "x"))
		effort.ErrorIf(t, len(got) > TextMax, "%d bytes of %d", len(got), size)
	}
	if got := Clean(rawOf(strings.Repeat("x", 3*TextMax))); len(got) > TextMax {
		t.Errorf("%d bytes", len(got))
	}
}

// checkClean is what is promised of every text.
func checkClean(t interface{ Fatalf(string, ...any) }, r Raw) {
	text := Clean(r)
	if len(text) > TextMax || !utf8.ValidString(text) || strings.ContainsAny(text, "@\r\n\x00") {
		t.Fatalf("%+v: %q", r, text)
	}
	again := r
	again.Reply.Lines = []string{text}
	if twice := Clean(again); twice != text {
		t.Fatalf("%+v: %q, and once more %q", r, text, twice)
	}
	if a, err := netip.ParseAddr(r.Source); err == nil && a.Is4() && strings.Contains(" "+text+" ", " "+r.Source+" ") {
		t.Fatalf("%+v: %q holds the source", r, text)
	}
}

func TestCleanIsIdempotent(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"user", "unknown", "@", "~", ".", " ", "-", "<", ">", "\"", "://", "/", "%40", "%4", "0", ":", "::", "ipv6:",
		"no.such.user", "example.com", "192.0.2.25", "2001:db8::25", "probe.example", "a1b2c3d4e5f6g7", "ü", "Ⱥ", "\xff",
		"[", "]", "25.2.0.192", strings.Repeat("long ", 100), strings.Repeat("y", 300),
	})
	word := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), "")
	})
	effort.Check(t, func(t *rapid.T) {
		r := Raw{
			Hello: word.Draw(t, "hello"), Address: smtp.Address{Local: word.Draw(t, "local"), Domain: word.Draw(t, "domain")},
			Source:     rapid.SampledFrom([]string{"", "192.0.2.25", "2001:db8::25", "x"}).Draw(t, "source"),
			ReturnPath: smtp.Address{Local: word.Draw(t, "from"), Domain: "back.example"},
		}
		r.Reply.Lines = rapid.SliceOfN(word, 1, 6).Draw(t, "lines")
		checkClean(t, r)
	})
}

func FuzzClean(f *testing.F) {
	f.Add("550 user unknown", "john@example.com", "probe.example", "192.0.2.25")
	f.Add("a@b\n\"x y\"@[::1] %40 http://u@h/", "a~b@c", "~", "2001:db8::25")
	f.Fuzz(func(t *testing.T, text, address, hello, source string) {
		local, domain, _ := strings.Cut(address, "@")
		r := Raw{Hello: hello, Source: source, Address: smtp.Address{Local: local, Domain: domain}}
		r.Reply.Lines = strings.Split(text, "\n")
		checkClean(t, r)
	})
}

// TestRepeatedRepliesAreCleanedAlike: a text that was cleaned for one address is what cleaning gives for another
// one whose reply has the same key, if SameFor says so.
func TestRepeatedRepliesAreCleanedAlike(t *testing.T) {
	part := rapid.SampledFrom([]string{"user", "unknown", "no.such.user", "anna", "ANNA", "example.com", "Example.Org",
		"@", "%40", "\uff20", "~", "^", "\\", ".", "-", "+", "ä", "\u200b", "192.0.2.25", "probe.example", "ask.back",
		"a1b2c3d4e5f6", "::", "2001:db8::1", "\u212a", "\x00", "http://", "/", "<", ">", "\"", ":", "(", ",", "=",
		"<A>", "<A>", " A ", "A", "A:", "x"})
	text := func(t *rapid.T, label string, most int) string {
		out := ""
		for _, p := range rapid.SliceOfN(part, 0, most).Draw(t, label) {
			out += p
			if rapid.Bool().Draw(t, "space") {
				out += " "
			}
		}
		return out
	}
	names := []string{"anna", "user", "no.such.user", "x", "ANNA", "-x.", "a+b", "example.com", "com", "ä", "a b", "a%40b",
		"a^b", "such.", "no.such", "user.unknown", "\"a\""}
	fill := func(line string, a smtp.Address) string {
		out := ""
		for _, c := range line {
			if c == 'A' {
				out += a.Local + "@" + a.Domain
			} else {
				out += string(c)
			}
		}
		return out
	}
	same, named, draws := 0, 0, 0
	effort.Check(t, func(t *rapid.T) {
		lines := []string{text(t, "first", 6), text(t, "second", 3)}
		if draws++; draws%2 == 0 { // few of what is drawn name an address
			lines[0] += " <A>"
		}
		r := rawOf()
		r.Source = rapid.SampledFrom([]string{"192.0.2.25", "2001:db8::1", ""}).Draw(t, "source")
		said := map[string]string{} // by key: the first text that was cleaned for it
		for i := range len(names) * len(names) {
			r.Address = smtp.Address{Local: names[i%len(names)], Domain: names[i/len(names)]}
			r.Reply.Lines = []string{fill(lines[0], r.Address), fill(lines[1], r.Address)}
			key, n, ok := AppendKey(nil, r.Reply, r.Address)
			if !ok {
				continue
			}
			first, known := said[string(key)]
			if !known {
				said[string(key)] = Clean(r)
				continue
			}
			if !IsWhole(first, n) || !SameFor(first, r.Address) {
				continue
			}
			same++
			if n > 0 {
				named++
			}
			effort.FatalIf(t, Clean(r) != first || !r.Address.ASCII(),
				"%q, but %q for %q of %q", first, Clean(r), r.Reply.Lines, r.Address)
		}
	})
	effort.ErrorIf(t, same == 0 || named == 0, "%d were the same, %d with their names", same, named)
}

// TestKeysOfReplies: whom a reply names makes no difference, all else does.
func TestKeysOfReplies(t *testing.T) {
	anna := smtp.Address{Local: "anna.b", Domain: "example.com"}
	for line, want := range map[string]string{
		"Ok":                                     "Ok\n",
		"<anna.b@example.com>: unknown":          "<\x00>: unknown\n",
		"anna.b@example.com, anna.b@example.com": "\x00, \x00\n",
		"xanna.b@example.com unknown":            "",
		"anna.b@example.com.au unknown":          "",
		"anna.b@example.org unknown":             "",
		"\x00 anna.b@example.com":                "",
		"":                                       "\n",
		"http://example.org/?a=anna.b@example.com": "",
	} {
		key, _, ok := AppendKey(nil, smtp.Reply{Lines: []string{line}}, anna)
		effort.ErrorIf(t, ok != (want != "") || ok && string(key) != want, "%q: %q, %v", line, key, ok)
	}
	_, _, ok := AppendKey(nil, smtp.Reply{Lines: make([]string, repeatedBytes+1)}, anna)
	effort.ErrorIf(t, ok, "a reply of any length has a key")
}
