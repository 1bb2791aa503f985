package smtp

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

// linesOf reads a file of testdata without its comments.
func linesOf(t *testing.T, name string) (lines []string) {
	t.Helper()
	f := effort.Must(os.Open("testdata/" + name))(t)
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if line := in.Text(); !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestSuggestionsAreCautious: of domains that look like a large provider's and are somebody's own, fewer than one in
// 1,000 gets a suggestion; of typing errors most do.
func TestSuggestionsAreCautious(t *testing.T) {
	t.Parallel()
	real, typos := linesOf(t, "real.txt"), linesOf(t, "typos.txt")
	var wrong, missed []string
	for _, domain := range real {
		if f := new(FlagCache).Of("anna@" + domain); f.Suggest != "" {
			wrong = append(wrong, domain+" for "+f.Suggest)
		}
	}
	for _, line := range typos {
		domain, meant, _ := strings.Cut(line, " ")
		if f := new(FlagCache).Of("anna@" + domain); f.Suggest != meant {
			missed = append(missed, line+" got "+f.Suggest)
		}
	}
	t.Logf("wrong: %d of %d %v; missed: %d of %d %v", len(wrong), len(real), wrong, len(missed), len(typos), missed)
	effort.ErrorIf(t, len(real) < 2000 || len(wrong)*1000 >= len(real),
		"%d of %d real domains got a suggestion: %v", len(wrong), len(real), wrong)
	effort.ErrorIf(t, len(missed)*10 > len(typos),
		"%d of %d typing errors got none: %v", len(missed), len(typos), missed)
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for email, want := range map[string]string{
		"anna@acme.test": "", "info@acme.test": " [role]", "Info+x@ACME.test": " [role]", "+info@acme.test": "",
		"anna@GMail.com": " [free]", "sales@gmail.com": " [role free]", "anna@mailinator.com": " [disposable]",
		"anna@gmila.com": "", "no-reply@gnail.com": " [role suggest=gmail.com]",
		"anna@gmial.com": " [disposable suggest=gmail.com]",
		"anna@mail.com":  " [free]", "nothing": "", "@": "", "": "", "anna@yahoo.fr": " [free]",
		"anna@" + strings.Repeat("x", 300): "", strings.Repeat("x", 300) + "@gmail.com": " [free]", "anna@gmail.com.test": "",
		"anna@gmail": "", "anna@g": "", "\"a@b\"@gmail.com": " [free]",
	} {
		f := new(FlagCache).Of(email)
		effort.Is(t, string(f.Append(nil)), want, email)
		const message = "mailbox_exists The receiver accepts mail [or so]."
		text, back := CutFlags(string(f.Append([]byte(message))))
		effort.ErrorIf(t, text != message || back != f, "%s: cut into %q and %+v", email, text, back)
	}
}

// TestListsAreInOrder: each says what it is, whence, under which licence and when, and no domain is in two of them.
func TestListsAreInOrder(t *testing.T) {
	t.Parallel()
	all := effort.Must(FlagLists())(t)
	seen := map[string]string{}
	for _, l := range all {
		effort.ErrorIf(t, l.What == "" || l.Source == "" || l.Licence == "" ||
			l.Date.Before(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) || l.Entries < 10, "%s: got %+v", l.Name,
			FlagList{l.Name, l.What, l.Source, l.Licence, l.Date, l.Entries, nil})
		for _, word := range l.words {
			other := seen[word]
			if l.Name == "operators" {
				continue
			}
			effort.ErrorIf(t, other != "" && l.Name != "providers" || word != strings.ToLower(word) || word == "" ||
				strings.Contains(word, " "), "%s: %q is there twice (%s), or is no name in lower case", l.Name, word,
				other)
			seen[word] = l.Name
		}
	}
}

func TestOperators(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{"aspmx.l.google.com": "google", "google.com": "google", "notgoogle.com": "",
		"acme-com.mail.protection.outlook.com": "microsoft", "mx1.acme.test": "", "": "", "com": "",
		"mx-in.g.apple.com": "apple", "us-smtp-inbound-1.mimecast.com": "mimecast"} {
		effort.Is(t, OperatorOf(host).String(), want, host)
	}
	l := effort.Must(readList("operators"))(t)
	names, ends := map[string]bool{}, map[string]bool{}
	for i, line := range l.words {
		words := strings.Fields(line)
		effort.ErrorIf(t, words[0] != strconv.Itoa(i+1) || names[words[1]] || strings.ContainsAny(words[1], " =,[]") ||
			len(words) < 3, "line %d: %q: numbers go up by one, each name is there once", i+1, line)
		names[words[1]] = true
		for _, end := range words[2:] {
			effort.ErrorIf(t, ends[end] || strings.ToLower(end) != end || !strings.Contains(end, "."),
				"line %d: %s is there twice or no host's", i+1, end)
			ends[end] = true
		}
	}
}
