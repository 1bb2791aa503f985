// Package apikey makes and reads API keys: rc_<key id>_<secret>.
//
// The key id is public and finds the key in the ledger. The secret is 256
// random bits in base 62 with a CRC-32 at the end, so that a mistyped or
// invented key is refused without asking the ledger, and a scanner can tell a
// real key from text. The ledger keeps the SHA-256 of the secret only; at that
// entropy no slow hash is needed.
//
// The package stores nothing and knows no workspace. Start with New and Parse.
package apikey
