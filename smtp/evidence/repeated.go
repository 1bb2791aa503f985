package evidence

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"rollcall/smtp"
)

// repeatedBytes bounds a reply that may be known again, with its address: it is kept whole in any text.
const repeatedBytes = 512

// AppendKey appends what a reply says, whomever of its receiver's mailboxes it names: a NUL stands for the address
// that was asked, where that is a word by itself, and named counts these. It is false when a reply, or an address,
// takes a closer look.
func AppendKey(key []byte, r smtp.Reply, asked smtp.Address) (_ []byte, named int, ok bool) {
	size := 0
	for _, line := range r.Lines {
		size += len(line) + 1
	}
	if size == 0 || size > repeatedBytes || !isSimple(asked.Local, ".-_+") || !isSimple(asked.Domain, ".-_") {
		return key, 0, false
	}
	for _, line := range r.Lines {
		for at := strings.IndexByte(line, '@'); at >= 0; at = strings.IndexByte(line, '@') {
			start, end := at-len(asked.Local), at+1+len(asked.Domain)
			if start < 0 || end > len(line) || line[start:at] != asked.Local || line[at+1:end] != asked.Domain ||
				start > 0 && line[start-1] != ' ' && line[start-1] != '<' ||
				end < len(line) && strings.IndexByte(" >,:;", line[end]) < 0 {
				return key, 0, false
			}
			key = append(append(key, line[:start]...), 0)
			line = line[end:]
			named++
		}
		key = append(append(key, line...), '\n')
	}
	return key, named, bytes.Count(key, []byte{0}) == named
}

// isSimple reports whether a name is words of ASCII with one of some signs between them: Clean has no other form for it.
func isSimple(name, signs string) bool {
	between := true // no word has begun, or goes on
	for i := range len(name) {
		c := lower(name[i])
		word := isWordByte(c) && c < utf8.RuneSelf
		if !word && (between || strings.IndexByte(signs, c) < 0) {
			return false
		}
		between = !word
	}
	return !between
}

// IsWhole reports whether nothing was taken out of a clean text but the address that was asked, named times.
func IsWhole(text string, named int) bool {
	asked := strings.Count(text, string(MarkAsked))
	return asked == named && strings.IndexByte(text, mark) < 0 && strings.IndexByte(text, MarkOurs) < 0
}

// SameFor reports whether a reply that has the key of another one, whose clean text is whole, comes to the same text,
// because it names nothing else of the address that was asked. Both have keys.
func SameFor(text string, asked smtp.Address) bool {
	domain, local := strings.ToLower(asked.Domain), strings.ToLower(asked.Local)
	return !strings.Contains(text, domain) && (oneWord(local) || !strings.Contains(text, local))
}
