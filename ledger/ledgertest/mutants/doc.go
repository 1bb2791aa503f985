// Package mutants holds no code, only its test: it breaks the rules of money, and of who may see and do what in the
// pages, on purpose, one small change of the source at a time, and demands that the suites that guard them fail. So their
// silence means something.
package mutants
