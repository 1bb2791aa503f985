package web

import (
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"
)

// tables finds the tables in the source of a template. All tables of all pages are made by writeTable:
//
//	{{table .Members}} Members by email
//	Member | one | <a href="/people/{{.User}}">{{.Email}}</a>
//	Seen | n any:Seen | {{at .Seen}}
//	foot | All | {{num $.Total}}
//	else | There are none.
//	{{end table}}
//
// The first line has the rows and the caption. row has attributes of each row; $i is its number. Each further line is
// a column: its head, its words (see columnWords) and the template of a cell. The first column names the row. The
// line foot has the cells below all rows; the line else has the text for a table without rows.
var tables = regexp.MustCompile(`(?s)\{\{table (.+?)\}\} ?(.*?)\n(.*?)\n\{\{end table\}\}`)

// columnWords are the words of a column. Those with a colon have an argument.
var columnWords = map[string]string{
	"n":    "a number, to the right",
	"mono": "for programs",
	"one":  "one line, cut with an ellipsis where it's too long",
	"fill": "the same, in what room is left",
	"text": "a sentence, which may have several lines",
	"top":  "stands beside the name of the row on a narrow screen",
	"wide": "is left out on a narrow screen",
	"bare": "has no label on a narrow screen",
	"soft": "of less weight",
	"any":  "any:Field: the column is left out when the field is empty in every row",
	"if":   "if:pipeline: the column is there when that holds of the page",
}

type column struct {
	head, cell, only string // only is a pipeline that must be true for the column; "": always
	classes          []string
}

func columnOf(line string) (column, error) {
	parts := strings.SplitN(line, "|", 3)
	if len(parts) != 3 {
		return column{}, fmt.Errorf("%q isn't head | words | cell", line)
	}
	c := column{head: strings.TrimSpace(parts[0]), cell: strings.TrimSpace(parts[2])}
	for _, word := range strings.Fields(parts[1]) {
		name, argument, _ := strings.Cut(word, ":")
		switch {
		case columnWords[name] == "":
			return c, fmt.Errorf("%q is no word of a column", word)
		case name == "any":
			c.only = fmt.Sprintf("any $rows %q", argument)
		case name == "if":
			c.only = argument
		default:
			c.classes = append(c.classes, name)
		}
	}
	return c, nil
}

// putBetween wraps a text in the condition of its column.
func (c column) putBetween(text string) string {
	if c.only == "" {
		return text
	}
	return "{{if " + c.only + "}}" + text + "{{end}}"
}

// writeClasses returns the classes of a cell, and its label for narrow screens.
func (c column) writeClasses(labelled bool) (text string) {
	if len(c.classes) > 0 {
		text = ` class="` + strings.Join(c.classes, " ") + `"`
	}
	if labelled && c.head != "" && !slices.Contains(c.classes, "bare") && !slices.Contains(c.classes, "wide") {
		text += ` data-label="` + c.head + `"`
	}
	return text
}

func writeTable(rows, caption, body string) (string, error) {
	var head, cells, foot strings.Builder
	none, row, count := "", "", 0
	var columns []column
	for _, line := range strings.Split(body, "\n") {
		key, rest, _ := strings.Cut(line, "|")
		switch strings.TrimSpace(key) {
		case "else":
			none = "{{else}}<p>" + strings.TrimSpace(rest) + "</p>"
			continue
		case "row":
			row = " " + strings.TrimSpace(rest)
			continue
		case "foot":
			foot.WriteString("<tfoot><tr>")
			for i, cell := range strings.Split(rest, "|") {
				if i >= len(columns) {
					return "", fmt.Errorf("%q has more cells than columns", line)
				}
				open, end := "<td"+columns[i].writeClasses(strings.TrimSpace(cell) != "")+">", "</td>"
				if i == 0 {
					open, end = `<th scope="row">`, "</th>"
				}
				foot.WriteString(columns[i].putBetween(open + strings.TrimSpace(cell) + end))
			}
			foot.WriteString("</tr></tfoot>")
			continue
		}
		c, err := columnOf(line)
		if err != nil {
			return "", err
		}
		shown := c.head
		if name, ok := strings.CutPrefix(c.head, "-"); ok { // only for screen readers
			c.head, shown = "", `<span class="away">`+name+"</span>"
			c.classes = append(c.classes, "do")
		}
		open, end := "<td"+c.writeClasses(true)+">", "</td>"
		if count++; count == 1 {
			open, end = `<th scope="row"`+c.writeClasses(false)+">", "</th>"
		}
		head.WriteString(c.putBetween(`<th scope="col"` + c.writeClasses(false) + ">" + shown + "</th>"))
		cells.WriteString(c.putBetween(open + c.cell + end))
		columns = append(columns, c)
	}
	return "{{with $rows := " + rows + `}}<div class="scroll list" tabindex="0" role="region" aria-label="` + caption +
		`"><table><caption class="away">` + caption + "</caption>\n<thead><tr>" + head.String() +
		"</tr></thead>\n<tbody>{{range $i, $row := .}}<tr" + row + ">" +
		cells.String() + "</tr>\n{{end}}</tbody>" + foot.String() + "</table></div>" + none + "{{end}}", nil
}

// facts finds lists of facts. Each line is a name and the template of its value. Facts without a value are not shown.
//
//	{{facts}}
//	Created | {{at .Created}}
//	{{end facts}}
var facts = regexp.MustCompile(`(?s)\{\{facts\}\}\n(.*?)\n\{\{end facts\}\}`)

func writeFacts(lines string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, _ := strings.Cut(line, " | ")
		b.WriteString("<div><dt>" + name + "</dt><dd>" + value + "</dd></div>")
	}
	return `<dl class="facts">` + b.String() + "</dl>"
}

// expand replaces the tables and facts in a template's source by HTML.
func expand(source string) (string, error) {
	source = facts.ReplaceAllStringFunc(source, func(found string) string {
		return writeFacts(facts.FindStringSubmatch(found)[1])
	})
	var failed error
	text := tables.ReplaceAllStringFunc(source, func(found string) string {
		part := tables.FindStringSubmatch(found)
		table, err := writeTable(part[1], strings.TrimSpace(part[2]), part[3])
		if err != nil && failed == nil {
			failed = err
		}
		return table
	})
	return text, failed
}

// Chart is a bar chart with axes. A script shows the value of the bar under the pointer or with the keyboard's focus.
// Each chart also has a table.
type Chart struct {
	Unit  string // unit of the highest bar, as "credits in a day"
	Top   int64  // the highest value
	bars  []bar
	level []float64 // a line over the bars; nil: none
}

// Bar is a segment of a bar; the segments are stacked.
type Bar struct {
	Class string
	Value float64
}

type bar struct {
	say, when string
	parts     []Bar
}

const (
	barWidth    = 10
	chartHeight = 100
)

// Add adds a bar: its description, and its label on the axis.
func (c *Chart) Add(say, when string, parts ...Bar) {
	sum := 0.0
	for _, p := range parts {
		sum += p.Value
	}
	c.bars, c.Top = append(c.bars, bar{say, when, parts}), max(c.Top, int64(sum))
}

// Level adds the height of the line over the last bar.
func (c *Chart) Level(value float64) { c.level = append(c.level, value) }

// Times returns the labels of the axis: those of the first, the middle and the last bar.
func (c Chart) Times() []string {
	if len(c.bars) == 0 {
		return nil
	}
	last := len(c.bars) - 1
	return []string{c.bars[0].when, c.bars[last/2].when, c.bars[last].when}
}

// SVG returns the drawing.
func (c Chart) SVG() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" preserveAspectRatio="none" width="100%%" height="120" aria-hidden="true" `+
		`focusable="false">`, barWidth*len(c.bars), chartHeight)
	scale := chartHeight / max(1, float64(c.Top))
	var line []string
	for i, one := range c.bars {
		x, y := i*barWidth, float64(chartHeight)
		fmt.Fprintf(&b, `<g data-say="%s"><rect class="room" x="%d" y="0" width="%d" height="%d"></rect>`,
			template.HTMLEscapeString(one.say), x, barWidth, chartHeight)
		for _, p := range one.parts {
			if p.Value > 0 {
				height := max(1, scale*p.Value)
				y -= height
				fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%.1f" width="%d" height="%.1f"></rect>`,
					p.Class, x, y, barWidth-2, height)
			}
		}
		b.WriteString("</g>")
		if i < len(c.level) {
			at := chartHeight - min(chartHeight, scale*c.level[i])
			line = append(line, fmt.Sprintf("%d,%.1f %d,%.1f", x, at, x+barWidth, at))
		}
	}
	if line != nil {
		b.WriteString(`<polyline points="` + strings.Join(line, " ") + `"></polyline>`)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}
