package cluster

import (
	"encoding/binary"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Owner returns the process of a view that owns a key: the one with the highest score (rendezvous hashing). So a
// member that joins or leaves moves only its own keys. A score depends on the node, not the process, so a restarted
// node owns the same keys. If the view is empty, Owner returns the zero UUID.
func Owner(view []ledger.Incarnation, key string) uuid.UUID { return ownerOf(view, Hash(key)) }

// ownerOf is Owner of a hashed key.
func ownerOf(view []ledger.Incarnation, hashed uint64) uuid.UUID {
	best, owner := uint64(0), uuid.Nil
	for _, p := range view {
		if score := Score(hashed, p.Node); owner == uuid.Nil || score > best {
			best, owner = score, p.Session
		}
	}
	return owner
}

// Score is the score of a node for a hashed key.
func Score(key uint64, node uuid.UUID) uint64 {
	return mix(key ^ mix(binary.BigEndian.Uint64(node[:8])^binary.BigEndian.Uint64(node[8:])))
}

// Hash is the short form of a key, for lists: FNV-1a with a final mix, because FNV-1a alone is skewed for similar
// strings. If two keys have the same hash, one may have to wait for the other's reason.
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix is the finalizer of MurmurHash3.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
