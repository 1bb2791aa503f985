package throttle

import "errors"

// ErrRate says that a text or a value is not a usable Rate.
var ErrRate = errors.New("not a rate")

// ErrLimits says that a field of Limits or an Override is out of range.
var ErrLimits = errors.New("not an allowance")

// ErrOverrideName says that the name of an override is not a host or domain name.
var ErrOverrideName = errors.New("not a name for an override")
