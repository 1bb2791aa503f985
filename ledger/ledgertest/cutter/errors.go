package cutter

import "errors"

var (
	// errProtocol: a side sent what this proxy does not speak.
	errProtocol = errors.New("outside of the protocol")
	// errCut: the plan ended the connection.
	errCut = errors.New("cut")
)
