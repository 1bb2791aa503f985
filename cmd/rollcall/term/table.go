package term

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Column is a column of a grid.
type Column struct {
	Name  string
	Right bool // numbers stand on the right
	Least int  // above 0: it may be clipped to so many characters when there is no room
	Wrap  bool // it goes on in the next line instead of being clipped: words that somebody needs
}

// Row is a row, and lines that belong to it and stand below it.
type Row struct {
	Cells []string
	Below []string
}

// Table is a table that fits into a number of columns, at the cost of what may be clipped.
type Table struct {
	Columns []Column
	Rows    []Row
	Colours bool // states are coloured
}

// gridGap stands between two columns.
const gridGap = 2

// Add adds a row.
func (g *Table) Add(cells ...string) { g.Rows = append(g.Rows, Row{Cells: cells}) }

// Write writes the headings and the rows.
func (g *Table) Write(b *strings.Builder, width int) {
	widths := g.widths(width)
	headings := make([]string, len(g.Columns))
	for i, c := range g.Columns {
		headings[i] = c.Name
	}
	g.line(b, widths, headings)
	for _, row := range g.Rows {
		g.line(b, widths, row.Cells)
		for _, text := range row.Below {
			b.WriteString("    " + FoldedTo(text, 4, width) + "\n")
		}
	}
}

// BelowLines are how many lines the texts below a row take.
func (r Row) BelowLines(width int) (n int) {
	for _, text := range r.Below {
		n += 1 + strings.Count(FoldedTo(text, 4, width), "\n")
	}
	return n
}

// line writes a row, and further lines while a cell goes on.
func (g *Table) line(b *strings.Builder, widths []int, cells []string) {
	var more []string
	for i := range cells {
		if !g.Columns[i].Wrap {
			continue
		}
		first, rest, goesOn := strings.Cut(FoldedTo(cells[i], 0, widths[i]), "\n")
		if goesOn {
			if more == nil {
				cells, more = slices.Clone(cells), make([]string, len(cells))
			}
			cells[i], more[i] = first, rest
		}
	}
	g.oneLine(b, widths, cells)
	if more != nil {
		g.line(b, widths, more)
	}
}

func (g *Table) oneLine(b *strings.Builder, widths []int, cells []string) {
	line := ""
	for i, cell := range cells {
		cell = Clipped(cell, widths[i])
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if g.Colours && hasStates(g.Columns[i].Name) {
			cell = Coloured(cell)
		}
		if g.Columns[i].Right {
			line += pad + cell
		} else {
			line += cell + pad
		}
		line += strings.Repeat(" ", gridGap)
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// widths are those of the longest cells, less what does not fit.
func (g *Table) widths(width int) []int {
	widths, over := make([]int, len(g.Columns)), -width-gridGap
	for i, c := range g.Columns {
		widths[i] = utf8.RuneCountInString(c.Name)
		for _, row := range g.Rows {
			if i < len(row.Cells) {
				widths[i] = max(widths[i], utf8.RuneCountInString(row.Cells[i]))
			}
		}
		over += widths[i] + gridGap
	}
	for over > 0 {
		widest := -1
		for i, c := range g.Columns {
			if c.Least > 0 && widths[i] > c.Least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return widths
		}
		widths[widest]--
		over--
	}
	return widths
}

// unbounded is the width of what goes to a file or a program: nothing is cut or folded there.
const unbounded = 1 << 20

// bounded is a stream that is no file and shows only so many columns.
type bounded interface{ Columns() int }

// WidthOf is how many columns a stream has: those of a terminal, else what COLUMNS says, else as many as one likes.
func WidthOf(stream any) int {
	if b, ok := stream.(bounded); ok {
		return b.Columns()
	}
	if width, height := SizeOf(stream); height > 0 {
		return width
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= WidthLeast {
		return n
	}
	return unbounded
}

// widthMost bounds lines: beyond that nobody follows one with the eye. Guess.
const widthMost = 240

// WidthLeast is what a table needs; a terminal that has less wraps by itself.
const WidthLeast = 40

// SizeOf is how many columns, 80 where there is no terminal, and how many lines a terminal has; 0: it is none.
func SizeOf(stream any) (width, height int) {
	f, ok := FileOf(stream)
	if !ok {
		return Columns, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return Columns, 0
	}
	return min(max(width, WidthLeast), widthMost), height
}

// FoldedTo breaks a text into lines that fit into a width beside an indent; the first line stands where it is written.
// What a terminal would not print is a question mark, and a word that is wider than the rest of a line is cut.
func FoldedTo(text string, indent, width int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(Printable(strings.Join(strings.Fields(text), " "))) {
		letters := []rune(word)
		if i > 0 && at+1+len(letters) > width {
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		} else if i > 0 {
			b.WriteByte(' ')
			at++
		}
		for at+len(letters) > width && width > indent {
			b.WriteString(string(letters[:width-at]) + "\n" + strings.Repeat(" ", indent))
			letters, at = letters[width-at:], indent
		}
		b.WriteString(string(letters))
		at += len(letters)
	}
	return b.String()
}

// BrokenAt breaks a line so that none is wider than width, at a blank where there is one, and
// puts an indent before what follows. Unlike FoldedTo it keeps every blank but those at breaks.
func BrokenAt(text string, indent, width int) string {
	var b strings.Builder
	line := []rune(text)
	for room := width; len(line) > room; room = width - indent {
		at := room
		for i := room; i > room/2; i-- {
			if line[i] == ' ' {
				at = i
				break
			}
		}
		b.WriteString(string(line[:at]) + "\n" + strings.Repeat(" ", indent))
		if line = line[at:]; line[0] == ' ' {
			line = line[1:]
		}
	}
	b.WriteString(string(line))
	return b.String()
}

// Emit writes what was built.
func Emit(w io.Writer, b *strings.Builder) error {
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// Left writes how long it is until a time, as "12m"; "" for none.
func Left(until, now time.Time) string {
	if until.IsZero() {
		return ""
	}
	return Span(until.Sub(now).Round(time.Second))
}

// Until says until when something holds, or held.
func Until(until, now time.Time) string {
	if !until.After(now) {
		return fmt.Sprintf("until %s, which is over", Clock(until, now))
	}
	return fmt.Sprintf("until %s (%s left)", Clock(until, now), Left(until, now))
}

// Clock writes a time for people: with its day when that is another one.
func Clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05") + "Z"
	}
	return t.Format("2006-01-02 15:04") + "Z"
}

// Figure writes a number of events a second to two figures or so.
func Figure(f float64) string {
	switch {
	case f <= 0:
		return "0"
	case f < 0.1:
		return fmt.Sprintf("%.2f", f)
	case f < 10:
		return fmt.Sprintf("%.1f", f)
	}
	return Grouped(int64(f + 0.5))
}

// Percent writes a part from 0 to 1.
func Percent(part float64) string {
	if part > 0 && part < 0.01 {
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", part*100)
}

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
