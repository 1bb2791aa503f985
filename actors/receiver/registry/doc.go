// Package registry knows the receivers that live on a node: the share of its allowance that each may use here,
// and the SMTP connections that it has. It is where a share that shrinks is enforced, whatever the actors do.
package registry
