package ledger

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"rollcall/smtp"
)

// EmailBytesMax bounds one address in its original spelling: the longest field that intake accepts.
const EmailBytesMax = 1024

const (
	// payloadVersion is the first byte of a payload. Only add versions: old payloads must stay readable. Version 1
	// had no operators.
	payloadVersion = 2
	// payloadRawMax bounds a decompressed payload: for each result the longest address and the longest form of
	// ordinal, length, outcome, reason and time.
	payloadRawMax = SettlementMax * (EmailBytesMax + 2*binary.MaxVarintLen64 + 8)
	// ordinalMax is the last ordinal that has a next one.
	ordinalMax = math.MaxInt64 - 1
	// windowBytes is the compression window, which bounds the memory of both sides. A batch of 1,000 addresses is
	// some 35 KB.
	windowBytes = 64 << 10
)

// ErrPayload means that the bytes are not the payload of a settlement.
var ErrPayload = errors.New("ledger: not a settlement's payload")

// encoder and decoder are safe for concurrent use.
var (
	encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowBytes),
			zstd.WithEncoderCRC(true))
	})
	decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(payloadRawMax))
	})
)

// Payload is a settlement's results in stored form.
type Payload struct {
	Bytes       []byte   // the compressed form
	Digest      [32]byte // SHA-256 before compression; equal results have equal digests
	First, Last int64    // smallest and greatest ordinal
	Ordinals    []int64  // all, ascending
	Counts      Counts
}

// EncodeResults packs the results of one settlement, in any order, without changing them. Times are cut to
// milliseconds. It returns ErrIllegal if there are none or over SettlementMax, an ordinal is negative, duplicate or
// above ordinalMax, an address is empty or above EmailBytesMax, an outcome isn't final, or a reason is unknown.
func EncodeResults(results []Result) (Payload, error) {
	if len(results) == 0 || len(results) > SettlementMax {
		return Payload{}, fmt.Errorf("settlement of %d outcomes: %w", len(results), ErrIllegal)
	}
	byOrdinal := func(a, b Result) int { return cmp.Compare(a.Ordinal, b.Ordinal) }
	if !slices.IsSortedFunc(results, byOrdinal) {
		results = slices.Clone(results)
		slices.SortFunc(results, byOrdinal)
	}
	p := Payload{First: results[0].Ordinal, Last: results[len(results)-1].Ordinal, Ordinals: make([]int64, len(results))}
	for i := range results {
		p.Ordinals[i] = results[i].Ordinal
	}
	raw, err := packResults(results, &p.Counts)
	if err != nil {
		return Payload{}, err
	}
	z, err := encoder()
	if err != nil {
		return Payload{}, fmt.Errorf("make encoder: %w", err)
	}
	p.Digest = sha256.Sum256(raw)
	p.Bytes = z.EncodeAll(raw, append(make([]byte, 0, len(raw)/2), payloadVersion))
	return p, nil
}

// packResults writes columns, because each compresses well by itself: the number of results, ordinals as
// differences, lengths, outcomes, reasons, operators, times as differences, and all addresses.
func packResults(results []Result, counts *Counts) ([]byte, error) {
	raw := binary.AppendUvarint(make([]byte, 0, 64*len(results)), uint64(len(results)))
	next := int64(0) // the smallest allowed ordinal
	for i := range results {
		r := &results[i]
		if r.Ordinal < next || r.Ordinal > ordinalMax || len(r.Email) == 0 || len(r.Email) > EmailBytesMax ||
			!r.Outcome.Final() || !r.Reason.Known() {
			return nil, fmt.Errorf("outcome at ordinal %d: %w", r.Ordinal, ErrIllegal)
		}
		counts.Add(r.Outcome)
		raw = binary.AppendUvarint(raw, uint64(r.Ordinal-next))
		next = r.Ordinal + 1
	}
	for i := range results {
		raw = binary.AppendUvarint(raw, uint64(len(results[i].Email)))
	}
	for i := range results {
		raw = append(raw, byte(results[i].Outcome))
	}
	for i := range results {
		raw = append(raw, byte(results[i].Reason))
	}
	for i := range results {
		raw = append(raw, byte(results[i].Operator))
	}
	before := int64(0)
	for i := range results {
		at := results[i].At.UnixMilli()
		raw = binary.AppendVarint(raw, at-before)
		before = at
	}
	for i := range results {
		raw = append(raw, results[i].Email...)
	}
	return raw, nil
}

// Batch is a decoded payload, column by column, by ascending ordinal. It is reusable: its content is valid until the
// next Decode. The zero value is ready. Not safe for concurrent use.
type Batch struct {
	Ordinals  []int64
	Outcomes  []smtp.Outcome
	Reasons   []smtp.Reason
	Operators []smtp.Operator // operators of the hosts that were asked last
	Times     []int64         // milliseconds since 1970

	ends   []int // end of each address in emails
	emails []byte
	raw    []byte
}

// Len returns the number of results.
func (b *Batch) Len() int { return len(b.Ordinals) }

// Email returns the address of result i; the bytes belong to b.
func (b *Batch) Email(i int) []byte {
	start := 0
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.emails[start:b.ends[i]]
}

// Digest returns the Payload.Digest of the committed settlement.
func (b *Batch) Digest() [32]byte { return sha256.Sum256(b.raw) }

// Result copies result i out of the batch.
func (b *Batch) Result(i int) Result {
	return Result{Ordinal: b.Ordinals[i], Email: string(b.Email(i)), Outcome: b.Outcomes[i],
		Reason: b.Reasons[i], Operator: b.Operators[i], At: time.UnixMilli(b.Times[i]).UTC()}
}

// Decode decodes a payload. For any bytes it takes at most the memory of a full settlement, and gives either a batch
// that EncodeResults could have packed or ErrPayload.
func (b *Batch) Decode(payload []byte) error {
	if len(payload) == 0 || payload[0] == 0 || payload[0] > payloadVersion {
		return fmt.Errorf("no known version: %w", ErrPayload)
	}
	z, err := decoder()
	if err != nil {
		return fmt.Errorf("make decoder: %w", err)
	}
	if b.raw, err = z.DecodeAll(payload[1:], b.raw[:0]); err != nil {
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	in := columns{raw: b.raw}
	n := int(min(in.uvarint(), SettlementMax+1))
	if n == 0 || n > SettlementMax {
		return fmt.Errorf("%d outcomes: %w", n, ErrPayload)
	}
	b.Ordinals, b.ends, b.Times = b.Ordinals[:0], b.ends[:0], b.Times[:0]
	b.Outcomes, b.Reasons, b.Operators = b.Outcomes[:0], b.Reasons[:0], b.Operators[:0]
	b.unpack(&in, n, payload[0] > 1)
	if in.bad || len(b.emails) != b.ends[n-1] {
		return fmt.Errorf("columns do not fit: %w", ErrPayload)
	}
	return nil
}

// unpack reads the columns of n results into b, with or without operators. It sets in.bad on a failure.
func (b *Batch) unpack(in *columns, n int, operators bool) {
	next := int64(0)
	for range n {
		ordinal := next + int64(in.uvarint())
		in.bad = in.bad || ordinal < next || ordinal > ordinalMax
		b.Ordinals = append(b.Ordinals, ordinal)
		next = ordinal + 1
	}
	end := 0
	for range n {
		length := in.uvarint()
		in.bad = in.bad || length == 0 || length > EmailBytesMax
		end += int(min(length, EmailBytesMax))
		b.ends = append(b.ends, end)
	}
	for range n {
		o := smtp.Outcome(in.byte())
		in.bad = in.bad || !o.Final()
		b.Outcomes = append(b.Outcomes, o)
	}
	for range n {
		r := smtp.Reason(in.byte())
		in.bad = in.bad || !r.Known()
		b.Reasons = append(b.Reasons, r)
	}
	for range n {
		runs := smtp.Operator(0)
		if operators {
			runs = smtp.Operator(in.byte())
		}
		b.Operators = append(b.Operators, runs)
	}
	at := int64(0)
	for range n {
		at += in.varint()
		b.Times = append(b.Times, at)
	}
	b.emails = in.raw
}

// columns reads numbers from raw; on an error it returns 0 and sets bad.
type columns struct {
	raw []byte
	bad bool
}

func (c *columns) uvarint() uint64 {
	v, n := binary.Uvarint(c.raw)
	return v * c.take(n)
}

func (c *columns) varint() int64 {
	v, n := binary.Varint(c.raw)
	return v * int64(c.take(n))
}

func (c *columns) byte() byte {
	if len(c.raw) == 0 {
		c.bad = true
		return 0
	}
	v := c.raw[0]
	c.raw = c.raw[1:]
	return v
}

// take skips n bytes and returns 1. If n says that there was no number it sets bad and returns 0.
func (c *columns) take(n int) uint64 {
	if n <= 0 {
		c.bad = true
		return 0
	}
	c.raw = c.raw[n:]
	return 1
}
