// Package receiver speaks to one receiver for the whole cluster.
//
// A receiver actor is a virtual actor; its identity is the receiver key of a route. Domain actors offer it chunks of
// probes and get answers with verdicts. What is asked, when and from where is decided by a scheduler.Scheduler, which
// is plain Go. Actor and the session actors, its children, are the shell: messages and replies go in, steps come out
// and are carried out.
//
// In a cluster a receiver may have actors on several nodes for a while. Each uses its share of the allowance and no
// more: package registry knows the shares and the SMTP connections of a node, and ApplyShares returns when they agree.
// What was permitted under a larger share, or before a fence, isn't begun: each RCPT is checked. An actor that moves to
// another node answers what is on the wire and returns the others.
//
// The package knows no credits, and all that it keeps may be lost: a client offers its chunk again, and what was
// learned of a receiver, which survives a move (package facts), can be learned again.
//
// Its parts are packages that don't know this one: scheduler (what to ask next), fairqueue (whose turn it is), egress
// (our source addresses), registry (the receivers here and their shares) and status (what people see).
//
// Read Actor and Registry first, then package scheduler.
package receiver
