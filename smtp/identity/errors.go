package identity

import "errors"

// ErrOptions says that the options are not usable; the text says what is missing.
var ErrOptions = errors.New("not usable as identity options")
