// Package totp has the codes that an app makes from a secret and the time (RFC 6238 over RFC 4226: HMAC-SHA-1, six digits,
// 30 seconds), the recovery codes for who has lost the app, and what is remembered so that each works once.
//
// It is plain computing: it knows no clock, no ledger and no page. Start with State.
package totp
