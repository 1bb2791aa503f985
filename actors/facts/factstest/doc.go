// Package factstest has a facts.Store in memory, for tests of whoever learns something: it can be slow, and fail.
package factstest
