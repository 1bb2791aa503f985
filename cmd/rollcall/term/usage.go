package term

import "errors"

// ErrUsage is in every error about how the command was called.
var ErrUsage = errors.New("wrong usage")

// UsageError is a line about how the command was called.
type UsageError string

// Error implements error.
func (e UsageError) Error() string { return string(e) }

// Is makes errors.Is(err, ErrUsage) true.
func (e UsageError) Is(target error) bool { return target == ErrUsage }
