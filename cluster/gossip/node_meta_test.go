package gossip

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/memberlist"
)

// fullCard has the longest value in every field.
func fullCard() NodeMeta {
	return NodeMeta{Session: uuid.Max, Node: uuid.Max, Ledger: uuid.Max, Name: strings.Repeat("n", nameMax),
		Actors: strings.Repeat("h", 253) + ":65535", Version: strings.Repeat("v", versionMax), Wire: math.MaxInt32,
		Started: math.MaxInt64, Draining: true}
}

func TestTheLongestCardFits(t *testing.T) {
	c := fullCard()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	b := c.encode()
	if len(b) > memberlist.MetaMaxSize {
		t.Errorf("the longest card has %d bytes, the library takes %d", len(b), memberlist.MetaMaxSize)
	}
	if got, err := decodeNodeMeta(b); err != nil || got != c {
		t.Errorf("got %+v, %v, want %+v", got, err, c)
	}
}

func TestACardIsReadOrRefused(t *testing.T) {
	c := options(t, "node-a").Self
	b := c.encode()
	if got, err := decodeNodeMeta(append(slices.Clone(b), "of a later version"...)); err != nil || got != c {
		t.Errorf("with more at its end: got %+v, %v, want %+v", got, err, c)
	}
	for n := range b {
		if _, err := decodeNodeMeta(b[:n]); !errors.Is(err, errNodeMeta) {
			t.Errorf("the first %d of %d bytes: got %v, want errCard", n, len(b), err)
		}
	}
	other := slices.Clone(b)
	other[0]++
	if _, err := decodeNodeMeta(other); !errors.Is(err, errNodeMeta) {
		t.Errorf("another format: got %v, want errCard", err)
	}
	long := c
	long.Name = strings.Repeat("n", nameMax+1)
	if _, err := decodeNodeMeta(long.encode()); !errors.Is(err, errNodeMeta) {
		t.Errorf("a long name: got %v, want errCard", err)
	}
	if got := c.StartedAt(); time.Since(got) > time.Hour {
		t.Errorf("started at %s", got)
	}
}

func TestANodeIsCheckedByItsCardAndProtocol(t *testing.T) {
	self := options(t, "node-a").Self
	for _, c := range []struct {
		name   string
		change func(*NodeMeta, *memberlist.Node)
		want   string
	}{
		{"one of us", func(*NodeMeta, *memberlist.Node) {}, ""},
		{"another program", func(c *NodeMeta, _ *memberlist.Node) { c.Version = "v9" }, ""},
		{"another ledger", func(c *NodeMeta, _ *memberlist.Node) { c.Ledger = uuid.New() }, "ledger"},
		{"another wire version", func(c *NodeMeta, _ *memberlist.Node) { c.Wire++ }, "wire"},
		{"another's name", func(_ *NodeMeta, n *memberlist.Node) { n.Name = self.Session.String() }, "card"},
		{"only newer protocols", func(_ *NodeMeta, n *memberlist.Node) { n.PMin = 3 }, "protocol"},
		{"only older protocols", func(_ *NodeMeta, n *memberlist.Node) { n.PMax = 1 }, "protocol"},
		{"another protocol", func(_ *NodeMeta, n *memberlist.Node) { n.PCur = 5 }, "protocol"},
		{"a protocol of its own", func(_ *NodeMeta, n *memberlist.Node) { n.DMin = 1 }, "protocol"},
	} {
		card := options(t, "node-b").Self
		n := &memberlist.Node{Name: card.Session.String(), PMin: 1, PMax: 5, PCur: 2}
		c.change(&card, n)
		n.Meta = card.encode()
		got := ""
		if r := check(n, self); r != nil {
			got = r.what
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if r := check(&memberlist.Node{Meta: bytes.Repeat([]byte{'{'}, 100)}, self); r == nil || r.what != "card" {
		t.Errorf("no card: got %v", r)
	}
}
