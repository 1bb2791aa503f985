// Package receiver asks one receiver for the whole cluster.
//
// A receiver actor is a virtual actor. Its identity is the receiver key of a route. Domain actors offer it chunks of
// probes, and get answers with verdicts. A scheduler.Scheduler, which is plain Go, decides what is asked, when, and
// from where. Actor and its children, the session actors, are the shell: messages and replies go in, steps come out and
// are carried out.
//
// In a cluster a receiver may have actors on several nodes for a while. Each actor uses its share of the limits and no
// more. Package registry knows the shares and the SMTP connections of a node; ApplyShares returns when they agree. What
// a larger share permitted, or what was permitted before a fence, isn't begun: each RCPT is checked. An actor that
// moves to another node answers what is on the wire and returns everything else.
//
// The package knows no credits, and may lose all that it keeps. Clients offer their chunks again. What was learned of a
// receiver survives a move (package facts), and can be learned again.
//
// The parts of the package are packages that don't know it: scheduler (what to ask next), fairqueue (whose turn it is),
// egress (our source addresses), registry (the receivers here and their shares) and status (what people see).
//
// Read Actor and Registry first, then package scheduler.
package receiver
