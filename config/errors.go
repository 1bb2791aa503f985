package config

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is in every error about the content of a file or the environment. The text has a line for each fault:
// where it is, what is wrong, what to do.
var ErrInvalid = errors.New("config: invalid")

// fault is an error in one setting.
type fault struct {
	key  string // dotted, such as smtp.port
	text string // what is wrong and what to do
}

// Severity reports whether a file with a Finding can be used.
type Severity string

const (
	// SeverityError is a fault: the file is not used.
	SeverityError Severity = "error"

	// SeverityWarning is valid but perhaps not intended.
	SeverityWarning Severity = "warning"
)

// Finding is an error or a warning about a place in a file.
type Finding struct {
	File     string   `json:"file"` // or a variable of the environment
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"` // the key, what is wrong, what to do
}

// String is "file:line:column: text", as far as these are known.
func (f Finding) String() string {
	if f.File == "" {
		return f.Text
	}
	return position{f.File, f.Line, f.Column}.String() + ": " + f.Text
}

// position is a place in a file, or a variable of the environment.
type position struct {
	file         string
	line, column int // from 1; 0: not known
}

// String is "file:line:column", or the file alone.
func (p position) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column)
}

// where is "file:line", for people who open the file.
func (p position) where() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// finding is a finding at p.
func (p position) finding(s Severity, text string) Finding {
	return Finding{p.file, p.line, p.column, s, text}
}

// places holds the position of each dotted key.
type places map[string]position

// nearest returns the place of a key, or of the table or list it is in.
func (p places) nearest(key string) (position, bool) {
	for key != "" {
		if at, ok := p[key]; ok {
			return at, true
		}
		cut := strings.LastIndexAny(key, ".[")
		if cut < 0 {
			break
		}
		key = key[:cut]
	}
	return position{}, false
}

// below returns the places of the keys in a table, without the table's name.
func (p places) below(table string) places {
	out := places{}
	for key, at := range p {
		if rest, found := strings.CutPrefix(key, table+"."); found {
			out[rest] = at
		}
	}
	return out
}

// locate returns faults with their places.
func (p places) locate(faults []fault) []Finding {
	var out []Finding
	for _, f := range faults {
		at, _ := p.nearest(f.key)
		out = append(out, at.finding(SeverityError, f.key+": "+f.text))
	}
	return out
}

// invalid returns findings as an error; nil if there are none.
func invalid(findings []Finding) error {
	if len(findings) == 0 {
		return nil
	}
	return &invalidError{findings}
}

type invalidError struct{ findings []Finding }

func (e *invalidError) Error() string {
	lines := make([]string, len(e.findings))
	for i, f := range e.findings {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *invalidError) Is(target error) bool { return target == ErrInvalid }
