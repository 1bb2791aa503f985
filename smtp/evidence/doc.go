// Package evidence holds the record of how an address was judged: every attempt, the receiver's reply, and the rule
// that gave the verdict.
//
// An Attempt is one question and its answer; Note makes one from a raw reply. A Case is all attempts for one address
// and everything else on which its outcome is based. Cases are stored with the settlement of their outcomes (Pack,
// Unpack), so that people can see later why an address was judged so, and other rules can be tried on the same
// evidence. The text of a reply is cleaned before it is stored or judged: it then has a bounded length and contains
// no address and none of our own names.
//
// The package does not judge (smtp/verdict).
//
// Read Attempt and Case first.
package evidence
