// Package providertest is an OpenID Connect provider on loopback, for tests of signing in: it speaks OpenID Connect
// Discovery 1.0 and the code flow of OpenID Connect Core 1.0 with PKCE (RFC 7636), has one client, and can give false
// answers.
//
// A test that plays the browser itself gets codes from Give. A real browser visits the provider's page, where a Person
// continues or refuses. Start with Start.
package providertest
