// Package wire has the messages between nodes and what turns them into house types.
//
// The messages are generated from wire.proto by
//
//	protoc --go_out=. --go_opt=paths=source_relative wire.proto
//
// and may only grow: a field's number is never used again. A message must not
// be changed after it was sent, because within a node it is passed by pointer.
package wire
