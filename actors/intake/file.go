package intake

import (
	"strings"

	"rollcall/smtp"
)

// entriesBlock is how many entries are allocated at once. Full blocks are never
// copied as a slice that grows would be; 32,768 of them are 256 KiB.
const entriesBlock = 1 << 15

// File is the distinct addresses of a file, in the order of their first rows. An address is known by its ordinal, from
// 0 to Len()-1. A File does not change and is safe for concurrent use.
type File struct {
	rows    int64
	entries [][]entry // blocks of entriesBlock, the last one not full
	count   int
	locals  arena
	domains domains
}

// entry is one distinct address.
type entry struct {
	local    uint32 // place in locals
	spelling uint32 // of the domain, as in the first row that had this address
}

// Len returns the number of distinct addresses, at least 1.
func (f *File) Len() int { return f.count }

// Rows returns the number of rows that hold an address: all but the header.
func (f *File) Rows() int64 { return f.rows }

// Duplicates returns the number of rows whose address an earlier row has.
func (f *File) Duplicates() int64 { return f.rows - int64(f.count) }

// SpellTo writes an address as its first row spells it, byte for byte, without the quotes of CSV.
func (f *File) SpellTo(b *strings.Builder, ordinal int) {
	e := f.entry(ordinal)
	b.WriteString(f.locals.get(e.local))
	b.WriteByte('@')
	b.WriteString(f.domains.spellings[e.spelling].text)
}

// Address returns an address as it is asked. Keeping its local part keeps much of the File in memory.
func (f *File) Address(ordinal int) smtp.Address {
	return smtp.Address{Local: f.locals.get(f.entry(ordinal).local), Domain: f.Domain(ordinal)}
}

// Domain returns the domain of an address as lower-case A-label. It allocates nothing.
func (f *File) Domain(ordinal int) string { return f.domains.names[f.DomainID(ordinal)] }

// DomainID returns the place of an address's domain in Domains.
func (f *File) DomainID(ordinal int) int {
	return int(f.domains.spellings[f.entry(ordinal).spelling].domain)
}

// Domains returns the distinct domains as lower-case A-labels, in the order in
// which they first came. The slice belongs to the File: read it only.
func (f *File) Domains() []string { return f.domains.names }

func (f *File) entry(ordinal int) entry {
	return f.entries[ordinal/entriesBlock][ordinal%entriesBlock]
}

func (f *File) add(e entry) {
	if f.count%entriesBlock == 0 {
		first := entriesBlock
		if f.count == 0 {
			first = 16 // most files are small; this block grows as slices do
		}
		f.entries = append(f.entries, make([]entry, 0, first))
	}
	last := &f.entries[len(f.entries)-1]
	*last = append(*last, e)
	f.count++
}

// arenaBlock is the address space of one block of an arena: a place is the
// block's number and the offset in it, so 4,096 blocks of 1 MiB fit in 32 bits.
const arenaBlock = 1 << 20

// arenaFirst is the size of the first block; each next one is twice as large, up
// to arenaBlock, so that small files stay small. Guess.
const arenaFirst = 4096

// arena keeps short byte strings one after the other, each behind its length.
type arena struct {
	blocks []*strings.Builder // none grows beyond its first capacity
}

// put keeps a copy of text, at most 255 bytes, and returns its place. It is for
// the caller to see that all of them together stay within the 4,096 blocks.
func (a *arena) put(text []byte) uint32 {
	n := len(a.blocks) - 1
	if n < 0 || a.blocks[n].Len()+1+len(text) > a.blocks[n].Cap() {
		size := arenaFirst
		if n >= 0 {
			size = min(2*a.blocks[n].Cap(), arenaBlock)
		}
		a.blocks = append(a.blocks, &strings.Builder{})
		n++
		a.blocks[n].Grow(size)
	}
	place := n*arenaBlock + a.blocks[n].Len()
	a.blocks[n].WriteByte(byte(len(text)))
	a.blocks[n].Write(text)
	return uint32(place)
}

// get returns the text at a place. Its bytes belong to the arena.
func (a *arena) get(place uint32) string {
	rest := a.blocks[place/arenaBlock].String()[place%arenaBlock:]
	return rest[1 : 1+rest[0]]
}

// domains keeps each spelling of a domain, and each domain, once.
type domains struct {
	spellings []spelling
	names     []string // lower-case A-labels, by domain
}

type spelling struct {
	text   string
	domain uint32 // place in names
}
