// Package scheduler decides what one receiver is asked, by whom, from where, and when. Package scheduler is plain Go
// over values and time: it has no clock, no goroutine and no socket.
//
//	offer -> hostQueue (a set of hosts) -> session -> Report -> facts -> results
//
// A Scheduler has six parts. Plan goes through them once, and a Report goes through them back:
//
//	queues who waits: offers, tasks, queues by hosts, repeated probes, and unsent answers
//	sessions the SMTP sessions: what each is given, how many there are, and what they may do here
//	paths our source addresses and the hosts, what each accepts, and every pause
//	learn makes facts of a report; each part above handles its own
//	decide how much a session is asked, and whether one more is opened
//	explain why we can't ask more, and the sentence for it
//
// The last three decide from values alone and use no other part. queues uses paths, and sessions uses both. env.go has
// what all share, and the values that one part passes to another.
//
// We ask a receiver from one of our sources at a time. If the receiver refuses a source, that source is suspended
// there, and the next source takes over with its own refusal budget. At the first words of a harvest guard everything
// stops, and later answers don't count.
//
// Every answer carries its attempts, from which verdict.Conclude comes to the same outcome.
//
// The tests run a Scheduler against simulated receivers in simulated time (world_test.go, stranger_test.go). The tests
// of package receiver use real sockets.
package scheduler
