package smtp

import (
	"errors"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// local64 and wide64 are the longest local parts, in letters of one octet and of two.
var (
	local64 = strings.Repeat("l", 64)
	wide64  = strings.Repeat("ä", 32)
)

// domain253 is a domain of exactly 253 octets: three labels of 63 and one of 61.
var domain253 = strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 61)

func TestWellFormedAddresses(t *testing.T) {
	long := func(local, domain int) string { // domain of labels of 60 octets and a rest
		d := strings.Repeat(strings.Repeat("d", 59)+".", domain/60) + strings.Repeat("e", domain%60)
		return strings.Repeat("l", local) + "@" + d
	}
	for _, tt := range []struct {
		name, text string
		want       Address
	}{
		{"plain", "ada@example.test", Address{"ada", "example.test"}},
		{"case of the local part is kept", "Ada.L@example.test", Address{"Ada.L", "example.test"}},
		{"domain to lower case", "ada@EXAMPLE.Test", Address{"ada", "example.test"}},
		{"all of atext", "!#$%&'*+-/=?^_`{|}~@example.test", Address{"!#$%&'*+-/=?^_`{|}~", "example.test"}},
		{"formula in a spreadsheet", "=1+1@example.test", Address{"=1+1", "example.test"}},
		{"one letter each", "a@b", Address{"a", "b"}},
		{"single label", "root@localhost", Address{"root", "localhost"}},
		{"label of digits", "a@123.example", Address{"a", "123.example"}},
		{"domain of digits only is no network address", "a@192.0.2.1", Address{"a", "192.0.2.1"}},
		{"inner hyphens", "a@a--b.c-d.example", Address{"a", "a--b.c-d.example"}},
		{"two hyphens in third place", "a@r3---sn.example", Address{"a", "r3---sn.example"}},
		{"quoted", `"ada lovelace"@example.test`, Address{`"ada lovelace"`, "example.test"}},
		{"quoted with all that needs it", `"a@b,c;:<>[]()"@c.test`, Address{`"a@b,c;:<>[]()"`, "c.test"}},
		{"quoted pair", `"a\"b\\c\ d"@example.test`, Address{`"a\"b\\c\ d"`, "example.test"}},
		{"quoted nothing", `""@example.test`, Address{`""`, "example.test"}},
		{"quoted dots", `".."@example.test`, Address{`".."`, "example.test"}},
		{"quoted beyond ASCII", `"ä ö"@example.test`, Address{`"ä ö"`, "example.test"}},
		{"quoted 64 octets", `"` + local64[2:] + `"@b`, Address{`"` + local64[2:] + `"`, "b"}},
		{"local part beyond ASCII", "джо@example.test", Address{"джо", "example.test"}},
		{"local part with joiner", "نامه\u200cای@b", Address{"نامه\u200cای", "b"}},
		{"local part of 64 octets beyond ASCII", wide64 + "@b", Address{wide64, "b"}},
		{"internationalized domain", "a@bücher.example", Address{"a", "xn--bcher-kva.example"}},
		{"upper case of it", "a@BÜCHER.Example", Address{"a", "xn--bcher-kva.example"}},
		{"decomposed domain", "a@bu\u0308cher.example", Address{"a", "xn--bcher-kva.example"}},
		{"its A-label", "a@xn--bcher-kva.example", Address{"a", "xn--bcher-kva.example"}},
		{"its A-label in upper case", "a@XN--BCHER-KVA.Example", Address{"a", "xn--bcher-kva.example"}},
		{"sharp s is not ss: non-transitional", "a@faß.example", Address{"a", "xn--fa-hia.example"}},
		{"ideographic dot", "a@例え。example", Address{"a", "xn--r8jz45g.example"}},
		{"fullwidth letters", "a@ｅｘａｍｐｌｅ.test", Address{"a", "example.test"}},
		{"Arabic domain", "a@مثال.إختبار", Address{"a", "xn--mgbh0fb.xn--kgbechtv"}},
		{"local part of 64", local64 + "@b", Address{local64, "b"}},
		{"label of 63", "a@" + strings.Repeat("d", 63), Address{"a", strings.Repeat("d", 63)}},
		{"address of 254", long(64, 189), Address{long(64, 0)[:64], long(64, 189)[65:]}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := effort.Must(ParseAddress(tt.text))(t)
			effort.Is(t, got, tt.want, "ParseAddress", tt.text)
		})
	}
}

// malformedAddresses are refused, each for one cause.
var malformedAddresses = []struct {
	name, text string
	want       error
}{
	{"empty", "", errNoAt},
	{"no at sign", "example.test", errNoAt},
	{"no local part", "@example.test", errLocalEmpty},
	{"no domain", "ada@", errDomainEmpty},
	{"two at signs", "a@b@c", errDomainByte},
	{"route", "<@relay.test:ada@example.test>", errLocalByte},
	{"route without brackets", "@relay.test:ada@example.test", errLocalEmpty},
	{"display name", "Ada <ada@example.test>", errSpace},
	{"quoted display name", `"Ada" <ada@example.test>`, errQuoteAfter},
	{"angle brackets", "<ada@example.test>", errLocalByte},
	{"angle bracket after the domain", "ada@example.test>", errDomainByte},
	{"mailto", "mailto:ada@example.test", errLocalByte},
	{"comment before", "(c)ada@example.test", errLocalByte},
	{"comment after", "ada@example.test(c)", errDomainByte},
	{"list", "a@b.test;c@d.test", errDomainByte},
	{"domain literal", "ada@[192.0.2.1]", errDomainLiteral},
	{"IPv6 literal", "ada@[IPv6:2001:db8::1]", errDomainLiteral},
	{"space before", " ada@example.test", errSpace},
	{"space after", "ada@example.test ", errSpace},
	{"tab after", "ada@example.test\t", errSpace},
	{"space before the at sign", "ada @example.test", errSpace},
	{"space after the at sign", "ada@ example.test", errSpace},
	{"no-break space before", "\u00a0ada@example.test", errSpace},
	{"no-break space after", "ada@example.test\u00a0", errDomainIDN},
	{"byte order mark before", "\ufeffada@example.test", errLocalControl},
	{"zero-width space before", "\u200bada@example.test", errLocalControl},
	{"right-to-left override", "ada\u202e@example.test", errLocalControl},
	{"line separator", "ada\u2028@example.test", errSpace},
	{"C1 control", "ada\u0080@example.test", errLocalControl},
	{"CR LF in the local part", "ada\r\nDATA@example.test", errLocalControl},
	{"CR LF in the domain", "ada@example.test\r\nDATA", errDomainByte},
	{"NUL in the local part", "a\x00da@example.test", errLocalControl},
	{"NUL in the domain", "ada@exam\x00ple.test", errDomainByte},
	{"DEL", "ada\x7f@example.test", errLocalControl},
	{"broken UTF-8 in the local part", "a\xffda@example.test", errLocalUTF8},
	{"surrogate in the local part", "a\xed\xa0\x80@example.test", errLocalUTF8},
	{"overlong at sign", "a\xc1\x80@example.test", errLocalUTF8},
	{"broken UTF-8 in the domain", "ada@exam\xc3.test", errDomainUTF8},
	{"decomposed local part", "jose\u0301@example.test", errLocalNFC},
	{"dot first", ".ada@example.test", errLocalDot},
	{"dot last", "ada.@example.test", errLocalDot},
	{"two dots", "ada..l@example.test", errLocalDot},
	{"only a dot", ".@example.test", errLocalDot},
	{"local part of 65", strings.Repeat("l", 65) + "@b", ErrLocalLong},
	{"local part of 66 octets beyond ASCII", strings.Repeat("ä", 33) + "@b", ErrLocalLong},
	{"quoted 65 octets", `"` + strings.Repeat("q", 63) + `"@b`, ErrLocalLong},
	{"quoted 65 octets beyond ASCII", `"q` + strings.Repeat("ä", 31) + `"@b`, ErrLocalLong},
	{"quoted pair across the bound", `"` + strings.Repeat("q", 61) + `\""@b`, ErrLocalLong},
	{"quote not closed", `"ada@example.test`, errQuoteOpen},
	{"quote not closed after a backslash", `"ada\`, errQuoteOpen},
	{"quote closed by a pair", `"ada\"@example.test`, errQuoteOpen},
	{"text after the quote", `"ada"l@example.test`, errQuoteAfter},
	{"nothing after the quote", `"ada"`, errQuoteAfter},
	{"quote inside", `a"d"a@example.test`, errLocalByte},
	{"control in quotes", "\"a\tb\"@example.test", errLocalControl},
	{"CR LF in quotes", "\"a\r\nb\"@example.test", errLocalControl},
	{"CR in a quoted pair", "\"a\\\rb\"@example.test", errLocalControl},
	{"letter beyond ASCII in a quoted pair", `"a\äb"@example.test`, errLocalControl},
	{"NUL in quotes", "\"a\x00b\"@example.test", errLocalControl},
	{"broken UTF-8 in quotes", "\"a\xffb\"@example.test", errLocalUTF8},
	{"decomposed in quotes", "\"jose\u0301\"@example.test", errLocalNFC},
	{"dot first in the domain", "ada@.example.test", errLabelEmpty},
	{"dot last in the domain", "ada@example.test.", errLabelEmpty},
	{"ideographic dot last", "ada@例え。", errLabelEmpty},
	{"two dots in the domain", "ada@example..test", errLabelEmpty},
	{"only a dot as domain", "ada@.", errLabelEmpty},
	{"hyphen first", "ada@-example.test", errLabelHyphen},
	{"hyphen last", "ada@example-.test", errLabelHyphen},
	{"underscore", "ada@ex_ample.test", errDomainByte},
	{"port", "ada@example.test:25", errDomainByte},
	{"label of 64", "a@" + strings.Repeat("d", 64) + ".test", ErrLabelLong},
	{"label of 64 as an A-label", "a@" + strings.Repeat("d", 60) + "ü.test", ErrLabelLong},
	{"domain of 254", "a@" + domain253 + "b", errDomainLong},
	{"domain of 253 in an address of 255", "a@" + domain253, errAddressLong},
	{"address of 255 as an A-label", "a@" + domain253[:245] + "ü", errAddressLong},
	{"domain text without end", "a@" + strings.Repeat("\u00ad", 4096) + "b", errDomainLong},
	{"A-label that is none", "a@xn--zzzzzzzz9.test", errDomainIDN},
	{"A-label of ASCII", "a@xn--abc-.test", errDomainIDN},
	{"A-label of nothing", "a@xn--.test", errLabelEmpty},
	{"fullwidth angle bracket", "a@example＞.test", errDomainIDN},
	{"symbol that is no letter of a domain", "a@exa\u2488mple.test", errDomainIDN},
	{"against the Bidi rule", "a@1אב.test", errDomainIDN},
	{"label of dropped characters only", "a@\u00ad.test", errLabelEmpty},
}

func TestMalformedAddresses(t *testing.T) {
	for _, tt := range malformedAddresses {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseAddress(tt.text)
			effort.ErrorIf(t, err != tt.want || !errors.Is(err, ErrMalformed) || got != (Address{}),
				"ParseAddress(%q) = %+v, %v, want %v", tt.text, got, err, tt.want)
		})
	}
}

func TestParseDomain(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
		err              error
	}{
		{"as it is", "mx1.example.test", "mx1.example.test", nil},
		{"longest", domain253, domain253, nil},
		{"too long", domain253 + "b", "", errDomainLong},
		{"empty", "", "", errDomainEmpty},
		{"final dot", "example.test.", "", errLabelEmpty},
		{"internationalized", "Bücher.Example", "xn--bcher-kva.example", nil},
		{"A-label of a capital letter", "xn--bcher-2pa.test", "", errDomainIDN},
		{"A-label that is decomposed", "xn--bucher-xyd.test", "", errDomainIDN},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseDomain(tt.text)
			effort.Is(t, got, tt.want, "ParseDomain", tt.text, tt.err)
			effort.Is(t, err, error(tt.err), "ParseDomain", tt.text)
		})
	}
}

// Every byte value stands once in each part of an otherwise well-formed address.
func TestEachByteHasItsPlace(t *testing.T) {
	const atext = "!#$%&'*+-/=?^_`{|}~.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	const ldh = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for c := range 256 {
		b := string([]byte{byte(c)})
		inQuotes := c >= ' ' && c <= '~' && c != '"' // a backslash makes a pair with what follows
		check := func(text string, want bool) {
			t.Helper()
			_, err := ParseAddress(text)
			effort.ErrorIf(t, (err == nil) != want, "ParseAddress(%q): %v, want well-formed %v", text, err, want)
		}
		check("a"+b+"b@c.test", strings.Contains(atext, b))
		check("a@b"+b+"c.test", strings.Contains(ldh, b))
		check(`"a`+b+`b"@c.test`, inQuotes)
		check(`"a\`+b+`b"@c.test`, c >= ' ' && c <= '~')
	}
}

func TestPlainAddressIsReadWithoutAllocation(t *testing.T) {
	bytes := []byte("ada.lovelace@example.test")
	text := string(bytes)
	for name, parse := range map[string]func() error{
		"string": func() error { _, err := ParseAddress(text); return err },
		"bytes":  func() error { _, err := LocalPart(bytes); return err },
	} {
		effort.Is(t, testing.AllocsPerRun(100, func() { _ = parse() }), 0, name)
	}
}

func TestLocalPartOfBytesAndOfStringAreOne(t *testing.T) {
	for _, text := range []string{"a@b", `"a b"@c`, "ä.ö@c", "a..b@c", "a\xff@c", "jose\u0301@c", ""} {
		n, err := LocalPart(text)
		m, err2 := LocalPart([]byte(text))
		effort.Is(t, n, m, "LocalPart", text)
		effort.Is(t, err, err2, "LocalPart", text)
	}
}

// FuzzParseAddress holds up what the rest of the house builds on: an accepted
// address can stand in a command line, is within its limits, and is read again
// as itself; a cause never quotes.
func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{
		"ada@example.test", `"a \"b"@EXAMPLE.test`, "a@bücher.example", "джо@xn--bcher-kva.example",
		"a@b\r\nDATA", "<a@b>", "a@[192.0.2.1]", "jose\u0301@b", "a@\u00ad", "a@b。c", "a\x00@b", `"a>b"@c`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text)
		if err != nil {
			checkRefusal(t, text, a, err)
			return
		}
		sent := a.String()
		effort.ErrorIf(t, strings.ContainsAny(sent, "\r\n\x00"), "%q: accepted with a byte that ends a command", text)
		const special = "<>\" @,"
		plain := a.Local[0] != '"'
		effort.ErrorIf(t, strings.ContainsAny(a.Domain, special) || plain && strings.ContainsAny(a.Local, special),
			"%q: accepted with an unquoted %q", text, sent)
		effort.ErrorIf(t, len(a.Local) > 64 || len(a.Domain) > 253 || len(sent) > 254,
			"%q: accepted with %d@%d octets", text, len(a.Local), len(a.Domain))
		effort.ErrorIf(t, !strings.HasPrefix(text, a.Local+"@"), "%q: local part became %q", text, a.Local)
		for _, label := range strings.Split(a.Domain, ".") {
			inner := strings.ToLower(strings.Trim(label, "-"))
			effort.ErrorIf(t, label == "" || len(label) > 63 || label != inner,
				"%q: accepted with label %q", text, label)
		}
		effort.Is(t, effort.Must(ParseAddress(sent))(t), a, text, "is read again as")
		effort.Is(t, effort.Must(LocalPart([]byte(text)))(t), len(a.Local), text, "octets of the local part")
	})
}

// checkRefusal holds that the cause is a constant, so that it cannot quote the text.
func checkRefusal(t *testing.T, text string, a Address, err error) {
	var cause malformed
	effort.ErrorIf(t, !errors.As(err, &cause) || !errors.Is(err, ErrMalformed) || a != (Address{}),
		"%q: %+v with error %v", text, a, err)
}
