package admin

import "errors"

var (
	// ErrOptions says that the options are not complete.
	ErrOptions = errors.New("admin: options")
	// ErrToken says that the token file cannot be used; the text says what to do.
	ErrToken = errors.New("admin: token")
	// ErrNoKeyring says that the gossip of this node is not encrypted.
	ErrNoKeyring = errors.New("admin: gossip has no keys")
	// ErrNodeUnknown says that no node is meant.
	ErrNodeUnknown = errors.New("no node has the name or the id")
	// ErrNodeAmbiguous says that more than one node may be meant.
	ErrNodeAmbiguous = errors.New("several nodes fit")
)
