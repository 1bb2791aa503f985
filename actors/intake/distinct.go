package intake

import (
	"hash/maphash"
	"strings"

	"rollcall/smtp"
)

// distinct builds a File: it knows the addresses and domains that it has seen.
//
// Its tables find entries by hash and compare their bytes. The hash of an address is that of the local part XOR that of
// the domain, with two new seeds for each file: simple tabulation, for which linear probing takes constant time
// (Pătraşcu and Thorup, The Power of Simple Tabulation Hashing). So nobody can write a file whose addresses all
// collide.
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

// fact is what adding an address needs to know about a spelling of its domain.
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

// queueMax is how many addresses are looked for together. Measured: 8 to 128 are alike; 1 takes a tenth longer for a
// million addresses, half as long again for five million, whose table is larger than the cache.
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

// learn returns the place of a domain's spelling, known or not, that smtp.ParseDomain turns into name.
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

// fits reports whether an address with a local part of n octets and that domain is short enough (RFC 5321 §4.5.3.1.3).
func (d *distinct) fits(n int, spelling uint32) bool {
	return n+1+int(d.facts[spelling].bytes) <= smtp.AddressBytesMax
}

// add counts an address as a row and puts it into the queue. The local part must stay as it is until the next flush.
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
	return d.file.locals.get(e.local) == string(p.local)
}

// table finds numbers by a hash of 32 bits, by open addressing. A slot holds the hash and the number plus one, 0 when
// it is empty; the first slot of a hash follows from its highest bits, so that growing computes no hash and keeps the
// order. The table knows only numbers: the caller compares their values, and keeps others from choosing hashes.
type table struct {
	slots []uint64 // a power of two of them, at least a quarter empty
	shift uint     // a hash shifted right by this is the place of its first slot
	count int
}

// slotsFirst is the first size of a table: 8 KiB. Guess.
const slotsFirst = 1 << 10

func newTable() table {
	var t table
	t.resize(slotsFirst)
	return t
}

// first returns the slot where the search for hash starts.
func (t *table) first(hash uint32) uint32 { return hash >> t.shift }

// next returns the number in the next slot with that hash, from slot at on, and the slot to continue from. If there
// is none, number is -1 and slot the one that insert needs.
func (t *table) next(hash, at uint32) (number int, slot uint32) {
	last := uint32(len(t.slots) - 1)
	for ; t.slots[at&last] != 0; at++ {
		if s := t.slots[at&last]; uint32(s>>32) == hash {
			return int(uint32(s)) - 1, at + 1
		}
	}
	return -1, at & last
}

// insert puts a number into a slot that next gave.
func (t *table) insert(hash, slot uint32, number int) {
	t.slots[slot] = uint64(hash)<<32 | uint64(number+1)
	if t.count++; t.count > len(t.slots)/4*3 { // beyond three quarters the searches get long
		t.resize(2 * len(t.slots))
	}
}

// touch brings the first slots of some hashes into the cache, all at a time: in a table larger than the cache that is
// most of the work, and a processor waits for many such loads as long as for one.
func (t *table) touch(queue []pending) (sum uint64) {
	for i := range queue {
		sum += t.slots[t.first(queue[i].hash)]
	}
	return sum
}

func (t *table) resize(size int) {
	old := t.slots
	t.slots = make([]uint64, size)
	t.shift = 32
	for n := size; n > 1; n /= 2 {
		t.shift--
	}
	last := uint32(size - 1)
	for _, slot := range old {
		if slot == 0 {
			continue
		}
		at := t.first(uint32(slot >> 32))
		for t.slots[at] != 0 {
			at = (at + 1) & last
		}
		t.slots[at] = slot
	}
}
