package intake

import "unicode/utf8"

// FieldBytesMax bounds a field, without its quotes. The longest address has 254
// octets, four times that in UTF-8 to be mapped; the rest is for headers.
const FieldBytesMax = 1024

// recordWindow is how many bytes of the file scanner.next needs to see from the
// start of a record, unless the file ends before: a field in which each byte is
// a doubled quote, the quotes around it, a character more and the line end,
// rounded up to a page.
const recordWindow = 4096

// record is one record of the file.
type record struct {
	field []byte // the value of its only field, quotes taken off; valid until the next record
	size  int    // bytes it takes in the file, with its line end
}

// scanner cuts records. Its scratch holds a field that has doubled quotes.
type scanner struct {
	scratch [FieldBytesMax]byte
}

// next reads the record at the start of w, which is not empty and has at least
// recordWindow bytes or the whole rest of the file. When the record is broken it
// gives the kind of the defect that comes first.
func (s *scanner) next(w []byte) (r record, defect Kind) {
	if w[0] == '"' {
		return s.quoted(w)
	}
	for i := 0; i < len(w); {
		size := 1
		switch c := w[i]; {
		case c == '\n' || c == '\r':
			return lineEnd(w, i, w[:i])
		case c == ',':
			return record{}, KindColumns
		case c == '"':
			return record{}, KindQuoteInside // RFC 4180 §2 rule 5
		default:
			if size = runeSize(w[i:]); size == 0 {
				return record{}, badCharacter(w[i])
			}
		}
		if i += size; i > FieldBytesMax {
			return record{}, KindTooLong
		}
	}
	return record{field: w, size: len(w)}, ""
}

// quoted is next for a record that starts with a quote (RFC 4180 §2 rules 5 to 7).
func (s *scanner) quoted(w []byte) (r record, defect Kind) {
	field := s.scratch[:0]
	for i := 1; i < len(w); {
		size := 1
		if w[i] != '"' {
			if size = runeSize(w[i:]); size == 0 {
				return record{}, badCharacter(w[i])
			}
		} else {
			i++ // and it is doubled, or the last
			if i == len(w) || w[i] != '"' {
				return lineEnd(w, i, field)
			}
		}
		if len(field)+size > FieldBytesMax {
			return record{}, KindTooLong
		}
		field = append(field, w[i:i+size]...)
		i += size
	}
	return record{}, KindQuoteOpen
}

// lineEnd ends a record whose field ends before i: with LF, CRLF or the file.
func lineEnd(w []byte, i int, field []byte) (r record, defect Kind) {
	rest := w[i:]
	switch {
	case len(rest) == 0:
		return record{field, i}, ""
	case rest[0] == '\n':
		return record{field, i + 1}, ""
	case rest[0] == '\r' && len(rest) > 1 && rest[1] == '\n':
		return record{field, i + 2}, ""
	case rest[0] == ',':
		return record{}, KindColumns
	case runeSize(rest) == 0:
		return record{}, badCharacter(rest[0])
	case rest[0] == '\r':
		return record{}, KindStrayCR
	}
	return record{}, KindQuoteInside // text after the closing one
}

// badCharacter is the kind of a character whose size is 0.
func badCharacter(first byte) Kind {
	if first == 0 {
		return KindNUL
	}
	return KindNotUTF8
}

// runeSize is the size of the character at the start of w; 0 when it is NUL or
// not UTF-8, as overlong forms and surrogates are not (RFC 3629 §3).
func runeSize(w []byte) int {
	if c := w[0]; c < utf8.RuneSelf {
		if c == 0 {
			return 0
		}
		return 1
	}
	r, size := utf8.DecodeRune(w)
	if r == utf8.RuneError && size <= 1 {
		return 0
	}
	return size
}
