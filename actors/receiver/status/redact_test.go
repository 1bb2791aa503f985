package status_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"rollcall/actors/receiver/status"
	"rollcall/config/effort"
)

func TestLocalPartsAreTakenOutOfTexts(t *testing.T) {
	for _, c := range []struct{ text, local, want string }{
		{"jsmith unknown user", "JSmith", "~ unknown user"},
		{"user jsmith, jsmith: unknown", "jsmith", "user ~, ~: unknown"},
		{"jsmithson unknown", "jsmith", "jsmithson unknown"},
		{"user unknown", "user", "user unknown"},
		{"no such mailbox", "a", "no such mailbox"},
		{"mailbox john unknown", "john+news", "mailbox ~ unknown"},
		{"john+news: john", "John+News", "~: ~"},
		{"user bob, bob=list", "bob=list", "user ~, ~"},
		{"user johnsmith not found", "john.smith", "user ~ not found"},
		{"john smith has left", "john_smith", "~ has left"},
		{"johnsmith has left", "john.smith+x", "~ has left"},
		{"user o\\'brien unknown", "o'brien", "user ~ unknown"},
		{"o%27brien or o=27brien", "o'brien", "~ or ~"},
		{"j%25smith unknown", "j%smith", "~ unknown"},
		{"john%2bnews, john=2bnews", "john+news", "~, ~"},
		{"müller, muller, mueller", "Müller", "~, ~, ~"},
		{"m=c3=bcller, m%c3%bcller", "müller", "~, ~"},
		{"oezil, ozil", "özil", "~, ~"},
		{"user name unknown", "user+x", "user name unknown"},
		{"johnson smithers", "john.smith", "johnson smithers"},
		{"no user", "no.user", "~"},
		{"ok", "", "ok"},
		{"", "x", ""},
	} {
		effort.Is(t, status.Redact(c.text, c.local), c.want, fmt.Sprintf("%q without %q is", c.text, c.local))
	}
}

// TestClippedTextsEndWithARune whatever they are made of.
func TestClippedTextsEndWithARune(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("ä", 100)} {
		effort.Is(t, status.Clip(text), text, fmt.Sprintf("%q is", text))
	}
	for _, text := range []string{strings.Repeat("x", 1000), strings.Repeat("ä", 1000), strings.Repeat("xä", 1000),
		strings.Repeat("語", 1000)} {
		got := status.Clip(text)
		effort.ErrorIf(t, len(got) > 200 || len(got) < 190 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…"),
			"%d bytes: %q", len(got), got)
	}
}
