// Package listen has what stands between a socket and the requests of customers: connections with their places, TLS
// with a certificate that changes, proxies that name their clients, what is wrong with the framing of a request, which
// browser pages may read an answer, and how refusals are written.
//
// On binds an address and gives a Listener; Trusted are the proxies that are believed; a Pair is the certificate.
// WriteIssue writes a refusal, and CloseAfter ends a connection gently behind it.
package listen
