package client

import (
	"context"
	"io"

	"rollcall/smtp"
)

// Tally counts outcomes by their words.
type Tally map[string]int64

// Sum is the number of outcomes counted.
func (t Tally) Sum() (n int64) {
	for _, count := range t {
		n += count
	}
	return n
}

// countFresh is how many outcomes are counted anew at every look: reading them
// takes milliseconds. Above it a count waits until a quarter more is settled, so
// that all counting together reads a file about five times.
const countFresh = 5_000

// Behind reports whether it is worth counting again when so many are settled.
func (t Tally) Behind(settled int64) bool {
	counted := t.Sum()
	return settled != counted && (settled <= countFresh || settled > counted+counted/4)
}

// Charged is the number of credits that the outcomes cost.
func (t Tally) Charged() int64 { return t.Sum() - t[smtp.Unknown.String()] }

// Tally counts the outcomes that there are so far.
func (c *API) Tally(ctx context.Context, id string) (Tally, error) {
	counted := Tally{}
	return counted, c.EachResult(ctx, id, io.Discard, func(row []string) error {
		counted[row[1]]++
		return nil
	})
}
