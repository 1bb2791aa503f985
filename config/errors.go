package config

import (
	"errors"
	"strings"
)

// ErrInvalid is in every error about what a file or the environment says. The
// text is one line for each fault: where it is, what is wrong, what to do.
var ErrInvalid = errors.New("config: invalid")

// fault is one thing that is wrong with one setting.
type fault struct {
	key  string // dotted, such as smtp.port
	text string // what is wrong and what to do
}

// invalid is faults with their places, each a line.
type invalid struct{ lines []string }

func (e *invalid) Error() string { return strings.Join(e.lines, "\n") }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *invalid) Is(target error) bool { return target == ErrInvalid }
