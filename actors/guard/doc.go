// Package guard keeps a panic in a goroutine from ending the process: what panicked has failed,
// and everything else goes on.
//
// A panic is logged as an error with its stack and counted. Neither its text nor a value of the
// program is logged, because it may hold an address or what a receiver said; of an error of the Go
// runtime, such as an index out of range, the text is.
//
// An actor starts its goroutines so, and says what is to be done when they fail:
//
//	guard.Of(c.ActorSystem()).Go("route", func() { ... }, func() { root.Send(self, failed{}) })
//
// Read Guard.
package guard
