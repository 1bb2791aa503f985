package http

import (
	"strings"
	"unicode/utf8"

	"rollcall/ledger"
)

// filenameMax is the contract's bound on the header, in characters.
const filenameMax = 1024

// parseFilename decodes a percent-encoded base name, once. It refuses what is
// not UTF-8, separators of paths, what ledger.CheckName refuses, and the two
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
	s := string(name)
	return s, !strings.ContainsAny(s, `/\`) && ledger.CheckName(s) == nil && s != "" && s != "." && s != ".."
}

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
