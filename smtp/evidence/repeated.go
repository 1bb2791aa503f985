package evidence

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"rollcall/smtp"
)

// repeatedBytes bounds a reply with a key, including its address, so that Clean never shortens it.
const repeatedBytes = 512

// AppendKey appends a key that is the same for equal replies about different mailboxes of a receiver. In the key a
// NUL replaces the asked address wherever that is a word by itself. named is how often it was replaced. ok is false
// if the reply or the address is not simple enough for a key.
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

// isSimple reports whether a name consists of ASCII words with one of the given signs between two words. Clean does
// not change such a name.
func isSimple(name, signs string) bool {
	between := true // no word has begun yet, or a sign came last
	for i := range len(name) {
		c := lower(name[i])
		word := IsWordByte(c) && c < utf8.RuneSelf
		if !word && (between || strings.IndexByte(signs, c) < 0) {
			return false
		}
		between = !word
	}
	return !between
}

// IsWhole reports whether Clean removed nothing from a text but the asked address, and that named times.
func IsWhole(text string, named int) bool {
	asked := strings.Count(text, string(MarkAsked))
	return asked == named && strings.IndexByte(text, mark) < 0 && strings.IndexByte(text, MarkOurs) < 0
}

// SameFor reports whether a reply with the same key gives the same clean text for another address. text is the first
// reply's clean text, which IsWhole; it must not contain parts of the asked address.
func SameFor(text string, asked smtp.Address) bool {
	domain, local := strings.ToLower(asked.Domain), strings.ToLower(asked.Local)
	return !strings.Contains(text, domain) && (oneWord(local) || !strings.Contains(text, local))
}
