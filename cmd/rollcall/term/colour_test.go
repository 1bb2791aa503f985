package term

import (
	"bytes"
	"strings"
	"testing"
)

// TestColoursHaveNoWidth: columns stand where they stand without, and only words that people look for are coloured.
func TestColoursHaveNoWidth(t *testing.T) {
	t.Parallel()
	table := Table{Columns: []Column{{Name: "STATUS"}, {Name: "FILE"}}}
	table.Add("failed", "failed.csv")
	table.Add("verifying", "list.csv")
	var plain, coloured strings.Builder
	table.Write(&plain, 80)
	table.Colours = true
	table.Write(&coloured, 80)
	if want := "STATUS     FILE\nfailed     failed.csv\nverifying  list.csv\n"; plain.String() != want {
		t.Errorf("got %q, want %q", plain.String(), want)
	}
	want := strings.Replace(plain.String(), "\nfailed", "\n\x1b[31mfailed\x1b[0m", 1)
	if coloured.String() != want {
		t.Errorf("got %q, want %q", coloured.String(), want)
	}
	if ShowsColours(&bytes.Buffer{}) {
		t.Error("what is no terminal shows colours")
	}
}
