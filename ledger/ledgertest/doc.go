// Package ledgertest is what every database under the ledger must pass.
//
// Exercise runs all of it, without exclusions: behaviour, refusals with their precedence, and races, with an audit
// after each. Its tests break the rules of money, and of who may see and do what in the pages, on purpose, one small
// change of the source at a time, and demand that the suites that guard them fail. Start with Exercise and Fixture.
//
// RecordHistory lets 16 clients work on one ledger at once, records what each asked and was answered and when, and
// History.Check has porcupine look for an order of the calls in which a ledger that does one thing at a time gives the
// same answers (linearizability). No such order, or none found in time, is a failure. Each workspace is searched by
// itself, which makes the search short and loses one thing only: that a lease of fewer files than there are takes the
// oldest of all workspaces together. Of each workspace it must have taken the oldest, unless the ledger may pass over
// files that another call is changing. That ledger is the transitions themselves, over the tables of the simulation:
// what they do alone others prove, so only what calls do at once is asked here. Read client.next for the calls.
package ledgertest
