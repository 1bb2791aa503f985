// Package signin says who asks for a page: passwords, codes, a provider, sessions in cookies, one-time links, and what
// slows down those who guess. It is plain Go over Book and knows neither pages nor HTTP.
//
// A cookie and a link hold 256 random bits; the book keeps their SHA-256 only. What the book says of a session is
// believed for four seconds, so that a session that ends does so everywhere within five. Who is unknown and who gives
// a wrong password wait equally long and are told the same.
//
// Passwords are kept as argon2id (RFC 9106). Codes are what an app makes from a secret and the time (RFC 6238). A
// provider is asked who somebody is by the code flow of OpenID Connect with state, nonce and PKCE (RFC 7636); it
// decides nothing about what they may do here. Start with Service.
package signin
