package gossip

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/memberlist"

	"rollcall/config/effort"
)

// fullMeta has the longest value in every field.
func fullMeta() NodeMeta {
	return NodeMeta{Session: uuid.Max, Node: uuid.Max, Ledger: uuid.Max, Name: strings.Repeat("n", nameMax),
		Actors: strings.Repeat("h", 253) + ":65535", Version: strings.Repeat("v", versionMax), Wire: math.MaxInt32,
		Started: math.MaxInt64, Draining: true}
}

func TestTheLongestNodeMetaFits(t *testing.T) {
	c := fullMeta()
	effort.OK(t, c.Validate())
	b := c.encode()
	effort.ErrorIf(t, len(b) > memberlist.MetaMaxSize,
		"the longest card has %d bytes, the library takes %d", len(b), memberlist.MetaMaxSize)
	effort.Is(t, effort.Must(decodeNodeMeta(b))(t), c)
}

func TestACardIsReadOrRefused(t *testing.T) {
	c := options(t, "node-a").Self
	b := c.encode()
	effort.Is(t, effort.Must(decodeNodeMeta(append(slices.Clone(b), "of a later version"...)))(t), c,
		"with more at its end")
	for n := range b {
		effort.Denied(decodeNodeMeta(b[:n]))(t, errNodeMeta, fmt.Sprintf("the first %d of %d bytes", n, len(b)))
	}
	other := slices.Clone(b)
	other[0]++
	effort.Denied(decodeNodeMeta(other))(t, errNodeMeta, "another format")
	long := c
	long.Name = strings.Repeat("n", nameMax+1)
	effort.Denied(decodeNodeMeta(long.encode()))(t, errNodeMeta, "a long name")
	got := time.UnixMilli(c.Started)
	effort.ErrorIf(t, time.Since(got) > time.Hour, "started at %s", got)
}

func TestANodeIsCheckedByItsMetaAndProtocol(t *testing.T) {
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
		effort.Is(t, got, c.want, c.name)
	}
	r := check(&memberlist.Node{Meta: bytes.Repeat([]byte{'{'}, 100)}, self)
	effort.ErrorIf(t, r == nil || r.what != "card", "no card: got %v", r)
}

// listed makes a node as the library gives it.
func listed(c NodeMeta, port uint16) *memberlist.Node {
	return &memberlist.Node{Name: c.Session.String(), Addr: net.IPv4(10, 7, 0, 1), Port: port, Meta: c.encode()}
}

func TestOnlyTheYoungestOfWhatCannotBeTwiceIsSeen(t *testing.T) {
	node := func(n, address byte, started int64, session byte) NodeMeta {
		return NodeMeta{Node: uuid.UUID{n}, Ledger: ledgerID, Session: uuid.UUID{session}, Started: started,
			Name: string(rune('a' + session)), Actors: fmt.Sprintf("host:%d", address)}
	}
	for _, c := range []struct {
		name  string
		cards []NodeMeta
		want  string // names of those seen
		by    string // which process hides the first; "" is none
	}{
		{"strangers", []NodeMeta{node(1, 1, 5, 1), node(2, 2, 5, 2)}, "bc", ""},
		{"a restarted process", []NodeMeta{node(1, 1, 5, 1), node(1, 1, 6, 2)}, "c", "c"},
		{"seen by the younger", []NodeMeta{node(1, 1, 6, 2), node(1, 1, 5, 1)}, "c", ""},
		{"at another address", []NodeMeta{node(1, 1, 5, 1), node(1, 2, 6, 2)}, "c", "c"},
		{"another node at the address", []NodeMeta{node(1, 1, 5, 1), node(2, 1, 6, 2)}, "c", "c"},
		{"started together", []NodeMeta{node(1, 1, 5, 1), node(1, 1, 5, 2)}, "c", "c"},
		{"hidden by one who is hidden", []NodeMeta{node(1, 1, 5, 1), node(1, 2, 6, 2), node(2, 2, 7, 3)}, "d", "c"},
	} {
		table := newTable(func() {})
		for i, card := range c.cards {
			table.put(listed(card, uint16(i)), time.Now())
		}
		members, by := table.view(c.cards[0].Session)
		got, gotBy := "", ""
		for _, m := range members {
			got += m.Name
		}
		if by != nil {
			gotBy = by.Name
		}
		effort.Is(t, got, c.want, c.name)
		effort.Is(t, gotBy, c.by, c.name)
	}
}

func TestWhoVanishedIsRememberedForAnHour(t *testing.T) {
	table := newTable(func() {})
	start := time.Unix(1_000_000, 0)
	at := func(i int) time.Time { return start.Add(time.Duration(i) * time.Second) }
	card := fullMeta()
	for i := range vanishedMax + 5 {
		n := listed(card, uint16(i+1))
		table.put(n, at(i))
		table.drop(n, at(i))
		table.drop(n, at(i)) // the member is gone already
	}
	effort.Is(t, len(table.lost(at(0))), 0, "nodes that drained are remembered")
	card.Draining = false
	for i := range vanishedMax + 5 {
		n := listed(card, uint16(i+1))
		table.put(n, at(i))
		table.drop(n, at(i))
	}
	lost := table.lost(at(vanishedMax))
	effort.Is(t, len(lost), vanishedMax)
	for _, oldest := range []string{"10.7.0.1:1", "10.7.0.1:5"} {
		for _, a := range lost {
			effort.Not(t, a, oldest, "the oldest is still there")
		}
	}
	table.put(listed(card, 700), at(vanishedMax)) // is back
	effort.Is(t, len(table.lost(at(vanishedMax))), vanishedMax-1, "are remembered after one came back")
	effort.Is(t, len(table.lost(at(vanishedMax+5).Add(vanishedKeep))), 0, "remembered after an hour")
}

func TestTheTableTellsChangesAndKeepsSince(t *testing.T) {
	told := 0
	table := newTable(func() { told++ })
	c := fullMeta()
	c.Draining = false
	start := time.Unix(1_000_000, 0)
	table.put(listed(c, 1), start)
	table.mark(c.Session.String(), true)
	table.mark(c.Session.String(), true) // no change
	got := table.count(stateSuspect)
	effort.ErrorIf(t, got != 1 || told != 2, "%d are suspect, %d changes told; want 1 and 2", got, told)
	c.Draining = true
	table.put(listed(c, 1), start.Add(time.Hour))
	members, _ := table.view(uuid.Nil)
	if m := members[0]; !m.Since.Equal(start) || m.Suspect || !m.Draining || told != 3 {
		t.Errorf("got %+v after %d changes; want since the start, draining, not suspect, 3", m, told)
	}
	table.put(&memberlist.Node{Name: "x", Meta: []byte("x")}, start)
	table.drop(&memberlist.Node{Name: "x"}, start)
	table.mark("x", true)
	effort.ErrorIf(t, len(members) != 1 || told != 3 || table.count(stateDraining) != 1,
		"what has no card made a difference: %d changes", told)
}

func TestTheLibrarysLogIsShortAndWithoutContents(t *testing.T) {
	page, log := newPage(t)
	var suspect string
	l := library{log, newLogLimiter(log), func(session string) { suspect = session }}
	for _, line := range []string{
		"[DEBUG] memberlist: Stream connection from=10.7.0.2:1\n",
		"[WARN] memberlist: Refuting an alive message for 'x' (10.7.0.1:1) meta:([115 101 99] VS [114]), vsn:(1)\n",
		"[INFO] memberlist: Suspect 1234 has failed, no acks received\n",
		"[ERR] memberlist: Push/Pull with a failed: " + strings.Repeat("x", 1000) + "\n",
		"[ERR] memberlist: Push/Pull with b failed: refused\n",
	} {
		effort.Is(t, effort.Must(l.Write([]byte(line)))(t), len(line), "wrote", line)
	}
	effort.Is(t, suspect, "1234", "suspect is")
	text := page.String()
	effort.Lacks(t, text, "115", "too much is told")
	effort.Lacks(t, text, strings.Repeat("x", libraryTextMax+1), "too much is told")
	if got := strings.Count(text, "level=WARN"); got != 2 || strings.Contains(text, "memberlist") {
		t.Errorf("%d warnings, want 2 (the second failure is like the first): %s", got, text)
	}
}

func TestNoticesComeOnceAMinute(t *testing.T) {
	_, log := newPage(t)
	n := newLogLimiter(log)
	start := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		key   string
		after time.Duration
		want  bool
	}{
		{"a", 0, true}, {"a", time.Second, false}, {"b", time.Second, true}, {"a", noticeEvery - 1, false},
		{"a", noticeEvery, true}, {"a", noticeEvery + time.Second, false},
	} {
		effort.Is(t, n.due(c.key, start.Add(c.after)), c.want, fmt.Sprintf("%s after %s", c.key, c.after))
	}
	for i := range 10 * loggedMax {
		n.due(fmt.Sprint(i), start)
	}
	effort.ErrorIf(t, len(n.said) > loggedMax, "%d keys are kept, want at most %d", len(n.said), loggedMax)
}
