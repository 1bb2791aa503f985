package list

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/xuri/excelize/v2"

	"rollcall/actors/intake"
)

// Bounds of an unpacked workbook: a million rows of a few columns, mostly on disk.
const (
	unpackedMax = 2 << 30
	inMemoryMax = 64 << 20
)

type row struct {
	number int64 // of the line or row, as an editor or a spreadsheet shows it
	cells  []string
}

// cellOf returns the cell of a column, or "" if the row is shorter.
func (r row) cellOf(column int) string {
	if column < len(r.cells) {
		return r.cells[column]
	}
	return ""
}

// eachRow calls visit with each row that is not blank, until it returns an error.
func (l *List) eachRow(visit func(row) error) error {
	if l.kind == intake.KindWorkbook {
		return l.eachOfWorkbook(visit)
	}
	in := csv.NewReader(l.asUTF8())
	in.Comma, in.FieldsPerRecord, in.ReuseRecord = l.delimiter, -1, true
	for {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if bad := (*csv.ParseError)(nil); errors.As(err, &bad) {
			return fmt.Errorf("%s: row %d: a quote (\") is not closed or stands inside a cell: correct it", l.Name,
				bad.StartLine)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", l.Name, err)
		}
		line, _ := in.FieldPos(0)
		if l.sep && line == 1 {
			continue
		}
		if err := visit(row{int64(line), cells}); err != nil {
			return err
		}
	}
}

// eachBodyRow is eachRow without the row of the headings.
func (l *List) eachBodyRow(visit func(row) error) error {
	heads := l.Headings != nil
	return l.eachRow(func(r row) error {
		if heads {
			heads = false
			return nil
		}
		return visit(r)
	})
}

// eachOfWorkbook is eachRow for the first sheet of a workbook.
func (l *List) eachOfWorkbook(visit func(row) error) (err error) {
	bad := func(err error) error {
		return fmt.Errorf("%s can't be read as a workbook: save its sheet as CSV in UTF-8: %w", l.Name, err)
	}
	book, err := excelize.OpenReader(io.NewSectionReader(l.source, 0, l.size),
		excelize.Options{UnzipSizeLimit: unpackedMax, UnzipXMLSizeLimit: inMemoryMax})
	if err != nil {
		return bad(err)
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	sheets := book.GetSheetList()
	if len(sheets) == 0 {
		return bad(errors.New("it has no sheet"))
	}
	rows, err := book.Rows(sheets[0])
	if err != nil {
		return bad(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for n := int64(1); rows.Next(); n++ {
		cells, err := rows.Columns()
		if err != nil {
			return bad(err)
		}
		if strings.TrimSpace(strings.Join(cells, "")) == "" {
			continue
		}
		if err := visit(row{n, cells}); err != nil {
			return err
		}
	}
	if err := rows.Error(); err != nil {
		return bad(err)
	}
	return nil
}

var errStopped = errors.New("stopped")

// Walk checks each row as the service will. It calls address for each row with a good address, and defect for each
// other row, until defect returns false. In a list that the service would not accept unchanged, rows without an
// address are no defects; skipped counts them.
func (l *List) Walk(address func(text string), defect func(*intake.Defect) bool) (skipped int64, err error) {
	if l.Plain() {
		_, err := intake.Inspect(io.NewSectionReader(l.source, 0, l.size), intake.Limits{RowsMax: intake.RowsCeiling},
			address, defect)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", l.Name, err)
		}
		return 0, nil
	}
	found := false
	err = l.eachBodyRow(func(r row) error {
		text := r.cellOf(l.Column)
		d := intake.Check(text, r.number)
		switch {
		case d == nil || d.Note():
			found = true
			if address(text); d != nil && !defect(d) {
				return errStopped
			}
		case d.Kind == intake.KindBlank:
			skipped++
		default:
			if found = true; !defect(d) {
				return errStopped
			}
		}
		return nil
	})
	if err == nil && !found {
		defect(intake.NoAddresses())
	}
	if errors.Is(err, errStopped) {
		err = nil
	}
	return skipped, err
}

// Changes counts how a clean copy differs from its list.
type Changes struct {
	Kept      int64            // number of unchanged addresses
	Corrected []*intake.Defect // rows replaced by the address that they certainly mean
	LeftOut   []*intake.Defect // rows without a certain address, and notes
	Skipped   int64            // rows without an address
}

// Written is the number of addresses of the copy.
func (c Changes) Written() (n int64) {
	n = c.Kept
	for _, d := range c.Corrected {
		n += int64(len(d.Means))
	}
	return n
}

// Clean writes the addresses of a list for the service, one in each row. With mend it corrects rows with defects
// where that is certain; it leaves out all other rows with defects.
func (l *List) Clean(w io.Writer, mend bool) (c Changes, err error) {
	buffer := bufio.NewWriter(w)
	out := csv.NewWriter(buffer)
	c.Skipped, err = l.Walk(func(text string) {
		c.Kept++
		_ = out.Write([]string{text}) // out.Error returns the failure
	}, func(d *intake.Defect) bool {
		if !mend || d.Kind == intake.KindBeside || len(d.Means) == 0 {
			c.LeftOut = append(c.LeftOut, d)
			return true
		}
		c.Corrected = append(c.Corrected, d)
		for _, text := range d.Means {
			_ = out.Write([]string{text})
		}
		return true
	})
	out.Flush()
	return c, errors.Join(err, out.Error(), buffer.Flush())
}

// sent returns the address that the service got for a cell, or "".
func sent(text string, number int64, mend bool) string {
	d := intake.Check(text, number)
	switch {
	case d == nil || d.Note():
		return text
	case mend && len(d.Means) == 1:
		return d.Means[0]
	}
	return ""
}

// Join calls put for a row of headings and for each row of the list, with its results behind the row's own cells. of
// returns the result cells of an address; they are blank for a row whose address was not sent. mend says whether
// addresses were corrected before they were sent.
func (l *List) Join(headings []string, of func(address string) []string, mend bool, put func([]string) error) error {
	first := make([]string, l.Width)
	for i := range first {
		switch first[i] = l.headingOf(i); {
		case first[i] == "" && i == l.Column:
			first[i] = "email"
		case first[i] == "":
			first[i] = fmt.Sprintf("column %d", i+1)
		}
	}
	for _, name := range headings {
		if slices.Contains(first[:l.Width], name) {
			name = "rollcall_" + name
		}
		first = append(first, name)
	}
	if err := put(first); err != nil {
		return err
	}
	line := make([]string, l.Width+len(headings))
	return l.eachBodyRow(func(r row) error {
		clear(line)
		copy(line[:l.Width], r.cells)
		if text := sent(r.cellOf(l.Column), r.number, mend); text != "" {
			copy(line[l.Width:], of(text))
		}
		return put(line)
	})
}

// Writer writes rows to a file: CSV, or a workbook.
type Writer struct {
	rows  *csv.Writer // nil: a workbook
	out   io.Writer
	book  *excelize.File
	sheet *excelize.StreamWriter
	count int
}

// IsWorkbook reports whether a file name is the name of a workbook.
func IsWorkbook(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".xlsx") }

// NewWriter begins a file: a workbook, or CSV.
func NewWriter(out io.Writer, workbook bool) (*Writer, error) {
	if !workbook {
		return &Writer{rows: csv.NewWriter(out)}, nil
	}
	w := &Writer{out: out, book: excelize.NewFile()}
	var err error
	if w.sheet, err = w.book.NewStreamWriter(w.book.GetSheetName(0)); err != nil {
		return nil, fmt.Errorf("make a workbook: %w", errors.Join(err, w.book.Close()))
	}
	return w, nil
}

// Put writes a row. In a workbook every cell is text, so that no spreadsheet runs it as a formula.
func (w *Writer) Put(cells []string) error {
	if w.rows != nil {
		return w.rows.Write(cells)
	}
	if w.count++; w.count > excelize.TotalRows {
		return fmt.Errorf("a workbook has at most %d rows: give --out with a name that ends in .csv", excelize.TotalRows)
	}
	values := make([]any, len(cells))
	for i, text := range cells {
		values[i] = text
	}
	name, err := excelize.CoordinatesToCellName(1, w.count)
	if err != nil {
		return err
	}
	return w.sheet.SetRow(name, values)
}

// Close ends the file.
func (w *Writer) Close() error {
	if w.rows != nil {
		w.rows.Flush()
		return w.rows.Error()
	}
	err := w.sheet.Flush()
	if err == nil {
		_, err = w.book.WriteTo(w.out)
	}
	return errors.Join(err, w.book.Close())
}
