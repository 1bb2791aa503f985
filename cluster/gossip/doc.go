// Package gossip lets the nodes of a cluster find each other and notice lost nodes. It wraps hashicorp/memberlist
// (the SWIM protocol with Lifeguard) so that strangers can't join, broken packets can't crash it, and partitions
// heal.
//
// A member is one process, named by its session; its NodeMeta describes it. A node of another ledger, wire version,
// cluster name or key is refused, and both sides say why.
//
// A guard stands between the network and the library. It accepts only messages of this cluster that come from an
// allowed network, are encrypted with one of our keys, and are of the few kinds that members send. It drops and
// counts the others, of which some would crash the library: the library trusts everybody who has a key.
//
// Gossip decides which node is tried first; the ledger decides who may work. The package carries no messages of other
// packages. Start with Options, Start and Member.
package gossip
