// Package process keeps the process of a node running: what panics, waits, stands still or has too much to do.
//
// A PanicGuard keeps a panic in a goroutine from ending the process: the work that panicked has failed, and the rest
// goes on. The panic is logged as an error with its stack and counted. Its text and values aren't logged, because they
// may hold an address or a receiver's words; the text of a Go runtime error, such as an index out of range, is. An
// actor starts its goroutines this way, and says what to do when they fail:
//
//	process.GuardOf(c.ActorSystem()).Go("route", func() { ... }, func() { root.Send(self, failed{}) })
//
// A Timer wakes an actor at a time that may be moved forward. The actor library's own receive timeout races with the
// mailbox; a Timer sends a message, and recognizes a late message of an older setting.
//
// A Watchdog notices when the whole process didn't run for a while: it was stopped, its machine slept or was moved, or
// other processes had the processor. It logs one line for each pause and counts the long ones, since other nodes may
// have taken work over meanwhile. A slow machine is no pause.
//
// A Window keeps the queue of goroutines for a processor short, so that a small file doesn't wait behind a large one. A
// file whose receivers answer at once makes all of its domains runnable at the same time: with 1,024 of them each step
// of another file waited some 50 ms, and a small file has dozens of steps. A Window says how many domains a file may
// have at work. It shrinks while the queue is long and grows while it is short, so slow receivers, which leave the
// processors idle, are asked as many at a time as before.
package process
