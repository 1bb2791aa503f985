// Package signin identifies the user of a page: passwords, codes, a provider, sessions in cookies, one-time links, and
// delays against guessing. It is plain Go over ledger.People and knows neither pages nor HTTP.
//
// A cookie and a link hold 256 random bits; the ledger stores only their SHA-256. The ledger's answer about a session
// is cached for four seconds, so that an ended session is refused everywhere within five. An unknown email and a wrong
// password take equally long and get the same answer.
//
// Passwords are kept as argon2id (RFC 9106). An app makes codes from a secret and the time (RFC 6238). A provider
// identifies a person by the code flow of OpenID Connect with state, nonce and PKCE (RFC 7636); it decides nothing
// about their rights here. Start with Service.
package signin
