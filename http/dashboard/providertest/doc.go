// Package providertest is an OpenID Connect provider on loopback, for tests of signing in: it speaks OpenID Connect Discovery
// 1.0 and the code flow of OpenID Connect Core 1.0 with PKCE (RFC 7636), has one client, and can be made to lie.
//
// A test that plays the browser itself takes codes by Give. A real browser comes to the page of the provider, where somebody
// goes on as a Person or refuses. Start with Start.
package providertest
