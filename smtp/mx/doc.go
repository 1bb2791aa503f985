// Package mx finds where mail for a domain goes.
//
// Resolver.Lookup turns a domain into a Route: the hosts to try, in order, with
// their addresses, and the key of the receiver behind them. It follows
// RFC 5321 §5.1 (MX preference, implicit MX) and RFC 7505 (null MX), tells a name
// that does not exist from one without records (RFC 2308), lets a name that does
// not exist end the names below it (RFC 8020), and believes a TTL only between
// Options.TTLMin and Options.TTLMax.
//
// A domain that says "no mail" is an answer, not an error. Errors mean that the
// question could not be asked or answered; every one of them is worth asking
// again later.
//
// It asks the configured recursive servers over kept UDP sockets (RFC 6891, 1232
// bytes) and over TCP for what is cut (RFC 7766). Every address passes
// Options.Allow before it gets into a route. Answers are kept in a bounded cache,
// hosts apart from domains because many domains share their hosts, and the same
// question is out only once at a time.
//
// The package does not validate DNSSEC (the servers' business), does not dial
// receivers, does not remember refusals, and does not know about verdicts. Start
// with Resolver, Options and Route.
package mx
