package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/memberlist"
)

// Bounds of a card's texts, in bytes. With them the longest card has 502 bytes, and
// the library takes 512 (memberlist.MetaMaxSize).
const (
	nameMax    = 128         // names of nodes are shorter than those of hosts (253)
	actorsMax  = 253 + 1 + 5 // a host name (RFC 1035 §2.3.4), a colon and a port
	versionMax = 48
)

// nodeMetaFormat is the first byte of a card. Later fields are added at its end, where
// older programs don't look; another format is for cards that older ones must not read.
const nodeMetaFormat = 1

// nodeMetaDraining is the bit of a card's flags that says Draining.
const nodeMetaDraining = 1

// NodeMeta is what a process says of itself to all members.
type NodeMeta struct {
	Session uuid.UUID // of this life of the process; its name among the members
	Node    uuid.UUID // the same over restarts
	Ledger  uuid.UUID // which ledger it works on; members of another one are refused
	Name    string    // certificate name, or host name without TLS; at most 128 bytes
	Actors  string    // host:port of its actor traffic, at most 259 bytes
	Version string    // of the program, at most 48 bytes; may differ between members
	Wire    int       // version of the messages between nodes, from 0; members of another one are refused
	Started int64     // when the process began, Unix time in milliseconds by its own clock
	// Draining says that it finishes its work and takes no new.
	Draining bool
}

// StartedAt is Started as a time.
func (c NodeMeta) StartedAt() time.Time { return time.UnixMilli(c.Started) }

// Validate says what is missing or too long.
func (c NodeMeta) Validate() error {
	switch {
	case c.Session == uuid.Nil || c.Node == uuid.Nil || c.Ledger == uuid.Nil:
		return errors.New("session, node or ledger is not set")
	case c.Name == "" || len(c.Name) > nameMax:
		return fmt.Errorf("name has %d bytes: from 1 to %d", len(c.Name), nameMax)
	case len(c.Actors) > actorsMax:
		return fmt.Errorf("actor address has %d bytes: at most %d", len(c.Actors), actorsMax)
	case len(c.Version) > versionMax:
		return fmt.Errorf("version has %d bytes: at most %d", len(c.Version), versionMax)
	case c.Wire < 0 || c.Wire > 1<<31-1:
		return fmt.Errorf("wire version %d is out of range", c.Wire)
	}
	if _, _, err := net.SplitHostPort(c.Actors); err != nil {
		return fmt.Errorf("actor address: %w", err)
	}
	return nil
}

// encode writes the card; Validate has passed.
func (c NodeMeta) encode() []byte {
	b := make([]byte, 0, memberlist.MetaMaxSize)
	b = append(b, nodeMetaFormat)
	b = append(b, c.Session[:]...)
	b = append(b, c.Node[:]...)
	b = append(b, c.Ledger[:]...)
	var flags byte
	if c.Draining {
		flags |= nodeMetaDraining
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Started))
	b = binary.AppendUvarint(b, uint64(c.Wire))
	for _, text := range []string{c.Name, c.Actors, c.Version} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return b
}

// errNodeMeta is why a card cannot be read.
var errNodeMeta = errors.New("its card cannot be read: it is no rollcall node, or one of an incompatible version")

// decodeNodeMeta reads what encode wrote, and what later versions add at the end.
func decodeNodeMeta(b []byte) (NodeMeta, error) {
	var c NodeMeta
	if len(b) < 1+3*16+1+8 || b[0] != nodeMetaFormat {
		return NodeMeta{}, errNodeMeta
	}
	b = b[1:]
	for _, id := range []*uuid.UUID{&c.Session, &c.Node, &c.Ledger} {
		copy(id[:], b)
		b = b[16:]
	}
	c.Draining = b[0]&nodeMetaDraining != 0
	c.Started = int64(binary.BigEndian.Uint64(b[1:]))
	b = b[9:]
	wire, n := binary.Uvarint(b)
	if n <= 0 || wire > 1<<31-1 {
		return NodeMeta{}, errNodeMeta
	}
	c.Wire, b = int(wire), b[n:]
	for _, text := range []*string{&c.Name, &c.Actors, &c.Version} {
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return NodeMeta{}, errNodeMeta
		}
		*text = string(b[n : n+int(length)])
		b = b[n+int(length):]
	}
	if c.Validate() != nil {
		return NodeMeta{}, errNodeMeta
	}
	return c, nil
}
