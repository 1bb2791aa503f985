package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// gridColumn is a column of a grid.
type gridColumn struct {
	name  string
	right bool // numbers stand on the right
	least int  // above 0: it may be clipped to so many characters when there is no room
	wrap  bool // it goes on in the next line instead of being clipped: words that somebody needs
}

// gridRow is a row, and lines that belong to it and stand below it.
type gridRow struct {
	cells []string
	below []string
}

// grid is a table that fits into a number of columns, at the cost of what may be clipped.
type grid struct {
	columns []gridColumn
	rows    []gridRow
}

// gridGap stands between two columns.
const gridGap = 2

func (g *grid) add(cells ...string) { g.rows = append(g.rows, gridRow{cells: cells}) }

// write writes the headings and the rows.
func (g *grid) write(b *strings.Builder, width int) {
	widths := g.widths(width)
	headings := make([]string, len(g.columns))
	for i, c := range g.columns {
		headings[i] = c.name
	}
	g.line(b, widths, headings)
	for _, row := range g.rows {
		g.line(b, widths, row.cells)
		for _, text := range row.below {
			b.WriteString("    " + foldedTo(text, 4, width) + "\n")
		}
	}
}

// belowLines are how many lines the texts below a row take.
func (r gridRow) belowLines(width int) (n int) {
	for _, text := range r.below {
		n += 1 + strings.Count(foldedTo(text, 4, width), "\n")
	}
	return n
}

// line writes a row, and further lines while a cell goes on.
func (g *grid) line(b *strings.Builder, widths []int, cells []string) {
	var more []string
	for i := range cells {
		if !g.columns[i].wrap {
			continue
		}
		first, rest, goesOn := strings.Cut(foldedTo(cells[i], 0, widths[i]), "\n")
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

func (g *grid) oneLine(b *strings.Builder, widths []int, cells []string) {
	line := ""
	for i, cell := range cells {
		cell = clipped(cell, widths[i])
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if g.columns[i].right {
			line += pad + cell
		} else {
			line += cell + pad
		}
		line += strings.Repeat(" ", gridGap)
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// widths are those of the longest cells, less what does not fit.
func (g *grid) widths(width int) []int {
	widths, over := make([]int, len(g.columns)), -width-gridGap
	for i, c := range g.columns {
		widths[i] = utf8.RuneCountInString(c.name)
		for _, row := range g.rows {
			if i < len(row.cells) {
				widths[i] = max(widths[i], utf8.RuneCountInString(row.cells[i]))
			}
		}
		over += widths[i] + gridGap
	}
	for over > 0 {
		widest := -1
		for i, c := range g.columns {
			if c.least > 0 && widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
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

// widthOf is how many columns a stream has: those of a terminal, and 80 elsewhere.
func widthOf(stream any) int {
	width, _ := sizeOf(stream)
	return width
}

// unbounded is the width of a table that goes to a file or a program: nothing is cut there.
const unbounded = 1 << 20

// bounded is a stream that is no file and shows only so many columns.
type bounded interface{ columns() int }

// tableWidth is widthOf for tables: that of a terminal, and else unbounded.
func tableWidth(stream any) int {
	if b, ok := stream.(bounded); ok {
		return b.columns()
	}
	if width, height := sizeOf(stream); height > 0 {
		return width
	}
	return unbounded
}

// widthMost bounds lines: beyond that nobody follows one with the eye. Guess.
const widthMost = 240

// widthLeast is what a table needs; a terminal that has less wraps by itself.
const widthLeast = 40

// sizeOf is widthOf and how many lines a terminal has; 0: it is none.
func sizeOf(stream any) (width, height int) {
	f, ok := fileOf(stream)
	if !ok {
		return columns, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return columns, 0
	}
	return min(max(width, widthLeast), widthMost), height
}

// foldedTo is folded for another width.
func foldedTo(text string, indent, width int) string {
	var b strings.Builder
	at := indent
	for i, word := range strings.Fields(printable(strings.Join(strings.Fields(text), " "))) {
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

// brokenAt breaks a line so that none is wider than width, at a blank where there is one, and
// puts an indent before what follows. Unlike foldedTo it keeps every blank but those at breaks.
func brokenAt(text string, indent, width int) string {
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

// emit writes what was built.
func emit(w io.Writer, b *strings.Builder) error {
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// left writes how long it is until a time, as "12m"; "" for none.
func left(until, now time.Time) string {
	if until.IsZero() {
		return ""
	}
	return span(until.Sub(now).Round(time.Second))
}

// till says until when something holds, or held.
func till(until, now time.Time) string {
	if !until.After(now) {
		return fmt.Sprintf("until %s, which is over", clock(until, now))
	}
	return fmt.Sprintf("until %s (%s left)", clock(until, now), left(until, now))
}

// clock writes a time for people: with its day when that is another one.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05") + "Z"
	}
	return t.Format("2006-01-02 15:04") + "Z"
}

// figure writes a number of events a second to two figures or so.
func figure(f float64) string {
	switch {
	case f <= 0:
		return "0"
	case f < 0.1:
		return fmt.Sprintf("%.2f", f)
	case f < 10:
		return fmt.Sprintf("%.1f", f)
	}
	return grouped(int64(f + 0.5))
}

// percent writes a part from 0 to 1.
func percent(part float64) string {
	if part > 0 && part < 0.01 {
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", part*100)
}
