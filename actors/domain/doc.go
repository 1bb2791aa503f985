// Package domain works on the addresses of one mail domain of one verification.
//
// A domain actor finds the route and offers the addresses to the receiver in chunks. A domain actor asks addresses
// again when they are due, and finds out whether an acceptance counts. Every address gets exactly one final outcome;
// what nobody could find out when the time is up is unknown. Only verdict.Conclude makes outcomes, from the cases that
// the actor collects.
//
// An acceptance counts only if the host tells mailboxes apart. We find that out with control probes, for mailboxes that
// nobody has. Control probes are sent at the end of the first chunk, or after a real address was accepted. One refused
// control probe shows that the host tells mailboxes apart. Only several accepted control probes, with time between
// them, show a catch-all domain. After many refusals some harvest guards accept everything. After many refusals an
// acceptance counts only if a later control probe is refused.
//
// If a receiver actor can't be reached, moves or falls silent, that is our own fault and doesn't count as an attempt at
// an address. The domain actor looks it up again every few seconds, as long as the work is ours.
//
// planner decides what to do next. planner is plain Go, and Actor is its shell. The parts of a planner share a job:
//   - route: where the addresses are asked
//   - retries: the addresses that were answered and have no outcome
//   - controls: whether acceptances count
//   - backlog: the addresses that were never asked, or are at the receiver
//
// The attempt log keeps the attempts at waiting addresses, of which there may be a million. Facts keep what one domain
// learned for another, on this node and, through a Store, on all nodes.
//
// The package uses nothing of the ledger but a Store, whose content may be lost. A domain actor keeps nothing durable.
// Its parent, the verification actor, restarts it with the addresses that are not settled.
package domain
