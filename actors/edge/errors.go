package edge

import "errors"

// ErrOptions says that an option is missing or out of range.
var ErrOptions = errors.New("edge options")
