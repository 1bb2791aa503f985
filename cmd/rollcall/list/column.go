package list

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"rollcall/actors/intake"
)

// rowsExamined is how many rows are examined to find the column with the addresses.
const rowsExamined = 200

var errEnough = errors.New("enough rows")

// findColumn finds the column with the addresses by the user's option, its heading, or its content.
func (l *List) findColumn(wanted string) error {
	var rows []row
	err := l.eachRow(func(r row) error {
		r.cells = append([]string(nil), r.cells...)
		if rows = append(rows, r); len(rows) == rowsExamined {
			return errEnough
		}
		return nil
	})
	// A file that is not valid CSV may still be one column, whose defects intake reports best.
	maybePlain := wanted == "" && l.delimiter == noDelimiter && l.kind == "" && !l.latin1
	if err != nil && !errors.Is(err, errEnough) && !maybePlain {
		return err
	}
	for _, r := range rows {
		l.Width = max(l.Width, len(r.cells))
	}
	if len(rows) > 0 && !hasAddress(rows[0]) {
		l.Headings = rows[0].cells
	}
	if wanted != "" {
		return l.takeColumn(wanted, rows)
	}
	if l.Width <= 1 {
		return nil
	}
	body := rows
	if l.Headings != nil {
		body = rows[1:]
	}
	held := make([]int, l.Width) // number of cells with an @ sign, by column
	for _, r := range body {
		for i, text := range r.cells {
			if strings.Contains(text, "@") {
				held[i]++
			}
		}
	}
	for _, fits := range []func(i int) bool{
		func(i int) bool { return held[i] > 0 && isMailHeading(l.headingOf(i)) },
		func(i int) bool { return held[i] > 0 },
	} {
		if one, ok := onlyOne(l.Width, fits); ok {
			l.Column = one
			return nil
		}
	}
	return fmt.Errorf("%s: %w: add --column with a name or number of %s", l.Name, ErrColumn, l.columnNames(body))
}

func onlyOne(n int, fits func(int) bool) (one int, ok bool) {
	one = -1
	for i := range n {
		if !fits(i) {
			continue
		}
		if one >= 0 {
			return -1, false
		}
		one = i
	}
	return one, one >= 0
}

// takeColumn selects a column by its heading, in any case, or its number.
func (l *List) takeColumn(wanted string, rows []row) error {
	for i, heading := range l.Headings {
		if strings.EqualFold(strings.TrimSpace(heading), strings.TrimSpace(wanted)) {
			l.Column = i
			return nil
		}
	}
	if n, err := strconv.Atoi(wanted); err == nil && n >= 1 && n <= l.Width {
		l.Column = n - 1
		return nil
	}
	return fmt.Errorf("%s has no column %q: its columns are %s", l.Name, wanted, l.columnNames(rows))
}

const columnsShown = 20

// columnNames lists the columns by the cells of their first row.
func (l *List) columnNames(body []row) string {
	var names []string
	for i := range min(l.Width, columnsShown) {
		name := fmt.Sprint(i + 1)
		if heading := l.headingOf(i); heading != "" {
			name += " " + strconv.Quote(heading)
		}
		for _, r := range body {
			if text := strings.TrimSpace(r.cellOf(i)); text != "" && text != l.headingOf(i) {
				name += " (" + text[:min(len(text), 40)] + ")"
				break
			}
		}
		names = append(names, name)
	}
	if l.Width > columnsShown {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// headingOf returns the heading of a column, or "".
func (l *List) headingOf(i int) string { return strings.TrimSpace(row{cells: l.Headings}.cellOf(i)) }

// Heading names the column with the addresses, for people.
func (l *List) Heading() string {
	if h := l.headingOf(l.Column); h != "" {
		return fmt.Sprintf("column %d, %q", l.Column+1, h)
	}
	return fmt.Sprintf("column %d", l.Column+1)
}

// isMailHeading reports whether a heading names email addresses and nothing else.
func isMailHeading(heading string) bool {
	letters := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	switch letters {
	case "email", "mail", "emailaddress", "mailaddress", "emailadresse", "emails", "mailadresse", "correo", "courriel":
		return true
	}
	return false
}

// hasAddress reports whether a row holds an address. A row that does is not a row of headings.
func hasAddress(r row) bool {
	for _, text := range r.cells {
		if d := intake.Check(strings.TrimSpace(text), r.number); d == nil || len(d.Means) > 0 {
			return true
		}
	}
	return false
}
