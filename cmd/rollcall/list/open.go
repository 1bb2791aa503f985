package list

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"rollcall/actors/intake"
)

// Options are the user's hints about a list; with the zero value all is detected.
type Options struct {
	Column    string // with the addresses: its heading, or its number from 1
	Delimiter string // one character, or "tab"
}

// List is a file of addresses, open for reading.
type List struct {
	Name     string
	Form     string   // what it is, such as "CSV in UTF-16 with semicolons"; "" if the service accepts the file unchanged
	Headings []string // of its columns; nil: the first row has none
	Column   int      // index of the column with the addresses
	Width    int      // how many columns it has

	source    io.ReaderAt
	size      int64
	kind      intake.Kind // of a file that is not plain CSV
	latin1    bool        // the file isn't UTF-8, so it is read as Windows-1252
	delimiter rune
	sep       bool // the first line only names the delimiter
}

// ErrColumn: it is not clear which column has the addresses.
var ErrColumn = errors.New("which column has the addresses is not clear")

// headBytes is how much of a file is read to detect its format.
const headBytes = 64 << 10

// Open detects a file's format and the column of its addresses. Errors say what to do.
func Open(name string, source io.ReaderAt, size int64, o Options) (*List, error) {
	l := &List{Name: name, source: source, size: size, delimiter: noDelimiter}
	head := make([]byte, min(size, headBytes))
	if _, err := source.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	l.kind = intake.WholeKind(head)
	switch l.kind {
	case intake.KindWorkbook:
		if !bytes.HasPrefix(head, []byte("PK")) {
			return nil, fmt.Errorf("%s: This is a workbook of the old kind (XLS). Save it as XLSX or CSV", name)
		}
	case "", intake.KindUTF16, intake.KindLoneCR:
		if err := l.findText(o.Delimiter); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%s: %s", name, l.kind.Sentence())
	}
	if err := l.findColumn(o.Column); err != nil {
		return nil, err
	}
	l.Form = l.describeForm(o.Column != "")
	return l, nil
}

func (l *List) findText(delimiter string) error {
	if l.kind != intake.KindUTF16 {
		_, err := io.Copy(io.Discard, transform.NewReader(io.NewSectionReader(l.source, 0, l.size), encoding.UTF8Validator))
		l.latin1 = errors.Is(err, encoding.ErrInvalidUTF8)
		if err != nil && !l.latin1 {
			return fmt.Errorf("read %s: %w", l.Name, err)
		}
	}
	lines, err := l.firstLines()
	if err != nil {
		return err
	}
	if len(lines) > 0 && len(lines[0]) == len("sep=;") && strings.EqualFold(lines[0][:4], "sep=") {
		l.sep, l.delimiter = true, rune(lines[0][4])
	} else {
		l.delimiter = findDelimiter(lines)
	}
	switch d := []rune(delimiter); {
	case delimiter == "tab" || delimiter == `\t`:
		l.delimiter = '\t'
	case len(d) == 1 && d[0] != '"' && d[0] != '\n' && d[0] != '\r':
		l.delimiter = d[0]
	case delimiter != "":
		return fmt.Errorf("--delimiter %q is not a delimiter: give one character, or tab", delimiter)
	}
	return nil
}

// asUTF8 returns the file in UTF-8, without a byte order mark, with lines that end in LF or CRLF.
func (l *List) asUTF8() io.Reader {
	r := io.Reader(io.NewSectionReader(l.source, 0, l.size))
	switch {
	case l.kind == intake.KindUTF16:
		endian := unicode.LittleEndian
		var first [1]byte
		if _, err := l.source.ReadAt(first[:], 0); err == nil && first[0] == 0 { // ASCII without a mark
			endian = unicode.BigEndian
		}
		r = transform.NewReader(r, unicode.UTF16(endian, unicode.UseBOM).NewDecoder())
	case l.latin1:
		r = transform.NewReader(r, charmap.Windows1252.NewDecoder())
	default:
		r = transform.NewReader(r, unicode.UTF8BOM.NewDecoder())
	}
	if l.kind == intake.KindLoneCR {
		r = transform.NewReader(r, lineEnds{})
	}
	return r
}

// lineEnds turns CR into LF.
type lineEnds struct{ transform.NopResetter }

func (lineEnds) Transform(dst, src []byte, _ bool) (nDst, nSrc int, err error) {
	n := copy(dst, src)
	for i := range dst[:n] {
		if dst[i] == '\r' {
			dst[i] = '\n'
		}
	}
	if n < len(src) {
		err = transform.ErrShortDst
	}
	return n, n, err
}

// linesExamined is how many lines are examined to find the delimiter.
const linesExamined = 50

func (l *List) firstLines() (lines []string, err error) {
	in := bufio.NewScanner(io.LimitReader(l.asUTF8(), headBytes))
	in.Buffer(nil, headBytes+1)
	for len(lines) < linesExamined && in.Scan() {
		if line := strings.TrimSpace(in.Text()); line != "" {
			lines = append(lines, in.Text())
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", l.Name, err)
	}
	return lines, nil
}

// noDelimiter occurs in no text, so that a file without a delimiter is read as one column.
const noDelimiter = '\x1f'

// findDelimiter returns the character that stands outside quotes in four of five lines, or noDelimiter.
func findDelimiter(lines []string) rune {
	for _, d := range []rune{'\t', ';', ',', '|'} {
		records, with := 0, 0
		quoted, has := false, false
		for _, line := range lines {
			for _, r := range line {
				quoted = quoted != (r == '"')
				has = has || r == d && !quoted
			}
			if quoted { // the record goes on
				continue
			}
			if records++; has {
				with++
			}
			has = false
		}
		if with > 0 && with*5 >= records*4 {
			return d
		}
	}
	return noDelimiter
}

// Plain reports whether the service accepts the bytes of the file unchanged, apart from rows with defects.
func (l *List) Plain() bool { return l.Form == "" }

// describeForm describes the format of a file other than one column of CSV in UTF-8.
func (l *List) describeForm(chosen bool) string {
	var parts []string
	switch {
	case l.kind == intake.KindWorkbook:
		return "a workbook (XLSX)"
	case l.kind == intake.KindUTF16:
		parts = append(parts, "in UTF-16")
	case l.latin1:
		parts = append(parts, "in Latin-1 (Windows-1252)")
	case l.kind == intake.KindLoneCR:
		parts = append(parts, "with line ends of old Macs")
	}
	if l.Width > 1 || l.sep {
		names := map[rune]string{';': "semicolons", '\t': "tabs", ',': "commas", '|': "bars"}
		name := cmp.Or(names[l.delimiter], fmt.Sprintf("%q", l.delimiter))
		parts = append(parts, fmt.Sprintf("of %d columns with %s between", l.Width, name))
	}
	if len(parts) == 0 && !chosen {
		return ""
	}
	return strings.Join(append([]string{"CSV"}, parts...), " ")
}
