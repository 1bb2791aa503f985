// Package client has two clients of a running service: API asks as a customer does, with an API key; Admin asks as an
// operator does, with the token of a node.
//
// A call of API is repeated with the same idempotency key while the service says "later" or is unreachable for a
// while. A call of Admin is made once, and its errors name commands instead of API calls.
package client
