package client

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"

	"rollcall/http/api"
	"rollcall/smtp"
)

// Cancel ends what is not finished of a verification.
func (c *API) Cancel(ctx context.Context, id string) (done api.Cancellation, err error) {
	_, err = c.AskJSON(ctx, http.MethodPost, "/v1/verifications/"+id+"/cancel", nil, &done)
	return done, err
}

// resultColumns are the columns of the results file.
const resultColumns = 4

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

// EachResult reads the results that there are, copies their bytes to raw, and
// calls visit with each row below the header; the row is only good until visit returns.
func (c *API) EachResult(ctx context.Context, id string, raw io.Writer,
	visit func(row []string) error) error {
	answer, err := c.Ask(ctx, http.MethodGet, "/v1/verifications/"+id+"/results", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	reader := csv.NewReader(io.TeeReader(answer.Body, raw))
	reader.FieldsPerRecord, reader.ReuseRecord = resultColumns, true
	for n := 0; ; n++ {
		row, err := reader.Read()
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the results: %w: run the command again to get them", err)
		}
		if n == 0 {
			continue
		}
		if err := visit(row); err != nil {
			return err
		}
	}
}
