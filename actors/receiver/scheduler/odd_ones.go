package scheduler

import (
	"hash/maphash"
	"math"

	"rollcall/actors/wire"
)

// oddOne is what a hash is made of.
type oddOne struct {
	task    wire.TaskKey
	ordinal uint32
}

// rememberedMost bounds the addresses that are remembered as odd, in each of two halves.
// Guess: 1 MB at a busy receiver; who is forgotten counts as new once more.
const rememberedMost = 16_384

// oddOnes remembers which addresses of which verifications were found to be odd: when they are asked
// again, that says nothing about anybody else. It keeps hashes. The zero value is ready.
type oddOnes struct {
	seed       maphash.Seed
	seeded     bool
	newer, old map[uint64]struct{}
}

func (f *oddOnes) hash(p *Probe) uint64 {
	if !f.seeded {
		f.seed, f.seeded = maphash.MakeSeed(), true
	}
	return maphash.Comparable(f.seed, oddOne{p.chunk.task.key, p.ordinal})
}

func (f *oddOnes) add(p *Probe) {
	if p.ordinal == math.MaxUint32 { // a control probe, for another address each time
		return
	}
	if f.newer == nil {
		f.newer = map[uint64]struct{}{}
	}
	f.newer[f.hash(p)] = struct{}{}
	if len(f.newer) >= rememberedMost {
		f.old, f.newer = f.newer, nil
	}
}

func (f *oddOnes) has(p *Probe) bool {
	h := f.hash(p)
	_, newer := f.newer[h]
	_, old := f.old[h]
	return newer || old
}
