package evidence

import "encoding/binary"

// reader reads numbers and bytes from raw; what cannot be read is nothing and sets bad.
type reader struct {
	raw []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.raw)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.raw)
	r.skip(n)
	return v
}

// skip goes on behind a number of n bytes; there was none when n is not positive, and
// then the number is 0 or does not matter.
func (r *reader) skip(n int) {
	if n <= 0 {
		r.bad, r.raw = true, nil
		return
	}
	r.raw = r.raw[n:]
}

// below reads a number that must be below most.
func (r *reader) below(most int) int {
	v := r.uvarint()
	if r.bad || v >= uint64(max(0, most)) {
		r.bad = true
		return 0
	}
	return int(v)
}

// count reads how many lines follow: each takes a byte at least.
func (r *reader) count() int { return r.below(len(r.raw) + 1) }

// few reads how many follow, as one byte, at most most.
func (r *reader) few(most int) int {
	b := r.bytes(1)
	if r.bad || int(b[0]) > most {
		r.bad = true
		return 0
	}
	return int(b[0])
}

func (r *reader) bytes(n int) []byte {
	if r.bad || n > len(r.raw) {
		r.bad, r.raw = true, nil
		return nil
	}
	b := r.raw[:n]
	r.raw = r.raw[n:]
	return b
}
