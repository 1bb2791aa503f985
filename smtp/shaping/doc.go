// Package shaping says what a receiver lets us do, and when the next thing may be done.
//
// Allowance is the permission; Table finds it for a receiver from its layers.
// Allowance.Share is what one node of a cluster may use of it, and Allowance.Shard
// what one of several actors may that a large one is split among. Window keeps to
// a Rate as the far side counts it, and Budget to the number of refusals an hour.
// Everything is plain Go: the time comes as an argument, nothing sleeps, nothing is
// sent. Window and Budget belong to one goroutine (a receiver's mailbox); Table is
// shared by all.
//
// The package does not learn limits from replies, does not know who is asked,
// and remembers nothing over a restart: a new Window begins as if an event had
// just been made. No standard lets a receiver announce its limits, so what is
// kept here is what an operator wrote, or what we think is polite.
//
// Start with Allowance, Table.Match and Window.Ready.
package shaping
