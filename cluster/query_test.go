package cluster

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/cluster/gossip"
	"rollcall/ledger"
)

func TestWhoIsLostIsNamed(t *testing.T) {
	seen := []gossip.NodeMeta{{Session: uuid.UUID{1}, Node: uuid.UUID{1}, Name: "here"}}
	row := func(session, node byte, standing ledger.NodeStatus, dead bool) ledger.NodeRow {
		return ledger.NodeRow{Status: standing, Dead: dead, Heartbeat: ledger.Heartbeat{Name: string('a' + rune(node)),
			Incarnation: ledger.Incarnation{Session: uuid.UUID{session}, Node: uuid.UUID{node}}}}
	}
	rows := []ledger.NodeRow{row(1, 1, ledger.NodeIn, false), row(11, 1, ledger.NodeLost, false),
		row(2, 2, ledger.NodeIn, false), row(3, 3, ledger.NodeLost, false), row(13, 3, ledger.NodeLost, false),
		row(4, 4, ledger.NodeLost, true), row(5, 5, ledger.NodeLeft, false)}
	var names []string
	for _, r := range lostOf(rows, seen) {
		names = append(names, r.Name)
		if r.Err != ErrLost || r.Node == uuid.Nil || r.Body != nil {
			t.Errorf("%+v", r)
		}
	}
	if got := strings.Join(names, " "); got != "c d" {
		t.Errorf("lost are %q, want those in and lost that nobody sees: c d", got)
	}
}
