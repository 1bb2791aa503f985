package intake

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"rollcall/smtp"
)

// This file finds the defects of a file. errors.go has their codes, and kind.go their kinds and texts.

// Limits are the limits of a file.
type Limits struct {
	// RowsMax is the number of addresses a file may have, header not counted,
	// duplicates counted: 1 to RowsCeiling. One more is the defect CodeTooManyRows.
	RowsMax int64
}

// RowsCeiling is the highest RowsMax. A row takes at most 65 bytes of a File's
// 4 GiB of address space; this is three quarters of it.
const RowsCeiling = 50_000_000

// Validate reports whether the limits are usable; if not, the error is ErrLimits.
func (l Limits) Validate() error {
	if l.RowsMax < 1 || l.RowsMax > RowsCeiling {
		return fmt.Errorf("%w: rows %d are not within 1 to %d", ErrLimits, l.RowsMax, RowsCeiling)
	}
	return nil
}

// bufferBytes is the part of the file that is in memory at a time. Guess: a few pipe reads, and much more than
// recordWindow so that few bytes are moved.
const bufferBytes = 64 << 10

// emptyReadsMax is how often a read may return no bytes and no error; bufio's number.
const emptyReadsMax = 100

// byteOrderMark is U+FEFF in UTF-8. One at the start of the file is not part of it.
const byteOrderMark = "\ufeff"

// Read reads a file to its end. It keeps the distinct addresses and, beside them, never more than bufferBytes of the
// file. After a first defect it goes on only to count further rows with defects, for its message, up to moreMax.
//
// A *Defect is the customer's to repair. ErrLimits is a fault of the caller. Any other error comes from r and says
// nothing about the file. How r cuts the bytes makes no difference.
func Read(r io.Reader, l Limits) (*File, error) {
	var first *Defect
	more := 0
	file, err := Inspect(r, l, nil, func(d *Defect) bool {
		switch {
		case d.Note():
		case first == nil:
			first = d
		case d.Row > 0:
			more++
		}
		return more < moreMax
	})
	if err != nil && first == nil {
		return nil, err
	}
	if first != nil {
		first.tellMore(more)
		return nil, first
	}
	return file, nil
}

// moreMax bounds how many rows with defects are counted behind the first.
const moreMax = 1000

// Inspect is Read that goes on after defects. It calls defect with each defect and note, until defect returns false. It
// calls address, unless that is nil, with each good address. If the file is not CSV in UTF-8 at all, or has too many
// rows, that is its last defect. The File has the good addresses.
func Inspect(r io.Reader, l Limits, address func(text string), defect func(*Defect) bool) (*File, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	in := &reader{source: r, limits: l, distinct: newDistinct(), buffer: make([]byte, 0, bufferBytes), accepted: address}
	if err := in.fill(); err != nil {
		return nil, err
	}
	in.whole = WholeKind(in.window)
	in.window = bytes.TrimPrefix(in.window, []byte(byteOrderMark))
	refused := false
	for {
		if err := in.fill(); err != nil {
			return nil, err
		}
		if len(in.window) == 0 {
			break
		}
		in.row++
		d := in.takeRecord()
		if d == nil {
			continue
		}
		if refused = refused || !d.Note(); !defect(d) || d.Row == 0 || d.Kind.OfWhole() {
			return in.distinct.file, nil
		}
		if err := in.endLine(); err != nil {
			return nil, err
		}
	}
	in.distinct.flush()
	if in.distinct.file.rows == 0 && !refused {
		defect(NoAddresses())
	}
	return in.distinct.file, nil
}

type reader struct {
	source   io.Reader
	limits   Limits
	distinct *distinct
	scanner  scanner
	row      int64 // record in work, the first being 1

	buffer []byte // as much as was read and not dropped
	window []byte // the end of buffer that is not consumed
	ended  bool   // the source has nothing more
	whole  Kind   // what the first bytes say that the file is instead of CSV; "": nothing

	accepted func(text string) // called with each good address; may be nil
	note     *Defect           // of the last good address; nil: none
	lineOpen bool              // a record that had a defect goes on in the window, to the end of its line
}

// fill fills the window to recordWindow bytes, or to the end of the file.
func (in *reader) fill() error {
	if len(in.window) >= recordWindow || in.ended {
		return nil
	}
	in.distinct.flush() // before the bytes move
	kept := copy(in.buffer[:cap(in.buffer)], in.window)
	for empty := 0; kept < recordWindow && !in.ended; {
		n, err := in.source.Read(in.buffer[kept:cap(in.buffer)])
		kept += n
		switch {
		case err == io.EOF: // a wrapped EOF is a fault: something is missing
			in.ended = true
		case err != nil:
			return fmt.Errorf("read file: %w", err)
		case n > 0:
			empty = 0
		default:
			if empty++; empty == emptyReadsMax {
				return fmt.Errorf("read file: %w", io.ErrNoProgress)
			}
		}
	}
	in.buffer = in.buffer[:kept]
	in.window = in.buffer
	return nil
}

// takeRecord reads the record at the start of the window and returns its defect.
func (in *reader) takeRecord() *Defect {
	if in.plain() {
		return in.countRow()
	}
	r, kind := in.scanner.next(in.window)
	if kind != "" {
		return in.dropLine(kind)
	}
	line := in.window[:r.size]
	in.window = in.window[r.size:]
	if len(bytes.TrimSpace(r.field)) == 0 {
		return newDefect(KindBlank, in.row)
	}
	err := in.address(r.field)
	switch {
	case err == nil:
		return in.countRow()
	case in.whole != "" && in.row > 1:
		return in.wholeDefect(KindMalformed)
	case in.row == 1 && in.whole != "":
		return nil // the next row says what the file is
	case in.row == 1 && !hiddenAddress(r.field):
		return noteHeader(string(r.field), line)
	}
	return malformed(string(r.field), err, in.row)
}

// dropLine drops a record without a recognisable end, up to the end of its line, which endLine finds.
func (in *reader) dropLine(kind Kind) *Defect {
	line := in.window
	if end := bytes.IndexAny(line, "\r\n"); end >= 0 {
		line = line[:end]
	}
	in.lineOpen = true
	if in.whole != "" && (in.whole != KindLoneCR || kind == KindStrayCR) {
		return in.wholeDefect(kind)
	}
	d := newDefect(kind, in.row).quote(line)
	if kind == KindColumns || kind == KindQuoteInside || kind == KindQuoteOpen {
		d.Means = meant(string(line))
	}
	return d
}

// wholeDefect says what the file is instead of CSV, under the code that its first bad row has by itself.
func (in *reader) wholeDefect(kind Kind) *Defect {
	d := newDefect(in.whole, in.row)
	d.Code = kinds[kind].code
	return d
}

// lineMax bounds how far the end of a line is looked for; behind that nothing is read.
const lineMax = 1 << 20

// endLine drops the rest of a line whose record has a defect.
func (in *reader) endLine() error {
	for dropped := 0; in.lineOpen && dropped < lineMax; {
		if end := bytes.IndexAny(in.window, "\r\n"); end >= 0 {
			in.window, in.lineOpen = in.window[end:], false
			err := in.fill()
			in.window = bytes.TrimPrefix(bytes.TrimLeft(in.window, "\r"), []byte("\n"))
			return err
		}
		dropped += len(in.window)
		in.window = in.window[:0]
		if err := in.fill(); err != nil {
			return err
		}
		in.lineOpen = len(in.window) > 0
	}
	if in.lineOpen {
		in.window, in.ended, in.lineOpen = nil, true, false
	}
	return nil
}

// noteHeader notes a first record that is read as the header but rarely is one.
func noteHeader(field string, line []byte) *Defect {
	spaced := strings.ContainsAny(strings.TrimSpace(field), " \t")
	switch {
	case len(field) == len("sep=;") && strings.EqualFold(field[:4], "sep="):
		return newDefect(KindSep, 1).quote(line)
	case strings.ContainsAny(field, "@＠"), strings.Contains(field, ".") && !spaced:
		d := newDefect(KindHeader, 1).quote([]byte(field))
		d.Means = meant(field)
		return d
	}
	return nil
}

// plain reads the record if it is an address without quotes or Unicode, at a known domain, as nearly all are. The
// full parser would decide the same: a local part that does not start with a quote has no comma, quote or line end,
// and the domain has none because it was accepted before.
func (in *reader) plain() bool {
	end := bytes.IndexByte(in.window, '\n')
	if end <= 0 || end > FieldBytesMax {
		return false
	}
	text := in.window[:end]
	if text[end-1] == '\r' {
		text = text[:end-1]
	}
	if n := len(text); n > 2 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	if len(text) == 0 || text[0] == '"' {
		return false
	}
	n, err := smtp.LocalPart(text)
	if err != nil {
		return false
	}
	spelling, ok := in.distinct.known(text[n+1:])
	if !ok || !in.distinct.fits(n, spelling) {
		return false
	}
	in.keepAddress(text, n, spelling)
	in.window = in.window[end+1:]
	return true
}

// address keeps the address that text is; the error is smtp.ErrMalformed.
func (in *reader) address(text []byte) error {
	n, err := smtp.LocalPart(text)
	if err != nil {
		return err
	}
	spelling, ok := in.distinct.known(text[n+1:])
	if !ok || !in.distinct.fits(n, spelling) {
		address, err := smtp.ParseAddress(string(text))
		if err != nil {
			return err
		}
		spelling = in.distinct.learn(text[n+1:], address.Domain)
	}
	in.keepAddress(text, n, spelling)
	in.distinct.flush() // the scanner's scratch is used again
	return nil
}

// keepAddress keeps an address whose local part ends at n, and a note if it seems to have more than was meant.
func (in *reader) keepAddress(text []byte, n int, spelling uint32) {
	in.distinct.add(text[:n], spelling)
	if in.accepted != nil {
		in.accepted(string(text))
	}
	if in.note = nil; text[0] >= utf8.RuneSelf || bytes.IndexByte(text[:n], '=') > 0 {
		in.note = noteBeside(string(text), in.row)
	}
}

// countRow returns the note about a row with a good address.
func (in *reader) countRow() *Defect {
	if in.distinct.file.rows > in.limits.RowsMax {
		return newDefect(KindTooMany, in.row, in.limits.RowsMax)
	}
	return in.note
}

// hiddenAddress reports whether a first record that is no address would be one without the byte order marks in front of
// it: then it is not a header, and to pass over it in silence would lose an address.
func hiddenAddress(field []byte) bool {
	rest := bytes.TrimLeft(field, byteOrderMark)
	if len(rest) == len(field) {
		return false
	}
	_, err := smtp.ParseAddress(string(rest))
	return err == nil
}

// FieldBytesMax bounds a field, without its quotes. The longest address has 254
// octets, four times that in UTF-8 to be mapped; the rest is for headers.
const FieldBytesMax = 1024

// recordWindow is how many bytes from the start of a record scanner.next needs, unless the file ends sooner: enough
// for a field of doubled quotes only, the quotes around it, one more character and the line end, rounded up to a
// page.
const recordWindow = 4096

type record struct {
	field []byte // the value of its only field, quotes taken off; valid until the next record
	size  int    // bytes it takes in the file, with its line end
}

// scanner cuts records. Its scratch holds a field that has doubled quotes.
type scanner struct {
	scratch [FieldBytesMax]byte
}

// next reads the record at the start of w, which is not empty and has at least recordWindow bytes or the whole rest
// of the file. If the record is broken, it returns the kind of its first defect.
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
