// Package certificate holds the certificate and key of a listener, which change while
// it serves. Load reads a Pair, Config gives what a listener needs, and Reload reads the
// files again; what can't be used leaves the pair as it was.
package certificate
