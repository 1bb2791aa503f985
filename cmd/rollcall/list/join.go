package list

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/xuri/excelize/v2"
)

// Join puts results beside the rows that they are of: put is called with a row of headings and then with each row of
// the list, the cells of its own first and those that of gives for its address behind. Rows whose address was not
// sent have blanks there. mend is whether addresses were corrected before they were sent.
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

// IsWorkbook reports whether a name is that of a workbook.
func IsWorkbook(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".xlsx") }

// NewWriter begins a file; workbook says of which form.
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

// Put writes a row. In a workbook each cell is a text, which no spreadsheet runs as a formula.
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
