// Package mutants holds no code, only its test: it breaks the money rules on
// purpose, one small change of the source at a time, and demands that the suites
// that guard them fail. So their silence means something.
package mutants
