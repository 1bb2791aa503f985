package web

import (
	"fmt"
	"html/template"
	"strings"
)

// Chart is a bar chart with axes. Script shows the value of the bar at the pointer or the keyboard's focus; each chart
// also has a table.
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

// Times are the labels of the axis: for the first, the middle and the last bar.
func (c Chart) Times() []string {
	if len(c.bars) == 0 {
		return nil
	}
	last := len(c.bars) - 1
	return []string{c.bars[0].when, c.bars[last/2].when, c.bars[last].when}
}

// SVG is the drawing.
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
