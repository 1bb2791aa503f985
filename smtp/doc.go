// Package smtp is the language of mail and a client that only asks.
//
// It has the words (Address, Reply, Stage, Outcome, Reason) that the rest of
// the house speaks, and Session, which talks to one receiver up to RCPT
// (RFC 5321) and never sends DATA. It does not judge replies (smtp/verdict),
// find hosts (smtp/mx), or decide when to speak (smtp/throttle).
//
// Read Address, Reply and Session first.
package smtp
