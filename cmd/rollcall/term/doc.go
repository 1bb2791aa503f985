// Package term writes for a person at a terminal: tables, texts that fit beside an indent, numbers and lengths of
// time, and files that are there whole or not at all.
package term
