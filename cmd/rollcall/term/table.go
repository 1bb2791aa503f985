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

// Column is a column of a table.
type Column struct {
	Name  string
	Right bool // aligned to the right, for numbers
	Least int  // above 0: cells may be clipped to this many characters
	Wrap  bool // cells are wrapped instead of clipped: no word may be lost
}

// Row is a row of a table, with the lines below it.
type Row struct {
	Cells []string
	Below []string
}

// Table is a table that is fitted into a width by clipping columns.
type Table struct {
	Columns []Column
	Rows    []Row
	Colours bool // states are coloured
}

const gridGap = 2

// Add adds a row.
func (g *Table) Add(cells ...string) { g.Rows = append(g.Rows, Row{Cells: cells}) }

// Below adds lines below the last row. Empty texts are left out.
func (g *Table) Below(texts ...string) {
	last := &g.Rows[len(g.Rows)-1]
	last.Below = append(last.Below, slices.DeleteFunc(texts, func(text string) bool { return text == "" })...)
}

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

// BelowLines returns how many lines the texts below a row take.
func (r Row) BelowLines(width int) (n int) {
	for _, text := range r.Below {
		n += 1 + strings.Count(FoldedTo(text, 4, width), "\n")
	}
	return n
}

// line writes a row, with as many lines as its longest cell needs.
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

// widths returns the widths of the columns: those of their longest cells, reduced to fit.
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

// unbounded is the width of output to a file or a program, where nothing is cut or wrapped.
const unbounded = 1 << 20

// bounded is a stream with a width that is not a file.
type bounded interface{ Columns() int }

// WidthOf returns how many columns a stream has: those of the terminal, else COLUMNS, else unbounded.
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

// widthMost bounds the width of lines, because longer ones are hard to read. Guess.
const widthMost = 240

// WidthLeast is the least width of a table. A narrower terminal wraps lines itself.
const WidthLeast = 40

// SizeOf returns a terminal's columns and lines; 80 and 0 without a terminal.
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

// FoldedTo wraps a text to a width, with an indent before all lines but the first. Unprintable characters become
// question marks, and a word wider than a line is cut.
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

// BrokenAt breaks a line into lines of at most width, at blanks if possible, and indents the further ones. Unlike
// FoldedTo it keeps every blank except those at breaks.
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

// Left writes the time left until until, as "12m", or "" if there is no end.
func Left(until, now time.Time) string {
	if until.IsZero() {
		return ""
	}
	return Span(until.Sub(now).Round(time.Second))
}

// Until writes until when something is or was in effect.
func Until(until, now time.Time) string {
	if !until.After(now) {
		return fmt.Sprintf("until %s, now past", Clock(until, now))
	}
	return fmt.Sprintf("until %s (%s left)", Clock(until, now), Left(until, now))
}

// Clock writes a time for people, with its day if that is another day.
func Clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05") + "Z"
	}
	return t.Format("2006-01-02 15:04") + "Z"
}

// Figure writes a number of events a second with about two digits.
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

// Percent writes a fraction from 0 to 1 as a percentage.
func Percent(part float64) string {
	if part > 0 && part < 0.01 {
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", part*100)
}

// Page is a command's output for a stream: fitted to the stream's width, with important words coloured if the stream
// shows colours.
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

// Notes writes each text as a paragraph behind a blank line.
func (p *Page) Notes(texts ...string) {
	for _, text := range texts {
		p.WriteByte('\n')
		p.Para(0, "%s", text)
	}
}

// Behind writes a text after a prefix. Further lines are aligned with the first.
func (p *Page) Behind(prefix, format string, args ...any) {
	text := FoldedTo(fmt.Sprintf(format, args...), utf8.RuneCountInString(prefix), p.Width)
	p.WriteString(prefix + text + "\n")
}

// Field writes a name and its value, unless the value is empty. It colours states.
func (p *Page) Field(name, format string, args ...any) {
	text := FoldedTo(fmt.Sprintf(format, args...), NameWidth, p.Width)
	if text == "" {
		return
	}
	if p.Colours && hasStates(name) {
		text = Coloured(text)
	}
	fmt.Fprintf(p, "%-*s%s\n", NameWidth, name, text)
}

// Mark colours a text with code, such as Red; if code is "", with the colour of its first word.
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

// Section writes a table after an empty line, if the table has rows.
func (p *Page) Section(g *Table) {
	if len(g.Rows) > 0 {
		p.WriteByte('\n')
		p.Table(g)
	}
}

// Rows writes rows in columns as wide as needed, under their headings.
func (p *Page) Rows(headings []string, rows [][]string) {
	t := Table{Colours: p.Colours}
	for _, name := range headings {
		t.Columns = append(t.Columns, Column{Name: name})
	}
	for _, cells := range rows {
		t.Add(cells...)
	}
	t.Write(&p.Builder, unbounded)
}

// Emit writes the page to its stream, and empties the page.
func (p *Page) Emit() error {
	if _, err := io.WriteString(p.to, p.String()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	p.Reset()
	return nil
}
