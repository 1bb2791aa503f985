package term

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Page is what a command shows on a stream: it fits the stream's width, and words that people look for have a colour
// where the stream shows colours.
type Page struct {
	strings.Builder
	Width   int // in columns
	Colours bool
	to      io.Writer
}

// NewPage makes an empty page for a stream.
func NewPage(w io.Writer) *Page { return &Page{Width: WidthOf(w), Colours: ShowsColours(w), to: w} }

// Para writes a text whose lines are all indented.
func (p *Page) Para(indent int, format string, args ...any) {
	p.Behind(strings.Repeat(" ", indent), format, args...)
}

// Behind writes a text behind a prefix; its further lines stand below its first.
func (p *Page) Behind(prefix, format string, args ...any) {
	text := FoldedTo(fmt.Sprintf(format, args...), utf8.RuneCountInString(prefix), p.Width)
	p.WriteString(prefix + text + "\n")
}

// Field writes a value behind its name. That of a state has its colour.
func (p *Page) Field(name, format string, args ...any) {
	text := FoldedTo(fmt.Sprintf(format, args...), NameWidth, p.Width)
	if p.Colours && hasStates(name) {
		text = Coloured(text)
	}
	fmt.Fprintf(p, "%-*s%s\n", NameWidth, name, text)
}

// Mark gives a text in a colour, such as Red; in that of its first word if none is named.
func (p *Page) Mark(code, text string) string {
	switch {
	case !p.Colours:
		return text
	case code == "":
		return Coloured(text)
	}
	return inColour(code, text)
}

// Table writes a table.
func (p *Page) Table(g *Table) {
	g.Colours = p.Colours
	g.Write(&p.Builder, p.Width)
}

// Emit writes the page to its stream.
func (p *Page) Emit() error { return Emit(p.to, &p.Builder) }
