// Package scheduler decides what one receiver is asked, by whom, from where, and when. It is plain
// Go over values and time: it has no clock, no goroutine and no socket.
//
//	offer -> hostQueue (a set of hosts) -> session -> Report -> verdict -> results
//
// Scheduler puts its parts together; Plan goes through them. Each part knows only the parts above it:
//
//	allowance    what is allowed: the limits, our share, and what the receiver taught us
//	recorder     what the receiver said, for people
//	inbox        who offered addresses, and the answers that they are owed
//	pool         the sessions
//	paths        our source addresses, as this receiver takes them
//	queues       what waits for each set of hosts
//	rechecks     what bad answers are about (smtp/throttle/README.md)
//	opening      how many sessions may be opened in a second
//	outcomes     what follows from the report of a session
//	planner      what free sessions are given, and where one more is opened
//	memory       what outlives the actor
//	explainer    what is told, and how long it will take
//
// A receiver is spoken to from one of our sources at a time. One that it refuses is
// suspended there, and the next takes over with a refusal budget of its own. At the first
// word of a guard against harvesting everything stops, and what was answered after
// it counts for nothing.
//
// Every answer carries the attempts that it rests on, and verdict.Conclude comes to
// the same outcome from them.
//
// The tests play it against simulated receivers in simulated time (world_test.go,
// stranger_test.go); those of package receiver use real sockets.
package scheduler
