// Package ledgertest is what every database under the ledger must pass.
//
// Exercise runs all of it, without exclusions: behaviour, refusals with their
// precedence, races, and random operations against a naive model in memory,
// with an audit after each. Start with Exercise and Fixture.
package ledgertest
