// Package verdict judges replies: an evidence.Attempt gives a Verdict with reason, blame, rule and what to do next;
// Conclude makes outcomes of whole cases.
//
// The order is fixed: the stage; the operator's own rules; the rules for the host, by suffix of its name; those for
// server software; then the generic ones: words about us, enhanced codes (RFC 3463) about us, words about the mailbox,
// the other enhanced codes, and the code alone (RFC 5321 §4.2). A refusal of us, or a policy, never counts as a missing
// mailbox: words about us go before every built-in rule that gives invalid or speaks of relays (at the only host of a
// domain, relay denied also gives invalid). A reply that no rule knows means "again", and in the end unknown, which is
// free for the customer. Judging is pure and total: any bytes give some verdict.
//
// The rules are the files in rules; docs/operators/verdicts.md explains their form. A rule fails the tests, or the
// loading of an operator's file (Load), if it misses its samples, can never match, or is shadowed by another.
// Replies and their expected verdicts are in testdata/replies. The package keeps no state, and does not decide how
// often to ask again.
//
// Start with Rules, Judge, Verdict and Conclude, then read a file of rules.
package verdict
