// Package verdict judges replies: an evidence.Attempt gives a Verdict with reason,
// blame, rule and what to do next; Conclude makes outcomes of whole cases.
//
// The order is fixed: stage first; then the operator's own rules; then the rules for
// the host, by suffix of its name; then those for server software; then the generic
// ones: words that speak about us, enhanced codes (RFC 3463) that do, words that
// speak about the mailbox, the other enhanced codes, and the code alone (RFC 5321
// §4.2). A refusal of us, or a policy, is never taken for a missing mailbox: words
// about us go before any rule of ours that calls an address invalid, or that speaks of
// relays, which at the only host of a domain comes to the same. What no rule
// knows is "again", and in the end unknown, which is free for the customer. Judging is
// pure and total: any bytes give some verdict.
//
// The rules are the files in rules, whose form docs/operators/verdicts.md explains. A rule that
// misses its samples, that can never match, or that another shadows fails the tests,
// or the loading of an operator's file (Load). What receivers say and what it is taken
// for is in testdata/replies. The package remembers nothing, and does not decide how
// often to ask again.
//
// Start with Rules, Judge, Verdict and Conclude, then read a file of rules.
package verdict
