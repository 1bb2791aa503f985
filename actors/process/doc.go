// Package process keeps the process of a node running: what panics, waits, stands still or has too much to do.
//
// A PanicGuard keeps a panic in a goroutine from ending the process: what panicked has failed, and everything else
// goes on. The panic is logged as an error with its stack and counted. Neither its text nor a value of the program
// is logged, because it may hold an address or what a receiver said; of an error of the Go runtime, such as an
// index out of range, the text is. An actor starts its goroutines so, and says what is to be done when they fail:
//
//	process.GuardOf(c.ActorSystem()).Go("route", func() { ... }, func() { root.Send(self, failed{}) })
//
// A Timer wakes an actor at a time that may be moved forward. The actor library's own receive timeout races with
// the mailbox; a Timer sends a message, and tells a late message of an older setting from the newest.
//
// A Watchdog notices when the whole process did not run for a while: it was stopped, its machine slept or was
// moved, or others had the processor. It logs one line for each pause and counts the long ones, so that an actor
// whose work others may have taken over meanwhile can ask. A machine that is only slow is no pause.
//
// A Window keeps the queue of goroutines for a processor short, so that a small file doesn't wait behind a large
// one. A file whose receivers answer at once makes all of its domains runnable at the same time: with 1,024 of them
// each step of another file waited some 50 ms, and a small file has dozens of steps. A Window says how many domains
// a file may have at work. It shrinks while the queue is long and grows while it is short: slow receivers, which
// leave the processors idle, are asked as many at a time as ever.
package process
