// Package domain works on the addresses of one mail domain of one verification.
//
// A domain actor finds the route, offers the addresses to the receiver in chunks, asks again when they are due, and
// finds out what an acceptance is worth. Every address leaves it with exactly one final outcome: what nobody could find
// out is unknown when the time is up. Outcomes come from verdict.Conclude alone; the actor gathers their cases.
//
// An acceptance counts only at hosts that tell mailboxes apart. Control probes, for mailboxes that nobody has, find
// that out. They are sent at the end of the first chunk, or after a real address was accepted. One refused control
// probe shows that the host does; only several accepted ones, apart in time, show a catch-all domain. After many
// refusals an acceptance is believed only when a later control probe is refused, because some harvest guards then
// accept everything.
//
// A receiver actor that can't be reached, moves or falls silent is our own fault and no attempt at an address: it is
// looked up again every few seconds, as long as the work is ours.
//
// planner, which is plain Go, decides what to do next; Actor is its shell. A planner has four parts, which share a
// job: route is where the addresses are asked, retries has those that were answered and have no outcome, controls
// find out what an acceptance is worth, and backlog has those that were never asked or are at the receiver. The
// attempt log keeps the attempts at addresses that wait, for there may be a million. Facts are what domains have
// learned for one another, on this node and, through a Store, on all.
//
// Of the ledger the package sees Store alone, which is a memory that may be lost. It keeps nothing durable: its parent,
// the verification actor, restarts it with the addresses that are not settled.
package domain
