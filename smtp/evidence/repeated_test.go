package evidence

import (
	"testing"

	"pgregory.net/rapid"

	"rollcall/smtp"
)

// TestWhatIsTheSameForOthersIsCleanedAlike: a text that was cleaned for one address is what cleaning gives for
// another one, if SameFor says so.
func TestWhatIsTheSameForOthersIsCleanedAlike(t *testing.T) {
	part := rapid.SampledFrom([]string{"user", "unknown", "no.such.user", "anna", "ANNA", "example.com", "Example.Org", "@",
		"%40", "\uff20", "~", "^", "\\", ".", "-", "+", "%", "ä", "\u200b", "192.0.2.25", "probe.example", "ask.back",
		"a1b2c3d4e5f6", "::", "2001:db8::1", "K"})
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
	name := rapid.Custom(func(t *rapid.T) string { return text(t, "name", 3) })
	same := 0
	rapid.Check(t, func(t *rapid.T) {
		r := rawOf(text(t, "first", 6), text(t, "second", 3))
		r.Source = rapid.SampledFrom([]string{"192.0.2.25", "2001:db8::1", ""}).Draw(t, "source")
		r.Address = smtp.Address{Local: name.Draw(t, "local"), Domain: name.Draw(t, "domain")}
		said := Clean(r)
		other := smtp.Address{Local: name.Draw(t, "other"), Domain: name.Draw(t, "other domain")}
		if !Whole(said) || !SameFor(said, other) {
			return
		}
		same++
		if r.Address = other; Clean(r) != said || !other.ASCII() {
			t.Fatalf("%q for %q and %q for %q", said, rawOf().Address, Clean(r), other)
		}
	})
	if same == 0 {
		t.Error("nothing was the same for others")
	}
	for text, want := range map[string]bool{"ok": true, "user no.such.user unknown": false, "at example.com": false,
		"user unknown": true} {
		if SameFor(text, rawOf().Address) != want {
			t.Errorf("%q: not %v", text, want)
		}
	}
}
