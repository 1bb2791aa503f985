// Package wire holds the messages that nodes send each other about themselves.
//
// wire.pb.go is made of wire.proto from the root of the module, so that its name differs from those of other packages:
//
//	protoc --go_out=. --go_opt=paths=source_relative cluster/wire/wire.proto
package wire
