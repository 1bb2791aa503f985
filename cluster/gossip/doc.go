// Package gossip is how the nodes of a cluster find each other and notice that one
// is gone: hashicorp/memberlist (the SWIM protocol with Lifeguard), held so that a
// stranger cannot join it, a broken packet cannot crash it and a partition heals.
//
// A member is one life of one process, named by its session. What it says of itself
// is its NodeMeta. A node of another ledger, wire version, cluster name or key is
// refused, and both sides say why.
//
// Between the network and the library stands a guard: what is not from an allowed
// network, not of this cluster, not encrypted with one of our keys or not of the few
// kinds that members send each other is dropped and counted before the library
// sees it. Some of it would crash the library, which trusts whoever has the key.
//
// Gossip decides who is tried first, never what is true: the ledger does that. The
// package carries no message for anybody. Start with Options, Start and Member.
package gossip
