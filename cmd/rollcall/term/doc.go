// Package term writes for a person at a terminal: tables, indented texts, numbers and lengths of time, and files that
// are written whole or not at all.
package term
