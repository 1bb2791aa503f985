// Package certificatetest makes certificates for tests: self-signed ones for loopback, in
// files as operators have them.
package certificatetest
