// Package postgres starts a real PostgreSQL for tests, in a temporary folder.
//
// The server is of the machine (initdb and postgres of PATH, else the newest of the usual Debian folder, 15 or newer);
// nothing is ever downloaded. It listens on a port of the loopback address, and dies with the test binary. As root it
// runs as an unprivileged user, since PostgreSQL refuses to run as root.
//
// It is no server to keep anything in: every user of the machine is its superuser, and without Options.Durable nothing
// is synced.
//
// A Proxy stands in front of a server and loses, delays and falsifies on demand, so that a test can put a fault at any
// statement, and above all at a commit. It knows the text of each statement that runs, also of prepared ones, and
// asks a Plan what to do with it. An answer that it forges is true: a statement answered as failed has failed, its
// transaction is over, and a commit answered as unknown was made or undone, as the plan says. It counts what it did,
// so that a test that injected nothing can tell. It does not speak TLS, COPY, or Flush without Sync, and notices with
// the next statement that the server ended a connection.
//
// Start with New, Server.Create and Server.URL; for faults with StartProxy and Proxy.SetPlan.
package postgres
