// Package gossiptest is a network in memory for the gossip of several nodes in one process. Each direction between two
// nodes can be cut, for packets and streams, and nodes can die.
//
// It is for tests only. Start with Network.
package gossiptest
