// Package smtp has the types of mail and an SMTP client that only probes.
//
// All other packages use its types (Address, Reply, Stage, Outcome, Reason). Its Session talks to one receiver up to
// RCPT (RFC 5321) and never sends DATA. Judging replies is smtp/verdict, finding hosts smtp/mx, and deciding when to
// connect smtp/throttle. Flags describe an address by lists of names.
//
// Read Address, Reply and Session first.
package smtp
