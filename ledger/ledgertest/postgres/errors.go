package postgres

import "errors"

var (
	// ErrMissing: this machine has no PostgreSQL of VersionMin or newer.
	ErrMissing = errors.New("no postgresql found")
	// ErrStart: the server did not start; the error holds the end of its log.
	ErrStart = errors.New("postgresql did not start")
	// ErrState: the server is not in a state for this, such as to pause it twice.
	ErrState = errors.New("postgresql server is not running, or paused")
)
