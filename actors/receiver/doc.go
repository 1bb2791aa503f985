// Package receiver speaks to one receiver for the whole cluster.
//
// A receiver actor is a virtual actor; its identity is the receiver key of a
// route. Domain actors offer it chunks of probes and get answers with verdicts. What is
// asked, when and from where is decided by a scheduler.Scheduler, which is plain Go. Actor
// and the session actors, its children, are the shell: messages and replies go in, steps
// come out and are carried out.
//
// In a cluster a receiver may have actors on several nodes for a while. Each uses
// its share of the allowance and no more: package registry knows the shares and the SMTP
// connections of a node, and ApplyShares returns when they agree. What was permitted under
// a larger share, or before a fence, is not begun: that is looked at before every
// RCPT. An actor whose place moves answers what is on the wire and gives the rest
// back.
//
// The package knows no credits, and keeps nothing that may not be lost: whoever
// offered a chunk offers it again, and what a receiver taught us, which survives a
// move (package state), can be learned again.
//
// Its parts are packages of their own, and know nothing of this one: scheduler (what to ask
// next), fairqueue (whose turn it is), egress (our source addresses), registry (who lives
// here, and each one's share), state (what outlives an actor) and status (what is told).
//
// Read Actor and Registry first, then package scheduler.
package receiver
