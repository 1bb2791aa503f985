// Package evidence is what is kept of how an address was judged: every attempt at
// it, what the receiver answered, and by which rule that was taken for what.
//
// An Attempt is one question and its answer; Note makes one of a raw reply. A Case
// is all attempts at one address and what else its outcome rests on. Cases are kept
// with the settlement of their outcomes (Pack, Unpack), so that anybody can see
// later why an address was judged as it was, and so that other rules can be tried
// on the same evidence. The text of a reply is cleaned before it is kept or judged:
// it holds no address and none of our own names, and its length is bounded.
//
// The package does not judge (smtp/verdict).
//
// Read Attempt and Case first.
package evidence
