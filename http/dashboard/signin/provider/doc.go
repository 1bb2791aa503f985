// Package provider asks an OpenID Connect provider who somebody is: the code flow (OpenID Connect Core 1.0, 3.1) with state,
// nonce and PKCE (RFC 7636). Keys and their rotation, signatures and times are the library's.
//
// It says who somebody is there, and decides nothing about what they may do here. Start with Provider.
package provider
