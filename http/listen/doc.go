// Package listen is the layer between sockets and customers' requests: places for connections, TLS with renewable
// certificates, proxies that name their clients, checks of framing, the browser origins that may read answers, and
// the form of refusals.
//
// On binds an address and returns a Listener; Trusted are the trusted proxies; a Pair is the certificate. WriteIssue
// writes a refusal, and CloseAfter ends a connection gently after it.
package listen
