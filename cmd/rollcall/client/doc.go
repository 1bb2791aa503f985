// Package client asks a running service: API as a customer does, with an API key, and Admin as an operator does, with
// the token of a node.
//
// A call of API is repeated with the same identity while the service says "later", or is away for a while. A call of
// Admin is made once: it ends with what the node says, in the words of the commands.
package client
