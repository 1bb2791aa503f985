package term

import (
	"encoding/json"
	"fmt"
	"io"
)

// PrintJSON writes v on lines of its own.
func PrintJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// PrintTable writes rows in columns under their headings.
func PrintTable(w io.Writer, headings []string, rows [][]string) error {
	p, t := NewPage(w), Table{}
	for _, name := range headings {
		t.Columns = append(t.Columns, Column{Name: name})
	}
	for _, cells := range rows {
		t.Add(cells...)
	}
	p.Width = unbounded
	p.Table(&t)
	return p.Emit()
}
