// Package intake reads a customer's file: CSV bytes to records, records to addresses, addresses to distinct addresses.
//
// Read follows the input rules of the customer's contract: one column, UTF-8 with or without a byte order mark,
// quoting as in RFC 4180, lines that end in LF or CRLF, a header if the first record is not an address. It refuses
// the whole file for its first defect, in the order of the bytes, and says in which record that is. Inspect returns
// all defects, Check those of one text; kind.go says what each is and what to do. smtp.LocalPart and smtp.ParseDomain
// decide what is well-formed.
//
// encoding/csv is not used: it drops blank lines, keeps the byte order mark, and lets NUL and broken UTF-8 pass.
//
// A File keeps the distinct addresses, in the order of their first rows, in little more than their bytes, so that a
// verification can hold a million of them. Two addresses are one when the local part is the same byte for byte and the
// lower-case A-label of the domain is the same.
//
// The package does not fetch the bytes, hold credits, or speak to anybody. Start with Read, Inspect, Defect and File.
package intake
