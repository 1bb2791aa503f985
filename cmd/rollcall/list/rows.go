package list

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/xuri/excelize/v2"

	"rollcall/actors/intake"
)

// What a workbook may take when it is unpacked: as much as a million rows of some columns, most of it on disk.
const (
	unpackedMax = 2 << 30
	inMemoryMax = 64 << 20
)

// row is a record of a list.
type row struct {
	number int64 // as an editor or a spreadsheet counts
	cells  []string
}

// cellOf gives the cell of a column; "" when the row is shorter.
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
			return fmt.Errorf("%s: row %d: a quote (\") is not closed, or stands within a cell: correct it", l.Name,
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
