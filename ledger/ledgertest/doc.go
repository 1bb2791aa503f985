// Package ledgertest is what every database under the ledger must pass.
//
// Exercise runs all of it, without exclusions: behaviour, refusals with their precedence, and races, with an audit
// after each. Its tests break the rules of money, and of who may see and do what in the pages, on purpose, one small
// change of the source at a time, and demand that the suites that guard them fail. Start with Exercise and Fixture.
package ledgertest
