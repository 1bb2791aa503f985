// Package identity checks what receivers check about a sender: its address has a name that leads back to it, the name
// in EHLO and the domain in MAIL FROM exist and fit the address, no block list has the address, and port 25 is open.
//
// Receivers refuse senders that fail these checks, often in words that look like a missing mailbox, so a node checks
// itself first. Each check is a plain function that returns Findings: what was seen, whether it is fit, and what to
// do next. Watch runs the checks on a schedule and keeps the last Report.
//
// A check that could not be made (DNS did not answer) is no failure. Callers decide what follows from a failure.
// Start with Options, Watch and Finding.
package identity
