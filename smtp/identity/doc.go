// Package identity checks what receivers hold against a sender: that its address has
// a name and the name leads back, that the name in EHLO and the domain in MAIL FROM
// exist and fit the address, that no block list has it, and that port 25 is open.
//
// Receivers refuse senders that fail these checks with words that look like a missing
// mailbox, so a node asks itself before it asks them. Each check is a plain function
// that gives Findings: what was seen, whether it is fit, and what to do next. Watch
// runs them on a schedule and keeps the last Report; reading it costs nothing.
//
// A check that could not be made (DNS did not answer) is no failure. The package does
// not know what follows from a failure. Start with Options, Watch and Finding.
package identity
