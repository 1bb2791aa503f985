// Package uses collects when keys and sessions were used, and writes many at once: a write for each request would cost more
// than the requests.
package uses
