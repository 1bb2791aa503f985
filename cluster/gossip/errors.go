package gossip

import "errors"

var (
	// ErrRefused means that every member that could be reached would not have this
	// node, or this node them; the text says who and why. Trying again without a
	// change of the configuration is of no use.
	ErrRefused = errors.New("refused")

	// ErrKeyFile means that the file of gossip keys cannot be used; the text says
	// why, without a key.
	ErrKeyFile = errors.New("gossip key file")

	// ErrNotAKey means that a text is not 32 bytes in base64.
	ErrNotAKey = errors.New("not a gossip key: write 32 bytes in base64, as `rollcall cluster keys new FILE` " +
		"does")

	// ErrNoSuchKey means that no key on the ring is meant.
	ErrNoSuchKey = errors.New("no such gossip key on this ring")

	// ErrKeyInUse means that the primary key, which may be the only one, was to be removed.
	ErrKeyInUse = errors.New("the primary gossip key cannot be removed: use another one first")

	// ErrTooManyKeys means that the ring is full: remove old keys first.
	ErrTooManyKeys = errors.New("too many gossip keys: remove old ones first")

	// ErrStopped means that this gossip has been stopped.
	ErrStopped = errors.New("gossip has stopped")
)
