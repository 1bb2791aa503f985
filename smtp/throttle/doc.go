// Package throttle says what a receiver lets us do, and when we may do the next thing.
//
// Limits holds what we may do, in Fields. Table finds the Limits of a receiver, or of one of our sources, from Rules in
// layers. Explain says who has set which value. Check returns doubtful rules before they are used, and Diff returns
// what changed between two states. Limits.Share is the part that one node of a cluster may use. Window keeps to a Rate
// as the receiver counts it, and Budget to the refusals of an hour. Pace searches for the rate that a receiver
// tolerates and doesn't publish (smtp/throttle/README.md). Everything is plain Go: the time is an argument, nothing
// sleeps, nothing is sent. One goroutine, a receiver's mailbox, owns a Window and a Budget; all share a Table.
//
// The package reads no replies, doesn't know whom we ask, and keeps nothing over a restart. No standard lets a receiver
// announce its limits. So a limit here comes from an operator of Rollcall, from what an operator of receivers
// published, or from what we think is polite.
//
// Start with Limits, Table.Match and Window.Ready.
package throttle
