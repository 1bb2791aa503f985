// Package mx finds where mail for a domain goes.
//
// Resolver.Lookup returns the Route of a domain: the hosts to try, in order, with their addresses, and the key of
// the receiver behind them. It follows RFC 5321 §5.1 (MX preference, implicit MX) and RFC 7505 (null MX),
// distinguishes a name that does not exist from one without records (RFC 2308), and keeps TTLs between
// Options.TTLMin and Options.TTLMax.
//
// A domain that takes no mail gives a Route, not an error. An error means that the question was not answered; asking
// again later may help.
//
// The package asks the configured recursive servers over kept UDP sockets (RFC 6891, 1232 bytes), and over TCP after a
// truncated reply (RFC 7766). Options.Allow checks every address before it gets into a route. A bounded cache keeps the
// answers, hosts apart from domains because many domains share hosts, and a question is asked only once at a time.
//
// The package does not validate DNSSEC (the servers do that), dial receivers, remember refusals, or judge replies.
// Start with Resolver, Options and Route.
package mx
