// Package registry knows the receivers on a node: each one's share of its limits, and its SMTP connections. If a share
// shrinks, the registry enforces the smaller share, whatever the actors do.
package registry
