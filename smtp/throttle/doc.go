// Package throttle says what a receiver lets us do, and when the next thing may be done.
//
// Limits is the permission, a number of Fields; Table finds it for a receiver, or for one of our sources, from Rules in
// layers, and Explain says who has set what. Check returns what is doubtful in rules before they are used, and Diff
// what has changed between two states. Limits.Share is the part that one node of a cluster may use. Window keeps to a
// Rate as the far side counts it, and Budget to the refusals of an hour; Pace searches for the unpublished rate that a
// receiver tolerates (smtp/throttle/README.md). Everything is plain Go: time comes as an argument, nothing sleeps,
// nothing is sent. Window and Budget belong to one goroutine (a receiver's mailbox); Table is shared by all.
//
// The package reads no replies, doesn't know who is asked, and remembers nothing over a restart: a new Window begins as
// if an event had just happened. No standard lets a receiver announce its limits, so the limits here are what an
// operator wrote, what operators of receivers have published, or what we think is polite.
//
// Start with Limits, Table.Match and Window.Ready.
package throttle
