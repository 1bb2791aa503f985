// Package receiver speaks to one receiver for the whole cluster.
//
// A receiver actor is a virtual actor; its identity is the receiver key of a
// route. Domain actors offer it chunks of probes; it queues them, opens sessions
// within the receiver's allowance, serves workspaces in turn and the verifications of
// each (package fairqueue), reuses sessions for any of them, and answers with verdicts. Below the
// allowance it looks for the rate that the receiver bears (throttle.AdaptiveRate, haste.go). What is asked when, is
// decided by scheduler, which is plain Go; Actor and the session actors, its children,
// are the shell.
//
// In a cluster a receiver may have actors on several nodes for a while. Each uses
// its share of the allowance and no more: Living knows the shares and the SMTP
// sockets of a node, and Comply returns when they agree. What was permitted under
// a larger share, or before a fence, is not begun: that is looked at before every
// RCPT. An actor whose place moves answers what is on the wire and gives the rest
// back.
//
// A receiver is spoken to from one of our sources at a time. One that it refuses is
// suspended there, and the next takes over with a harm budget of its own; package egress
// knows which of them many receivers refuse, and keeps those away from all. At the first
// word of a guard against harvesting everything stops, and what was answered after
// it counts for nothing.
//
// Every answer carries the attempts that it rests on, and verdict.Conclude comes to
// the same outcome from them.
//
// The package knows no credits, and keeps nothing that may not be lost: whoever
// offered a chunk offers it again, and what a receiver taught us, which survives a
// move (package state), can be learned again.
//
//	offer -> lane (a set of hosts) -> fairqueue.HostQueue -> session -> verdict -> results
//
// What it does it tells to those who ask (Living.Survey), and nobody else: package status
// costs next to nothing while nobody does. What keeps it from asking more, scheduler.hold says
// in one place.
//
// Four parts are packages of their own, and know nothing of this one: fairqueue (who is
// next), egress (our source addresses), state (what outlives an actor) and status (what is
// told).
//
// Read scheduler, fairqueue, lane, outlet, Actor and Living first.
package receiver
