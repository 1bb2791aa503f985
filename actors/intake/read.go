package intake

import (
	"bytes"
	"fmt"
	"io"

	"rollcall/smtp"
)

// Limits are what a file must keep to.
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

// bufferBytes is what is kept of the file at a time. Guess: a few pipe reads,
// and much more than recordWindow so that little is moved.
const bufferBytes = 64 << 10

// emptyReadsMax is how often the source may give nothing and no error; bufio's number.
const emptyReadsMax = 100

// byteOrderMark is U+FEFF in UTF-8. One at the start of the file is not part of it.
const byteOrderMark = "\ufeff"

// Read reads a file to its end, or to its first defect and no further than a
// buffer beyond it. It keeps the distinct addresses and, beside them, never more
// than bufferBytes of the file.
//
// A *Defect is the customer's to repair. ErrLimits is a fault of the caller. Any
// other error comes from r and says nothing about the file. How r cuts the bytes
// makes no difference.
func Read(r io.Reader, l Limits) (*File, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	in := &reader{source: r, limits: l, distinct: newDistinct(), buffer: make([]byte, 0, bufferBytes)}
	if err := in.fill(); err != nil {
		return nil, err
	}
	in.window = bytes.TrimPrefix(in.window, []byte(byteOrderMark))
	for {
		if err := in.fill(); err != nil {
			return nil, err
		}
		if len(in.window) == 0 {
			break
		}
		in.row++
		if err := in.record(); err != nil {
			return nil, err
		}
	}
	in.distinct.flush()
	if in.distinct.file.rows == 0 {
		return nil, defect(CodeNoAddresses, 0)
	}
	return in.distinct.file, nil
}

// reader is one Read.
type reader struct {
	source   io.Reader
	limits   Limits
	distinct *distinct
	scanner  scanner
	row      int64 // record in work, the first being 1

	buffer []byte // as much as was read and not dropped
	window []byte // the end of buffer that is not consumed
	ended  bool   // the source has nothing more
}

// fill sees to it that the window has recordWindow bytes, or the rest of the file.
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
		case err == io.EOF: // one that is wrapped is a fault: something is missing
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

// record takes the record at the start of the window.
func (in *reader) record() error {
	if in.plain() {
		return in.countRow()
	}
	r, code := in.scanner.next(in.window)
	if code != "" {
		return defect(code, in.row)
	}
	in.window = in.window[r.size:]
	if len(bytes.TrimSpace(r.field)) == 0 {
		return defect(CodeBlankRecord, in.row)
	}
	err := in.address(r.field)
	switch {
	case err == nil:
		return in.countRow()
	case in.row == 1 && !hiddenAddress(r.field):
		return nil // a header
	}
	return invalidAddress(err, in.row)
}

// plain takes the record if it is an address without anything that CSV or
// Unicode has a say in, at a domain that was there before, as nearly all are.
// It decides nothing that the long way would decide otherwise: the local part
// has no comma, quote or line end when it does not start with a quote, and the
// domain has none because it was accepted before.
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
	in.distinct.add(text[:n], spelling)
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
	in.distinct.add(text[:n], spelling)
	in.distinct.flush() // the scanner's scratch is used again
	return nil
}

func (in *reader) countRow() error {
	if in.distinct.file.rows > in.limits.RowsMax {
		return tooManyRows(in.limits.RowsMax, in.row)
	}
	return nil
}

// hiddenAddress reports whether a first record that is no address would be one
// without the byte order marks in front of it: then it is not a header, and to
// pass over it in silence would lose an address.
func hiddenAddress(field []byte) bool {
	rest := bytes.TrimLeft(field, byteOrderMark)
	if len(rest) == len(field) {
		return false
	}
	_, err := smtp.ParseAddress(string(rest))
	return err == nil
}
