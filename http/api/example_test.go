package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"rollcall/http/api"
)

// A file is verified and its results are printed. After any failure, call it again: it goes on.
func Example() {
	ctx := context.Background()
	c := api.NewClient(exampleService(), "rc_key") // such as https://verify.example.com, and $ROLLCALL_KEY
	file := []byte("email\nanna@example.com\n")
	done, err := c.Verify(ctx, api.File{Name: "contacts.csv", Content: bytes.NewReader(file), Size: int64(len(file))})
	if err != nil {
		panic(err)
	}
	for result, err := range c.Results(ctx, done.ID) {
		if err != nil {
			panic(err)
		}
		fmt.Println(result.Email, result.Outcome)
	}
	// Output: anna@example.com valid
}

// exampleService returns the URL of a service that has one file.
func exampleService() string {
	server := httptest.NewServer(nil)
	answers := map[string]string{
		"POST /v1/verifications":          `{"id":"1","status":"uploading","upload":{"url":"` + server.URL + `/upload/x"}}`,
		"PUT /upload/x":                   "",
		"GET /v1/verifications/1":         `{"id":"1","status":"completed"}`,
		"GET /v1/verifications/1/results": "email,result,message,checked_at\nanna@example.com,valid,,2026-11-26T10:16:33Z\n",
	}
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, answers[r.Method+" "+r.URL.Path])
	})
	return server.URL
}
