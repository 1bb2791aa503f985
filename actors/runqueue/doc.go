// Package runqueue keeps the run queue of a node short, so that whoever comes with something small is not kept
// waiting by whoever has very much.
//
// Goroutines that could run wait in one queue for a processor. A file whose receivers answer at once makes all of
// its domains runnable at the same time: with 1,024 of them each step of anybody else, a request or a message
// between actors, waited some 50 ms, and a small file has dozens of steps. No more is done in that time: the
// processors are busy either way. A Window says how many domains a file may have at work. It shrinks while the
// run queue is long and grows while it is short, so that receivers that are slow, which leave the processors
// idle, are asked as many at a time as ever.
package runqueue
