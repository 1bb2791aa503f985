// Package api holds the JSON shapes and the keys of the customer interface, version 0.1.0, and its description,
// openapi.yaml.
//
// Package http fills these shapes, clients read them. A field is a pointer if it may be null in the
// contract; no shape has a property that the contract does not name. Start with Detail and Error.
package api
