package cluster

import (
	"testing"

	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/ledger"
)

// meta is the card of a process with a session of one byte.
func card(session byte) gossip.NodeMeta {
	return gossip.NodeMeta{Session: uuid.UUID{session}, Node: uuid.UUID{session, 1},
		Actors: string('a'+rune(session)) + ":1"}
}

func TestWhomANodeCountsOn(t *testing.T) {
	all := func(uuid.UUID) bool { return true }
	none := func(uuid.UUID) bool { return false }
	row := func(session byte, s ledger.NodeStatus) ledger.NodeRow {
		self := ledger.Incarnation{Session: uuid.UUID{session}}
		return ledger.NodeRow{Status: s, Heartbeat: ledger.Heartbeat{Incarnation: self, View: []ledger.Incarnation{self}}}
	}
	unfit := row(2, ledger.NodeIn)
	unfit.View = []ledger.Incarnation{{Session: uuid.UUID{9}}}
	drains := gossip.Member{NodeMeta: card(2)}
	drains.Draining = true
	for _, c := range []struct {
		name    string
		members []gossip.Member
		rows    []ledger.NodeRow
		linked  func(uuid.UUID) bool
		away    bool
		want    []byte // sessions
	}{
		{"itself, before gossip sees even that", nil, nil, all, false, []byte{5}},
		{"itself once", []gossip.Member{{NodeMeta: card(5)}},
			[]ledger.NodeRow{row(5, ledger.NodeIn)}, none, false, []byte{5}},
		{"by session", []gossip.Member{{NodeMeta: card(9)}, {NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeIn), row(9, ledger.NodeIn)}, all, false, []byte{2, 5, 9}},
		{"one that is suspect", []gossip.Member{{NodeMeta: card(2), Suspect: true}},
			[]ledger.NodeRow{row(2, ledger.NodeIn)}, all, false, []byte{2, 5}},
		{"not one that does not answer", []gossip.Member{{NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeIn)}, none, false, []byte{5}},
		{"not one that the ledger does not know", []gossip.Member{{NodeMeta: card(2)}}, nil, all, false, []byte{5}},
		{"not one that left", []gossip.Member{{NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeLeft)}, all, false, []byte{5}},
		{"not one that was lost", []gossip.Member{{NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeLost)}, all, false, []byte{5}},
		{"not one that gossip does not see", nil, []ledger.NodeRow{row(2, ledger.NodeIn)}, all, false, []byte{5}},
		{"not one that drains", []gossip.Member{drains},
			[]ledger.NodeRow{row(2, ledger.NodeIn)}, all, false, []byte{5}},
		{"not one that does not count on itself", []gossip.Member{{NodeMeta: card(9)}, {NodeMeta: card(2)}},
			[]ledger.NodeRow{unfit, row(9, ledger.NodeIn)}, all, false, []byte{5, 9}},
		{"not itself when it drains or is not fit", []gossip.Member{{NodeMeta: card(2)}},
			[]ledger.NodeRow{row(2, ledger.NodeIn)}, all, true, []byte{2}},
		{"nobody", nil, nil, all, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewInputs{self: card(5), members: c.members, linked: c.linked, snapshot: ledger.NodeSnapshot{Nodes: c.rows},
				away: c.away}.computeView()
			var got []byte
			for _, p := range v.members {
				got = append(got, p.Session[0])
				if want := card(p.Session[0]); p.Node != want.Node || v.addresses[p.Session] != want.Actors {
					t.Errorf("process %v is at %q, want %v", p, v.addresses[p.Session], want)
				}
			}
			if string(got) != string(c.want) {
				t.Errorf("got sessions %v, want %v", got, c.want)
			}
			if owner := v.owner("example.net"); (owner == "") != (len(c.want) == 0) {
				t.Errorf("the owner is %q with %d members", owner, len(c.want))
			}
		})
	}
}
