package client_test

import (
	"context"
	"fmt"
	"os"

	"rollcall/http/client"
)

// A file is verified and its results are printed. After any failure, call it again: it goes on.
func Example() {
	ctx := context.Background()
	file, err := os.Open("contacts.csv")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		panic(err)
	}
	c := client.New("https://verify.example.com", os.Getenv("ROLLCALL_KEY"))
	done, err := c.Verify(ctx, client.File{Name: info.Name(), Content: file, Size: info.Size()})
	if err != nil {
		panic(err)
	}
	for result, err := range c.Results(ctx, done.ID) {
		if err != nil {
			panic(err)
		}
		fmt.Println(result.Email, result.Outcome, result.Message)
	}
}
