package cluster

import (
	"errors"

	"rollcall/cluster/gossip"
)

// ErrRefused: the members do not take this node; the text says why.
var ErrRefused = gossip.ErrRefused

// ErrDisplaced: a later process runs as the same node, so this one must end.
var ErrDisplaced = errors.New("cluster: another process runs as this node: was its data_dir copied, " +
	"or is cluster.node given twice?")

// ErrNoSuchMember: no node has this name, id or beginning of an id.
var ErrNoSuchMember = errors.New("cluster: no such node")
