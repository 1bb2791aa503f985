// Package pagetest has what tests of pages need: the operator's pages on a real listener, with a real ledger and a fake
// cluster of one receiver of each state, nodes, sources and findings; and an OpenID Connect provider on loopback.
//
// The provider speaks OpenID Connect Discovery 1.0 and the code flow of OpenID Connect Core 1.0 with PKCE (RFC 7636),
// has one client, and can give false answers. A test that plays the browser itself gets codes from Give. A real browser
// visits the provider's page, where a Person continues or refuses.
package pagetest
