package list

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/xuri/excelize/v2"

	"rollcall/actors/intake"
	"rollcall/config/effort"
)

func workbook(t *testing.T, rows ...[]string) string {
	t.Helper()
	var b bytes.Buffer
	w := effort.Must(NewWriter(&b, true))(t)
	for _, cells := range rows {
		effort.OK(t, w.Put(cells))
	}
	effort.OK(t, w.Close())
	return b.String()
}

func utf16le(text string) string {
	var b strings.Builder
	for _, c := range utf16.Encode([]rune(text)) {
		b.Write([]byte{byte(c), byte(c >> 8)})
	}
	return b.String()
}

// TestListsArePut: lists of every format become one column.
func TestListsArePut(t *testing.T) {
	t.Parallel()
	anna := []string{"anna@a.test", "bert@b.test"}
	for _, x := range []struct {
		name, text string
		options    Options
		form       string
		want       []string
		rows       []int64 // with defects
		skipped    int64
	}{
		{"plain", "email\nanna@a.test\nbert@b.test\n", Options{}, "", anna, nil, 0},
		{"no header", "anna@a.test\nbert@b.test\n", Options{}, "", anna, nil, 0},
		{"one row of more columns", "email\nanna@a.test\nbert@b.test,B,C\n", Options{}, "", anna[:1], []int64{3}, 0},
		{"semicolons", "id;email\n1;anna@a.test\n2;bert@b.test\n", Options{}, "CSV of 2 columns with semicolons between",
			anna, nil, 0},
		{"sep", "sep=;\nid;who\n1;anna@a.test\n2;bert@b.test\n", Options{}, "CSV of 2 columns with semicolons between",
			anna, nil, 0},
		{"tabs, no header", "1\tanna@a.test\n2\tbert@b.test\n", Options{}, "CSV of 2 columns with tabs between", anna,
			nil, 0},
		{"a heading decides", "from,E-Mail\nx@x.test,anna@a.test\nx@x.test,bert@b.test\n", Options{},
			"CSV of 2 columns with commas between", anna, nil, 0},
		{"by heading", "a,b\nx@x.test,anna@a.test\nx@x.test,bert@b.test\n", Options{Column: "B"},
			"CSV of 2 columns with commas between", anna, nil, 0},
		{"by number", "x@x.test,anna@a.test\nx@x.test,bert@b.test\n", Options{Column: "2"},
			"CSV of 2 columns with commas between", anna, nil, 0},
		{"by delimiter", "1#anna@a.test\n2#bert@b.test\n", Options{Delimiter: "#"}, "CSV of 2 columns with '#' between",
			anna, nil, 0},
		{"blank cells and lines", "name,email\nA,anna@a.test\n\nC,\nB,bert@b.test\nD,nobody\n", Options{},
			"CSV of 2 columns with commas between", anna, []int64{6}, 1},
		{"line ends in quotes", "name,email\n\"A\nB\",anna@a.test\nD,nobody\nB,bert@b.test\n", Options{},
			"CSV of 2 columns with commas between", anna, []int64{4}, 0},
		{"UTF-16", "\xff\xfe" + utf16le("email\r\nanna@a.test\r\nbert@b.test\r\n"), Options{}, "CSV in UTF-16", anna, nil, 0},
		{"UTF-16 without a mark", utf16le("email\nanna@a.test\nbert@b.test\n"), Options{}, "CSV in UTF-16", anna, nil, 0},
		{"Latin-1", "name;email\nJ\xfcrgen;anna@a.test\nB;bert@b.test\n", Options{},
			"CSV in Latin-1 (Windows-1252) of 2 columns with semicolons between", anna, nil, 0},
		{"old Mac", "email\ranna@a.test\rbert@b.test\r", Options{}, "CSV with line ends of old Macs", anna, nil, 0},
		{"workbook", workbook(t, []string{"name", "email"}, []string{"Anna", "anna@a.test"}, nil,
			[]string{"Bert", "bert@b.test"}, []string{"C", "c@"}), Options{}, "a workbook (XLSX)", anna, []int64{5}, 0},
	} {
		l, err := Open("x.csv", strings.NewReader(x.text), int64(len(x.text)), x.options)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		var got []string
		var rows []int64
		skipped, err := l.Walk(func(text string) { got = append(got, text) }, func(d *intake.Defect) bool {
			rows = append(rows, d.Row)
			return true
		})
		effort.ErrorIf(t, err != nil || l.Form != x.form || !reflect.DeepEqual(got, x.want) ||
			!reflect.DeepEqual(rows, x.rows) || skipped != x.skipped,
			"%s: got %q, %q, rows %v, %d skipped, %v; want %+v", x.name, l.Form, got, rows, skipped, err, x)
	}
}

// TestListsThatNobodyCanRead: the refusal says what to do.
func TestListsThatNobodyCanRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a,b\nx@x.test,anna@a.test\n": `x.csv: which column has the addresses is not clear: add --column with a name or ` +
			`number of 1 "a" (x@x.test), 2 "b" (anna@a.test)`,
		"a,b\n1,2\n":       "not clear",
		"%PDF-1.7\nx":      "The file is a PDF",
		"[\"a@a.test\"]":   "The file is JSON",
		"\xd0\xcf\x11\xe0": "old kind (XLS)",
		"PK\x03\x04[Content_Types].xml and no more": "can't be read as a workbook",
		"name,email\nA,\"anna@a.test\n":             "row 2: a quote (\") is not closed",
	} {
		_, err := Open("x.csv", strings.NewReader(text), int64(len(text)), Options{})
		effort.ErrHas(t, err, want, text)
	}
	text := "a,b\nx@x.test,anna@a.test\n"
	_, err := Open("x", strings.NewReader(text), int64(len(text)), Options{Column: "c"})
	effort.ErrorIf(t, err == nil || errors.Is(err, ErrColumn) ||
		!strings.Contains(err.Error(), `no column "c": its columns are 1 "a"`), "got %v", err)
}

// TestResultsAreJoined: each result is in the row of its address, in CSV files and in workbooks.
func TestResultsAreJoined(t *testing.T) {
	t.Parallel()
	text := "name;email;result\nAnna;anna@A.test;x\nNobody;;\nBert;<bert@b.test>;=1+1\nAnna;anna@a.test\n"
	want := [][]string{{"name", "email", "result", "rollcall_result", "why"},
		{"Anna", "anna@A.test", "x", "of anna@A.test", "y"}, {"Nobody", "", "", "", ""},
		{"Bert", "<bert@b.test>", "=1+1", "of bert@b.test", "y"}, {"Anna", "anna@a.test", "", "of anna@a.test", "y"}}
	for _, isBook := range []bool{false, true} {
		l := effort.Must(Open("x.csv", strings.NewReader(text), int64(len(text)), Options{}))(t)
		var b bytes.Buffer
		w := effort.Must(NewWriter(&b, isBook))(t)
		err := l.Join([]string{"result", "why"}, func(a string) []string { return []string{"of " + a, "y"} }, true, w.Put)
		effort.OK(t, errors.Join(err, w.Close()))
		var got [][]string
		back := effort.Must(Open("y", bytes.NewReader(b.Bytes()), int64(b.Len()), Options{Column: "email"}))(t)
		_ = back.eachRow(func(r row) error {
			cells := append([]string{}, r.cells...)
			for len(cells) < 5 {
				cells = append(cells, "")
			}
			got = append(got, cells)
			return nil
		})
		effort.Same(t, got, want, "workbook", isBook)
		if !isBook {
			continue
		}
		book := effort.Must(excelize.OpenReader(bytes.NewReader(b.Bytes())))(t)
		effort.Is(t, effort.Must(book.GetCellFormula(book.GetSheetName(0), "C4"))(t), "", "the cell =1+1 is the formula")
		_ = book.Close()
	}
}

// TestCleanCopies: a clean copy has the good rows and the rows with a certain correction.
func TestCleanCopies(t *testing.T) {
	t.Parallel()
	text := "email\nanna@a.test\n\nBert <bert@b.test>\nc@c.test; d@d.test\nnobody\nanna@a.test\n"
	l := effort.Must(Open("x.csv", strings.NewReader(text), int64(len(text)), Options{}))(t)
	var b bytes.Buffer
	c, err := l.Clean(&b, true)
	want := "anna@a.test\nbert@b.test\nc@c.test\nd@d.test\nanna@a.test\n"
	effort.ErrorIf(t, err != nil || b.String() != want || c.Kept != 2 || c.Written() != 5 ||
		fmt.Sprint(len(c.Corrected), len(c.LeftOut)) != "2 2", "got %q, %+v, %v", b.String(), c, err)
}
