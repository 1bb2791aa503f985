// Package operate is the operators' web pages on the admin listener: they show what the commands show in a terminal.
// The customers' listener does not serve them. Signing in needs no ledger, so the pages work while the ledger does not
// answer.
//
// An observer (`rollcall operate --read-only`) may only use GET routes and the page of evidence, which is a POST so
// that no address is in a URL.
//
// Start with Pages and routes.
package operate
