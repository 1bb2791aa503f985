package evidence

import (
	"testing"

	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/smtp"
)

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
