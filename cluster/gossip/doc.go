// Package gossip is how the nodes of a cluster find each other and notice that one is gone: hashicorp/memberlist (the
// SWIM protocol with Lifeguard), wrapped so that strangers can't join, broken packets can't crash it and partitions
// heal.
//
// A member is one process, named by its session; its NodeMeta describes it. A node of another ledger, wire version,
// cluster name or key is refused, and both sides say why.
//
// A guard stands between the network and the library. It drops and counts every message that is not from an allowed
// network, not of this cluster, not encrypted with one of our keys, or not of the few kinds that members send. Some of
// them would crash the library, which trusts every owner of a key.
//
// Gossip decides which node is tried first; the truth is in the ledger. The package carries no messages of other
// packages. Start with Options, Start and Member.
package gossip
