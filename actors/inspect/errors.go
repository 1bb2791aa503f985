package inspect

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotThere says that no node has what was asked for: a receiver that nothing is asked
// of now, a session that is over, a verification that nobody works on.
var ErrNotThere = errors.New("no node has it")

// Unreachable says that no node that answers has what was asked for, and which do not answer: one
// of them may have it. It is an ErrNotThere too.
type Unreachable struct{ Silent []UnreachableNode }

// Error implements error.
func (u *Unreachable) Error() string {
	names := make([]string, len(u.Silent))
	for i, s := range u.Silent {
		names[i] = fmt.Sprintf("%s (%s)", s.Node, s.Why)
	}
	return "no node that answers has it, and without an answer are " + strings.Join(names, ", ")
}

// Unwrap makes it an ErrNotThere.
func (u *Unreachable) Unwrap() error { return ErrNotThere }
