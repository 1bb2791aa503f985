// Package operate is the pages of operators, on the admin listener: what the commands show in a terminal, in a browser.
// Nothing of it can be reached from the customers' listener. Signing in asks no ledger, so the pages also answer while the
// ledger does not.
//
// An observer (`rollcall operate --read-only`) may only use the routes that begin with GET, and ask for evidence, which is a
// POST so that no address is in a URL.
//
// Start with Pages and routes.
package operate
