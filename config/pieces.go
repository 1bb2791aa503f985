package config

import (
	"bytes"
	"fmt"
	"slices"
	"sort"

	"github.com/pelletier/go-toml/v2"
)

// pieceTables is how many tables of receivers and sources the decoder gets at once: it looks
// through all tables that it has seen for each one, which takes seconds for a file of 50,000.
// Measured: from 200 to 2,000 make no difference.
const pieceTables = 500

// lineStarts are where the lines of a document begin: the parser's own way to find the line of a
// byte reads everything before it, for each key.
type lineStarts []int

func lineStartsOf(data []byte) lineStarts {
	l := lineStarts{0}
	for i, b := range data {
		if b == '\n' {
			l = append(l, i+1)
		}
	}
	return l
}

// at returns the line and the column of a byte, both from 1.
func (l lineStarts) at(offset int) (line, column int) {
	line = sort.SearchInts(l, offset+1)
	return line, offset - l[line-1] + 1
}

// piece is a table that a document may be cut before.
type piece struct {
	parts []string
	at    position
}

// pieces are the places where a document may be cut into documents that say the same one
// after the other.
type pieces struct {
	tables []piece
	heads  map[string]bool // the tables above them that have a heading of their own
	whole  bool            // it may not be cut
}

// table notes the heading of a table. A document of named tables and the default alone may be
// cut: nothing that stands before one can belong to it.
func (p *pieces) table(parts []string, at position) {
	switch {
	case len(parts) == 2 && named(parts[0]):
		p.tables = append(p.tables, piece{parts, at})
	case len(parts) != 1 || parts[0] != "default" && (!named(parts[0]) || p.heads[parts[0]]):
		p.whole = true
	case named(parts[0]):
		if p.heads == nil {
			p.heads = map[string]bool{}
		}
		p.heads[parts[0]] = true
	}
}

// loose notes a key in a table that is not one of those, or in none.
func (p *pieces) loose(table, parts []string) {
	p.whole = p.whole || len(table) == 0 && named(parts[0]) || len(table) == 1 && named(table[0])
}

// named reports whether the tables below a table have names that somebody chose.
func named(table string) bool { return table == "receivers" || table == "sources" }

// cut returns the pieces of a document, each with so many empty lines before it that every line
// has the number that it has in the document.
func (p *pieces) cut(data []byte, l lineStarts) [][]byte {
	if p.whole || len(p.tables) <= pieceTables {
		return [][]byte{data}
	}
	var out [][]byte
	from := 1 // line
	for part := range slices.Chunk(p.tables[pieceTables:], pieceTables) {
		to := part[0].at.line
		out = append(out, slices.Concat(bytes.Repeat([]byte("\n"), from-1), data[l[from-1]:l[to-1]]))
		from = to
	}
	return append(out, slices.Concat(bytes.Repeat([]byte("\n"), from-1), data[l[from-1]:]))
}

// twice finds the tables that stand in two pieces, in the decoder's words: it tells of those
// in one.
func (p *pieces) twice() (found []Finding) {
	if p.whole {
		return nil
	}
	seen := map[string]int{}
	for i, t := range p.tables {
		key := joinKey(t.parts)
		first, there := seen[key]
		switch {
		case !there:
			seen[key] = i / pieceTables
		case first != i/pieceTables:
			found = append(found, t.at.finding(SeverityError, fmt.Sprintf("%s: table %s already exists", key, t.parts[1])))
		}
	}
	return found
}

// decodePieces decodes pieces one after the other, as far as the first fault.
func decodePieces(documents [][]byte, target func() any, strict bool) error {
	for _, document := range documents {
		d := toml.NewDecoder(bytes.NewReader(document))
		if strict {
			d.DisallowUnknownFields()
		}
		if err := d.Decode(target()); err != nil {
			return err
		}
	}
	return nil
}
