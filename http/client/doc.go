// Package client speaks the customer API from Go: create a verification, upload its file, wait, read the results.
//
//	c := client.New("https://verify.example.com", os.Getenv("ROLLCALL_KEY"))
//	done, err := c.Verify(ctx, client.File{Name: "contacts.csv", Content: file, Size: size})
//	for result, err := range c.Results(ctx, done.ID) { … }
//
// Everything may be repeated: a request keeps its idempotency key until the service answers, an upload goes on where it
// stopped, and the key is made from the file's bytes, so that nothing is charged twice. Types are those of package api,
// whose openapi.yaml is the description.
package client
