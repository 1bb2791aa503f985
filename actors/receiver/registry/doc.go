// Package registry knows the receivers on a node: each one's share of its allowance and its SMTP connections. It
// enforces a share that shrinks, whatever the actors do.
package registry
