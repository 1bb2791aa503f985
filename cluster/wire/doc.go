// Package wire holds the messages that nodes send each other about themselves.
//
// Generate wire.pb.go from wire.proto in the root of the module, so that the file's name differs from those of other
// packages:
//
//	protoc --go_out=. --go_opt=paths=source_relative cluster/wire/wire.proto
package wire
