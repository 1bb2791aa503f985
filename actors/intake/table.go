package intake

// table finds numbers by a hash of 32 bits, by open addressing. A slot holds the
// hash and the number plus one, 0 when it is empty; the first slot of a hash
// follows from its highest bits, so that growing needs no hash again and keeps
// the order. The table knows nothing of what the numbers stand for: the caller
// compares that, and sees to it that nobody can choose hashes.
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

// next returns the number in the next slot with that hash, from slot at on, and
// the slot to go on from. When there is none number is -1, and the slot is the
// one that insert needs.
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

// touch brings the first slots of some hashes into the cache, all at a time: in
// a table larger than the cache that is most of the work, and a processor waits
// for many such loads as long as for one.
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
