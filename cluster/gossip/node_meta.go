package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/memberlist"
)

// Bounds of the texts in a NodeMeta, in bytes. With these bounds the longest NodeMeta has 502 bytes; the library
// accepts 512 (memberlist.MetaMaxSize).
const (
	nameMax    = 128         // names of nodes are shorter than those of hosts (253)
	actorsMax  = 253 + 1 + 5 // a host name (RFC 1035 §2.3.4), a colon and a port
	versionMax = 48
)

// nodeMetaFormat is the first byte of an encoded NodeMeta. New fields go to the end, where older programs ignore
// them. A new format is only for metadata that older programs must not read.
const nodeMetaFormat = 1

// nodeMetaDraining is the bit of the flags for Draining.
const nodeMetaDraining = 1

// NodeMeta is what a process tells all members about itself.
type NodeMeta struct {
	Session uuid.UUID // of this process; members know it by this
	Node    uuid.UUID // the same after restarts
	Ledger  uuid.UUID // identity of its ledger; members on another ledger are refused
	Name    string    // certificate name, or host name without TLS; at most 128 bytes
	Actors  string    // host:port of its actor traffic, at most 259 bytes
	Version string    // of the program, at most 48 bytes; may differ between members
	Wire    int       // version of the messages between nodes, from 0; members with another version are refused
	Started int64     // when the process began, Unix time in milliseconds by its own clock
	// Draining: the process gives its work away and takes no new work.
	Draining bool
}

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

// encode writes the metadata, which Validate accepted.
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

var errNodeMeta = errors.New("its metadata can't be read: it is not a rollcall node, or has an incompatible version")

// decodeNodeMeta reads what encode wrote, and ignores what later versions add at the end.
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

// membersMax bounds the members, because somebody with a key could invent any number of them. Real clusters have
// tens. Guess.
const membersMax = 1024

// vanishedMax and vanishedKeep bound how many vanished members are remembered, and for how long; members that drained
// are not. Behind a partition there may be many, for a while.
const (
	vanishedMax  = 1000
	vanishedKeep = time.Hour
)

// States of a member, as labels of a metric.
const (
	stateAlive    = "alive"
	stateSuspect  = "suspect"
	stateDraining = "draining"
)

// Member is a process that, by gossip, is alive or suspect.
type Member struct {
	NodeMeta
	Address string    // host:port of its gossip
	Suspect bool      // this node's pings go unanswered; it soon stops being a member unless it answers
	Since   time.Time // when this node first saw it as a member, by this node's clock
}

// younger reports which of two processes that claim the same began later. If the times are equal, the session
// decides, so that all members agree.
func (m *Member) younger(other *Member) bool {
	if m.Started != other.Started {
		return m.Started > other.Started
	}
	return bytes.Compare(m.Session[:], other.Session[:]) > 0
}

// table is the members that the library reported. The library's own list can't be read without a race, because it
// returns pointers to memory that it changes. The methods of table are called with the library's lock held, so they
// never call the library. Safe for concurrent use.
type table struct {
	signal func() // called after every change, must not block

	mu       sync.Mutex
	members  map[uuid.UUID]*Member // guarded by mu; by session
	vanished map[string]time.Time  // guarded by mu; when, by address
	refused  map[uuid.UUID]bool    // guarded by mu; refused sessions, see Gossip.Refuse
}

func newTable(signal func()) *table {
	return &table{signal: signal, members: map[uuid.UUID]*Member{}, vanished: map[string]time.Time{},
		refused: map[uuid.UUID]bool{}}
}

// put adds a node that has joined, is back or has new metadata.
func (t *table) put(n *memberlist.Node, now time.Time) {
	card, err := decodeNodeMeta(n.Meta)
	if err != nil {
		return // NotifyAlive has refused it
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refused[card.Session] {
		return
	}
	since := now
	if old := t.members[card.Session]; old != nil {
		since = old.Since
	}
	address := n.Address()
	t.members[card.Session] = &Member{NodeMeta: card, Address: address, Since: since}
	delete(t.vanished, address)
	t.signal()
}

// drop removes a node that is dead or has left.
func (t *table) drop(n *memberlist.Node, now time.Time) {
	session, err := uuid.Parse(n.Name)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[session]
	if m == nil {
		return
	}
	delete(t.members, session)
	if !m.Draining {
		t.remember(m.Address, now)
	}
	t.signal()
}

// refuse removes a session for good and returns the removed member; nil: it was no member. A restarted process has
// another session.
func (t *table) refuse(session uuid.UUID) *Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[session]
	if m == nil {
		return nil
	}
	if len(t.refused) >= membersMax {
		clear(t.refused)
	}
	t.refused[session] = true
	delete(t.members, session)
	t.signal()
	return m
}

// remember keeps the address of a vanished member for a while; mu is held.
func (t *table) remember(address string, now time.Time) {
	maps.DeleteFunc(t.vanished, func(_ string, at time.Time) bool { return now.Sub(at) > vanishedKeep })
	if len(t.vanished) >= vanishedMax {
		oldest := ""
		for a, at := range t.vanished {
			if oldest == "" || at.Before(t.vanished[oldest]) {
				oldest = a
			}
		}
		delete(t.vanished, oldest)
	}
	t.vanished[address] = now
}

// lost returns the addresses of members that vanished less than vanishedKeep ago, before now.
func (t *table) lost(now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.vanished, func(_ string, at time.Time) bool { return now.Sub(at) > vanishedKeep })
	return slices.Sorted(maps.Keys(t.vanished))
}

// mark notes whether a member answers pings.
func (t *table) mark(name string, suspect bool) {
	session, err := uuid.Parse(name)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[session]; m != nil && m.Suspect != suspect {
		m.Suspect = suspect
		t.signal()
	}
}

// takes reports whether a session was refused before, and whether there is room for it.
func (t *table) takes(session uuid.UUID) (refused, room bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused[session], t.members[session] != nil || len(t.members) < membersMax
}

func (t *table) addresses() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	set := make(map[string]bool, len(t.members))
	for _, m := range t.members {
		set[m.Address] = true
	}
	return set
}

// view returns the members as Gossip.Members does, and the process that has taken the place of self, or nil.
func (t *table) view(self uuid.UUID) (members []Member, by *Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes, actors := map[uuid.UUID]*Member{}, map[string]*Member{}
	for _, m := range t.members {
		if old := nodes[m.Node]; old == nil || m.younger(old) {
			nodes[m.Node] = m
		}
		if old := actors[m.Actors]; old == nil || m.younger(old) {
			actors[m.Actors] = m
		}
	}
	for _, m := range t.members {
		young := nodes[m.Node]
		if young == m {
			young = actors[m.Actors]
		}
		switch {
		case young == m:
			members = append(members, *m)
		case m.Session == self:
			by = new(*young)
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return bytes.Compare(a.Session[:], b.Session[:]) })
	return members, by
}

func (t *table) count(state string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.members {
		is := stateAlive
		switch {
		case m.Suspect:
			is = stateSuspect
		case m.Draining:
			is = stateDraining
		}
		if is == state {
			n++
		}
	}
	return n
}
