// Package secure keeps strangers out of the traffic between actors.
//
// The actor library's port is a remote control: whoever can open a stream there
// can send any message to any actor, and with some messages end the process. So
// the port speaks mutual TLS 1.3 with a private CA (Authority, Identity), the name
// in a certificate is the name of the member, and a Guard looks at every batch of
// envelopes before the library does.
//
//   - A client sends nothing until the server has proved the name that membership
//     knows for the dialled address.
//   - A server hears nobody whose certificate's name is not a member's.
//   - A member may send the house's messages and the few of the library that the
//     house uses, under its own address and to actors of this node. All else is
//     dropped and counted; what could crash the library ends the stream.
//
// A node's credentials are taken back by making it a member no more: with other
// gossip keys it is none within seconds, and its streams end with its next message.
// A new CA keeps it from coming back; the CA file may hold both for the change.
//
// The package does not know who the members are: that comes in as functions. Start
// with Load, Remote and, for making certificates, NewAuthority.
package secure
