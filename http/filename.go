package http

import (
	"unicode"
	"unicode/utf8"
)

// filenameMax is the contract's bound on the header, in characters.
const filenameMax = 1024

// parseFilename decodes a percent-encoded base name, once. It refuses what is
// not UTF-8, separators of paths, of lines and of paragraphs, controls, marks
// that turn the direction of text (they make .csv look like .exe), and the two
// names that are directories. The name is shown to its owner and never used as
// a path.
func parseFilename(text []byte) (string, bool) {
	if !utf8.Valid(text) || utf8.RuneCount(text) > filenameMax {
		return "", false
	}
	name, ok := percentDecode(text)
	if !ok || !utf8.Valid(name) {
		return "", false
	}
	for _, c := range string(name) {
		if c == '/' || c == '\\' || unicode.IsControl(c) || unicode.In(c, unicode.Zl, unicode.Zp) || turnsText(c) {
			return "", false
		}
	}
	s := string(name)
	return s, s != "" && s != "." && s != ".."
}

// turnsText says that c overrides or isolates the direction of text (Unicode TR9 §2).
func turnsText(c rune) bool { return c >= 0x202a && c <= 0x202e || c >= 0x2066 && c <= 0x2069 }

// percentDecode decodes %xx (RFC 3986 §2.1); a plus sign is a plus sign.
func percentDecode(text []byte) ([]byte, bool) {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			out = append(out, text[i])
			continue
		}
		if i+2 >= len(text) {
			return nil, false
		}
		high, ok1 := unhex(text[i+1])
		low, ok2 := unhex(text[i+2])
		if !ok1 || !ok2 {
			return nil, false
		}
		out = append(out, high<<4|low)
		i += 2
	}
	return out, true
}

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
