// Package secure keeps strangers out of the traffic between actors.
//
// The actor library's port is a remote control: a stream there can carry any message to any actor, and some messages
// end the process. So the port speaks mutual TLS 1.3 with a private CA (Authority, Identity), a certificate has the
// name of its member, and a Guard inspects every batch of envelopes before the library reads it.
//
// A client sends nothing until the server's certificate has proved the name of the member at the dialled address. A
// server accepts only peers whose certificate names a member. A member may send the messages of Rollcall, and the few
// of the library that Rollcall uses. It sends them under its own address and to actors of this node. Other messages
// are dropped and counted. A message that could crash the library ends the stream.
//
// To revoke a node's credentials, end its membership: change the gossip keys. Within seconds the node is no member,
// and each of its streams ends at the next message. A new CA keeps it from coming back; during the change the CA file
// may hold both CAs.
//
// The package does not know the members: its users pass functions for that. Start with Load, Remote and, for making
// certificates, NewAuthority.
package secure
