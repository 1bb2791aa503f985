package http

import "errors"

var (
	// ErrOptions says that the options are not complete or out of range.
	ErrOptions = errors.New("http: options")
	// errNoAnswer is a question whose asker did not come back.
	errNoAnswer = errors.New("http: the ledger gave no answer")
)
