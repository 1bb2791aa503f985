// Package wire holds the messages that nodes send each other about themselves.
package wire
