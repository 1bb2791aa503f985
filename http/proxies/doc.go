// Package proxies finds out whose connection and whose request it is when proxies
// stand in front of a listener.
//
// Trusted are the proxies that are believed. Listen wraps a listener: a trusted peer
// may begin a connection with a PROXY protocol header of version 2 (the text of
// HAProxy, 2020-03-05, section 2.2), and the connection then has the client's
// address. Anybody else who begins so is refused with ErrRefused at the first Read.
// Client does the same for a request, by X-Forwarded-For.
//
// Version 1 of the protocol is not supported: it is text of no fixed length, and
// all proxies that are asked for write version 2 too.
package proxies
