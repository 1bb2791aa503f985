// Package registry knows the receivers on a node: each one's share of its allowance and its SMTP connections. If a
// share shrinks, the registry enforces it, whatever the actors do.
package registry
