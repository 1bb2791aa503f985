// Package secure keeps strangers out of the traffic between actors.
//
// The actor library's port is a remote control: a stream there can carry any message to any actor, and some messages
// end the process. So the port speaks mutual TLS 1.3 with a private CA (Authority, Identity), a certificate has the
// name of its member, and a Guard inspects every batch of envelopes before the library does.
//
// - A client sends nothing until the server has proved the name that membership knows for the dialled address. - A
// server accepts no peer unless its certificate names a member. - A member may send the house's messages and the few of
// the library that the house uses, under its own address and to actors of this node. All else is dropped and counted;
// what could crash the library ends the stream.
//
// To revoke a node's credentials, end its membership: with other gossip keys it is no member within seconds, and its
// streams end at its next message. A new CA keeps it from coming back; the CA file may hold both during the change.
//
// The package does not know the members: its users pass functions for that. Start with Load, Remote and, for making
// certificates, NewAuthority.
package secure
