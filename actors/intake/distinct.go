package intake

import (
	"bytes"
	"hash/maphash"
	"strings"

	"rollcall/smtp"
)

// distinct builds a File: it knows the addresses and domains that it has seen.
//
// Its tables go by hashes and what decides is the bytes. The hash of an address
// is that of the local part XOR that of the domain, under two seeds made anew
// for each file: simple tabulation, for which linear probing takes constant time
// (Pătraşcu and Thorup, The Power of Simple Tabulation Hashing), so nobody can
// write a file whose addresses all meet in one place.
type distinct struct {
	file       *File
	localSeed  maphash.Seed
	domainSeed maphash.Seed
	addresses  table // of ordinals
	spellings  table // of places in file.domains.spellings
	facts      []fact
	queue      [queueMax]pending
	queued     int
	touched    uint64 // so that the compiler leaves touch in
}

// fact is what adding an address needs to know of its domain, by spelling.
type fact struct {
	domain uint32
	hash   uint32 // of the domain
	bytes  uint8  // of the domain, at most smtp.DomainBytesMax
}

// pending is an address that is not looked for yet.
type pending struct {
	local    []byte
	spelling uint32
	hash     uint32
}

// queueMax is how many addresses are looked for together. Measured: 8 to 128 are
// alike; 1 takes a tenth longer for a million addresses, half as long again for
// five million, whose table is larger than the cache.
const queueMax = 64

func newDistinct() *distinct {
	return &distinct{
		file:       &File{},
		localSeed:  maphash.MakeSeed(),
		domainSeed: maphash.MakeSeed(),
		addresses:  newTable(),
		spellings:  newTable(),
	}
}

// known returns the place of a domain that was spelled like this before.
func (d *distinct) known(domain []byte) (spelling uint32, ok bool) {
	hash := uint32(maphash.Bytes(d.domainSeed, domain))
	for at := d.spellings.first(hash); ; {
		number, next := d.spellings.next(hash, at)
		if number < 0 {
			return 0, false
		}
		if d.file.domains.spellings[number].text == string(domain) {
			return uint32(number), true
		}
		at = next
	}
}

// learn returns the place of a domain's spelling, known or not, that smtp.ParseDomain
// turns into name.
func (d *distinct) learn(domain []byte, name string) (spelling uint32) {
	if spelling, ok := d.known(domain); ok {
		return spelling
	}
	of, ok := d.known([]byte(name))
	if !ok {
		of = d.domain(name)
	}
	if string(domain) == name {
		return of
	}
	return d.spell(string(domain), d.facts[of])
}

// domain adds a domain that was not there, and its name as a spelling.
func (d *distinct) domain(name string) (spelling uint32) {
	all := &d.file.domains
	name = strings.Clone(name) // it may be a piece of a whole address
	all.names = append(all.names, name)
	hash := uint32(maphash.String(d.domainSeed, name))
	return d.spell(name, fact{domain: uint32(len(all.names) - 1), hash: hash, bytes: uint8(len(name))})
}

func (d *distinct) spell(text string, f fact) uint32 {
	all := &d.file.domains
	number := len(all.spellings)
	all.spellings = append(all.spellings, spelling{text, f.domain})
	d.facts = append(d.facts, f)

	hash := uint32(maphash.String(d.domainSeed, text))
	at := d.spellings.first(hash)
	for found := 0; found >= 0; { // the text is not there: only its slot is looked for
		found, at = d.spellings.next(hash, at)
	}
	d.spellings.insert(hash, at, number)
	return uint32(number)
}

// fits reports whether an address with a local part of n octets and that domain is
// short enough (RFC 5321 §4.5.3.1.3).
func (d *distinct) fits(n int, spelling uint32) bool {
	return n+1+int(d.facts[spelling].bytes) <= smtp.AddressBytesMax
}

// add counts an address as a row and puts it into the queue. The local part must
// stay as it is until the next flush.
func (d *distinct) add(local []byte, spelling uint32) {
	d.file.rows++
	hash := uint32(maphash.Bytes(d.localSeed, local)) ^ d.facts[spelling].hash
	d.queue[d.queued] = pending{local, spelling, hash}
	if d.queued++; d.queued == queueMax {
		d.flush()
	}
}

// flush keeps each address of the queue unless it is there already.
func (d *distinct) flush() {
	queue := d.queue[:d.queued]
	d.queued = 0
	d.touched += d.addresses.touch(queue)
	for i := range queue {
		d.keep(&queue[i])
	}
}

func (d *distinct) keep(p *pending) {
	f := d.file
	at := d.addresses.first(p.hash)
	for {
		ordinal, next := d.addresses.next(p.hash, at)
		at = next
		if ordinal < 0 {
			break
		}
		if d.same(ordinal, p) {
			return
		}
	}
	f.add(entry{local: f.locals.put(p.local), spelling: p.spelling})
	d.addresses.insert(p.hash, at, f.count-1)
}

func (d *distinct) same(ordinal int, p *pending) bool {
	e := d.file.entry(ordinal)
	if d.facts[e.spelling].domain != d.facts[p.spelling].domain {
		return false
	}
	return bytes.Equal(d.file.locals.get(e.local), p.local)
}
