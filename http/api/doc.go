// Package api holds the JSON shapes and the keys of the customer interface, version 0.1.0, its description,
// openapi.yaml, and a client:
//
//	c := api.NewClient("https://verify.example.com", os.Getenv("ROLLCALL_KEY"))
//	done, err := c.Verify(ctx, api.File{Name: "contacts.csv", Content: file, Size: size})
//	for result, err := range c.Results(ctx, done.ID) { … }
//
// Package http fills the shapes; clients read them. A field is a pointer if it may be null in the contract; no shape
// has a property that the contract does not name. Start with Detail, Error and Client.
//
// Everything that a Client does may be repeated without being charged twice. A request keeps its idempotency key
// until the service answers, the key is made from the file's bytes, and an upload continues where it stopped.
package api
