package view

import "errors"

// ErrNotThere says that no node has what was asked for: a receiver that nothing is asked
// of now, a session that is over, a verification that nobody works on.
var ErrNotThere = errors.New("no node has it")
