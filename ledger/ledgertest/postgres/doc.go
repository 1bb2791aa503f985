// Package postgres starts a real PostgreSQL for tests, in a temporary folder.
//
// The server is of the machine (initdb and postgres of PATH, else the newest of
// the usual Debian folder, 15 or newer); nothing is ever downloaded. It listens
// on a unix socket in its own folder, on loopback TCP only when asked, and dies
// with the test binary. As root it runs as an unprivileged user, since
// PostgreSQL refuses to run as root.
//
// It is no server to keep anything in: everybody on the machine who can reach
// the socket is its superuser, and without Options.Durable nothing is synced.
//
// Start with New, Server.Create and Server.URL.
package postgres
