// Package api holds the JSON shapes of the customer interface, version 0.1.0,
// and its description, openapi.yaml.
//
// It holds no logic: package http fills these shapes, clients read them. A field is a pointer if it may be null in the
// contract; no shape has a property that the contract does not name. Start with Detail and Error.
package api
