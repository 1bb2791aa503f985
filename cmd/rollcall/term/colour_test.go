package term

import (
	"bytes"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// TestColoursHaveNoWidth: what is coloured stands where it stands without, and only states are, not a file's name.
func TestColoursHaveNoWidth(t *testing.T) {
	t.Parallel()
	show := func(colours bool) string {
		page, table := &Page{Width: 80, Colours: colours}, Table{Columns: []Column{{Name: "STATUS"}, {Name: "FILE"}}}
		table.Add("failed", "failed")
		table.Add("paused 5m", "list.csv")
		page.Table(&table)
		page.Field("outcome", "valid: accepted")
		page.Field("file", "failed")
		page.WriteString(page.Mark(Bold, "log") + page.Mark("", " ok") + "\n")
		return page.String()
	}
	plain := "STATUS     FILE\nfailed     failed\npaused 5m  list.csv\noutcome       valid: accepted\n" +
		"file          failed\nlog ok\n"
	effort.Is(t, show(false), plain)
	want := strings.NewReplacer("\nfailed", "\n\x1b[31mfailed\x1b[0m", "paused", "\x1b[33mpaused\x1b[0m", "valid",
		"\x1b[32mvalid\x1b[0m", "log", "\x1b[1mlog\x1b[0m").Replace(plain)
	effort.Is(t, show(true), want)
	effort.ErrorIf(t, ShowsColours(&bytes.Buffer{}), "what is no terminal shows colours")
}
