package evidence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/klauspost/compress/zstd"

	"rollcall/smtp"
)

const (
	// packVersion is the first byte of packed cases.
	packVersion = 1

	// RawMax bounds the bytes packed together, before compression.
	RawMax = 768 << 10

	// PackedMax bounds the result of Pack: compression adds a little to incompressible data.
	PackedMax = RawMax + RawMax/8

	// EntriesMax bounds the cases that are packed together.
	EntriesMax = 4096

	// windowBytes is the compression window, which bounds the memory of both sides.
	windowBytes = 64 << 10
)

// The errors of this package.
var (
	// ErrPacked means that the bytes are not packed cases.
	ErrPacked = errors.New("evidence: not packed cases")

	// ErrTooMuch means more than EntriesMax cases or more than RawMax bytes: pack fewer together.
	ErrTooMuch = errors.New("evidence: too much to be packed together")
)

// Flags of an attempt. With flagCause, the cause follows the attempt.
const (
	flagCause   = 1 << 4
	flagBare    = 1 << 5
	flagWitness = 1 << 6
	flagsKnown  = 1<<7 - 1
)

// Entry is the case of one address of a verification.
type Entry struct {
	Ordinal int64 // place among the distinct addresses of the file, from 0
	Case    Case
}

// encoder and decoder are safe for concurrent use. They are made and used once at start: they keep channels, which
// testing/synctest binds to the bubble that makes them.
var encoder, decoder = newEncoder(), newDecoder()

func newEncoder() *zstd.Encoder {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowBytes),
		zstd.WithEncoderCRC(true))
	if err != nil {
		panic(fmt.Sprintf("evidence: the options of the encoder contradict one another: %v", err))
	}
	z.EncodeAll(nil, nil)
	return z
}

func newDecoder() *zstd.Decoder {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(RawMax))
	if err != nil {
		panic(fmt.Sprintf("evidence: the options of the decoder contradict one another: %v", err))
	}
	return z
}

// Size returns about how much of RawMax a case takes at most.
func Size(c *Case) int {
	n := 64
	for i := range c.Attempts {
		n += sizeOf(&c.Attempts[i])
	}
	for i := range c.Behaviour.Controls {
		n += sizeOf(&c.Behaviour.Controls[i])
	}
	return n
}

func sizeOf(a *Attempt) int {
	return 64 + len(a.Host) + len(a.Source) + len(a.Text) + len(a.Rule) + len(a.Cause.Why)
}

// Pack returns the stored form of cases. What several cases share, usually everything except times, is written once.
// Times are cut to milliseconds and long values to their bounds. Error: ErrTooMuch.
func Pack(entries []Entry) ([]byte, error) {
	if len(entries) > EntriesMax {
		return nil, fmt.Errorf("%d cases: %w", len(entries), ErrTooMuch)
	}
	p := packer{texts: map[string]uint64{}, kinds: map[Attempt]uint64{}, behaviours: map[string]uint64{}}
	for i := range entries {
		p.entry(&entries[i])
	}
	raw := binary.AppendUvarint(nil, uint64(len(p.texts)))
	raw = append(raw, p.text...)
	raw = binary.AppendUvarint(raw, uint64(len(p.kinds)))
	raw = append(raw, p.kind...)
	raw = binary.AppendUvarint(raw, uint64(len(p.behaviours)))
	raw = append(raw, p.behaviour...)
	raw = binary.AppendUvarint(raw, uint64(len(entries)))
	raw = append(raw, p.cases...)
	if len(raw) > RawMax {
		return nil, fmt.Errorf("%d bytes in %d cases: %w", len(raw), len(entries), ErrTooMuch)
	}
	return encoder.EncodeAll(raw, append(make([]byte, 0, len(raw)/4+64), packVersion)), nil
}

// packer writes the parts of the stored form: a table of texts, a table of attempts without times, a table of
// behaviours, and the cases, which refer to lines of these tables.
type packer struct {
	texts      map[string]uint64
	kinds      map[Attempt]uint64 // an attempt without its time
	behaviours map[string]uint64  // by their encoding

	text, kind, behaviour, cases []byte
	line                         []byte // of a behaviour, reused

	ordinal int64 // of the previous entry
	at      int64 // the last written time, in milliseconds
}

func (p *packer) entry(e *Entry) {
	c := &e.Case
	p.cases = binary.AppendVarint(p.cases, e.Ordinal-p.ordinal)
	p.ordinal = e.Ordinal
	gaveUp := byte(0)
	if c.GaveUp {
		gaveUp = 1
	}
	p.cases = append(p.cases, byte(c.NoRoute), byte(clamp(c.Hosts, math.MaxUint8)), gaveUp, byte(c.Why))
	p.cases = binary.AppendUvarint(p.cases, uint64(clamp(c.Omitted, math.MaxInt32)))
	p.cases = binary.AppendUvarint(p.cases, p.behaviourNumber(&c.Behaviour))
	attempts := newest(c.Attempts, AttemptsMax)
	p.cases = append(p.cases, byte(len(attempts)))
	for i := range attempts {
		p.cases = binary.AppendUvarint(p.cases, p.kindNumber(&attempts[i]))
		at := attempts[i].At.UnixMilli()
		p.cases = binary.AppendVarint(p.cases, at-p.at)
		p.at = at
	}
}

// behaviourNumber returns the line of a behaviour, which all addresses of a domain share.
func (p *packer) behaviourNumber(h *AcceptBehaviour) uint64 {
	b := binary.AppendUvarint(p.line[:0], uint64(clamp(h.Accepted, math.MaxInt32)))
	b = binary.AppendUvarint(b, uint64(clamp(h.Refused, math.MaxInt32)))
	b = binary.AppendVarint(b, Millis(h.First))
	b = binary.AppendVarint(b, Millis(h.Last))
	controls := newest(h.Controls, ControlsMax)
	b = append(b, byte(len(controls)))
	for i := range controls {
		b = binary.AppendUvarint(b, p.kindNumber(&controls[i]))
		b = binary.AppendVarint(b, controls[i].At.UnixMilli())
	}
	p.line = b
	n, known := p.behaviours[string(b)]
	if !known {
		n = uint64(len(p.behaviours))
		p.behaviours[string(b)] = n
		p.behaviour = append(p.behaviour, b...)
	}
	return n
}

// kindNumber returns the line of an attempt without its time.
func (p *packer) kindNumber(a *Attempt) uint64 {
	k := *a
	k.At = time.Time{}
	n, known := p.kinds[k]
	if known {
		return n
	}
	n = uint64(len(p.kinds))
	p.kinds[k] = n
	flags := byte(0)
	for i, on := range [...]bool{a.TLS, a.Wide, a.Void, a.Others, a.Cause != (Cause{}), a.Bare, a.Witness} {
		if on {
			flags |= 1 << i
		}
	}
	p.kind = append(p.kind, byte(a.Stage), flags, byte(a.Trouble), byte(a.Outcome), byte(a.Reason), byte(a.Blame))
	for _, one := range [...]struct {
		text string
		most int
	}{{a.Host, NameMax}, {a.Source, NameMax}, {a.Rule, NameMax}, {a.Text, TextMax}} {
		p.kind = binary.AppendUvarint(p.kind, p.textNumber(one.text[:min(len(one.text), one.most)]))
	}
	for _, part := range [...]uint16{uint16(clamp(a.Code, math.MaxUint16)), a.Enhanced[0], a.Enhanced[1], a.Enhanced[2]} {
		p.kind = binary.LittleEndian.AppendUint16(p.kind, part)
	}
	p.kind = binary.LittleEndian.AppendUint32(p.kind, a.Version)
	if flags&flagCause != 0 {
		p.kind = append(p.kind, byte(a.Cause.Scope))
		p.kind = binary.AppendUvarint(p.kind, p.textNumber(a.Cause.Why[:min(len(a.Cause.Why), WhyMax)]))
	}
	return n
}

func (p *packer) textNumber(text string) uint64 {
	n, known := p.texts[text]
	if !known {
		n = uint64(len(p.texts))
		p.texts[text] = n
		p.text = binary.AppendUvarint(p.text, uint64(len(text)))
		p.text = append(p.text, text...)
	}
	return n
}

func newest(attempts []Attempt, n int) []Attempt { return attempts[max(0, len(attempts)-n):] }

func clamp(n, most int) int { return min(max(0, n), most) }

// Millis returns a time as it is written and sent; 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// TimeOf is the inverse of Millis.
func TimeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Unpack calls yield for each packed case, in the order of Pack, until yield fails, and returns that error. For any
// input it uses at most a few times RawMax of memory; the error is ErrPacked if the bytes are not from Pack.
func Unpack(packed []byte, yield func(Entry) error) error {
	if len(packed) == 0 || packed[0] != packVersion || len(packed) > PackedMax {
		return fmt.Errorf("no known version, or too long: %w", ErrPacked)
	}
	raw, err := decoder.DecodeAll(packed[1:], nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPacked, err)
	}
	u := unpacker{in: reader{raw: raw}}
	u.tables()
	for n := u.in.below(EntriesMax + 1); n > 0 && !u.in.bad; n-- {
		e := u.entry()
		if u.in.bad {
			break
		}
		if err := yield(e); err != nil {
			return err
		}
	}
	if u.in.bad || len(u.in.raw) > 0 {
		return fmt.Errorf("it ends too early or too late: %w", ErrPacked)
	}
	return nil
}

type unpacker struct {
	in         reader
	texts      []string
	kinds      []Attempt
	behaviours []AcceptBehaviour

	ordinal, at int64
}

func (u *unpacker) tables() {
	for n := u.in.count(); n > 0 && !u.in.bad; n-- {
		u.texts = append(u.texts, string(u.in.bytes(u.in.below(TextMax+1))))
	}
	for n := u.in.count(); n > 0 && !u.in.bad; n-- {
		u.kinds = append(u.kinds, u.kind())
	}
	for n := u.in.below(EntriesMax + 1); n > 0 && !u.in.bad; n-- {
		u.behaviours = append(u.behaviours, u.behaviour())
	}
}

func (u *unpacker) kind() Attempt {
	b := u.in.bytes(6)
	if u.in.bad {
		return Attempt{}
	}
	flags := b[1]
	a := Attempt{Stage: smtp.Stage(b[0]), TLS: flags&1 != 0, Wide: flags&2 != 0, Void: flags&4 != 0, Others: flags&8 != 0,
		Bare: flags&flagBare != 0, Witness: flags&flagWitness != 0, Trouble: Trouble(b[2]), Outcome: smtp.Outcome(b[3]), Reason: smtp.Reason(b[4]), Blame: smtp.Blame(b[5])}
	u.in.bad = u.in.bad || a.Stage > smtp.StageRset || !a.Trouble.Known() || a.Outcome > smtp.Error ||
		!a.Blame.Known() || flags > flagsKnown || !a.Reason.Known() && a.Reason != smtp.ReasonNone
	a.Host, a.Source, a.Rule, a.Text = u.text(), u.text(), u.text(), u.text()
	if b = u.in.bytes(12); u.in.bad {
		return Attempt{}
	}
	a.Code = int(binary.LittleEndian.Uint16(b))
	for i := range a.Enhanced {
		a.Enhanced[i] = binary.LittleEndian.Uint16(b[2+2*i:])
	}
	a.Version = binary.LittleEndian.Uint32(b[8:])
	if flags&flagCause != 0 {
		a.Cause = u.cause()
	}
	return a
}

func (u *unpacker) cause() Cause {
	b := u.in.bytes(1)
	if u.in.bad {
		return Cause{}
	}
	c := Cause{Scope: Scope(b[0]), Why: u.text()}
	u.in.bad = u.in.bad || !c.Scope.Known() || len(c.Why) > WhyMax
	return c
}

func (u *unpacker) text() string {
	n := u.in.below(len(u.texts))
	if u.in.bad {
		return ""
	}
	return u.texts[n]
}

func (u *unpacker) behaviour() AcceptBehaviour {
	h := AcceptBehaviour{Accepted: u.in.below(math.MaxInt32), Refused: u.in.below(math.MaxInt32),
		First: TimeOf(u.in.varint()), Last: TimeOf(u.in.varint())}
	for range u.in.few(ControlsMax) {
		a := u.attempt()
		a.At = time.UnixMilli(u.in.varint()).UTC()
		h.Controls = append(h.Controls, a)
	}
	return h
}

// attempt reads the number of an attempt and returns it, without its time.
func (u *unpacker) attempt() Attempt {
	n := u.in.below(len(u.kinds))
	if u.in.bad {
		return Attempt{}
	}
	return u.kinds[n]
}

func (u *unpacker) entry() Entry {
	u.ordinal += u.in.varint()
	e := Entry{Ordinal: u.ordinal}
	b := u.in.bytes(4)
	if u.in.bad {
		return e
	}
	c := &e.Case
	c.NoRoute, c.Hosts, c.GaveUp, c.Why = smtp.Reason(b[0]), int(b[1]), b[2] == 1, smtp.Reason(b[3])
	u.in.bad = u.in.bad || b[2] > 1 || !c.NoRoute.Known() && c.NoRoute != smtp.ReasonNone ||
		!c.Why.Known() && c.Why != smtp.ReasonNone
	c.Omitted = u.in.below(math.MaxInt32)
	if n := u.in.below(len(u.behaviours)); !u.in.bad {
		c.Behaviour = u.behaviours[n]
	}
	for range u.in.few(AttemptsMax) {
		a := u.attempt()
		u.at += u.in.varint()
		a.At = time.UnixMilli(u.at).UTC()
		c.Attempts = append(c.Attempts, a)
	}
	return e
}
