package evidence

import (
	"strings"

	"rollcall/smtp"
)

// Whole reports whether nothing was taken out of a clean text.
func Whole(text string) bool { return strings.IndexFunc(text, isMark) < 0 }

// SameFor reports whether a reply whose clean text is whole comes to the same text when another address was
// asked, because it does not name that one. It may say false where it does not.
func SameFor(text string, other smtp.Address) bool {
	domain, ok := foldName(other.Domain)
	if !ok || domain == "" || strings.Contains(text, domain) {
		return false
	}
	local, ok := foldName(other.Local)
	return ok && (oneWord(local) || !strings.Contains(text, local))
}

// foldName gives a name as it would be in a text, if that takes no more than lower case.
func foldName(name string) (string, bool) {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || c == '%' || c == '@' || isMark(rune(c)) {
			return "", false
		}
	}
	return withoutEnds(strings.ToLower(name)), true
}
