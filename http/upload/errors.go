package upload

import "errors"

var (
	// ErrOptions says that the options are not complete or out of range.
	ErrOptions = errors.New("upload: options")
	// ErrStarted means that Start was called twice.
	ErrStarted = errors.New("upload: started already")
)

// The refusals of a session. When several apply, the first of this list is given.
var (
	// ErrLengthRequired means that nobody can count the body: it has a
	// Transfer-Encoding, or no Content-Length (RFC 9110 §15.5.12).
	ErrLengthRequired = errors.New("upload: the request has no usable length")
	// ErrEncoding means that the body is encoded; the declared length counts the file's own bytes.
	ErrEncoding = errors.New("upload: the body is content-encoded")
	// ErrExpired means that the URL is past its expiry with bytes missing.
	ErrExpired = errors.New("upload: the session is expired")
	// ErrCancelled means that the verification was cancelled with bytes missing.
	ErrCancelled = errors.New("upload: the session is cancelled")
	// ErrRangeInvalid means that Content-Range is malformed, contradicts itself,
	// contradicts Content-Length, or goes beyond the file.
	ErrRangeInvalid = errors.New("upload: the content range is invalid")
	// ErrLengthMismatch means that the request speaks of a file of another length.
	ErrLengthMismatch = errors.New("upload: the length is not the declared one")
	// ErrTooLarge means that a body without Content-Range is longer than the file.
	ErrTooLarge = errors.New("upload: the body is longer than the declared length")
)
