package engine

import (
	"testing"
	"time"
)

// TestWhichClocksAreBelieved takes one process through a row of looks.
func TestWhichClocksAreBelieved(t *testing.T) {
	type step struct {
		ran, ledger, node time.Duration // the latter two beside the true time; node: of a server only
		doubted           bool
	}
	for _, c := range []struct {
		name   string
		idle   time.Duration // since the last sweep, when the process began
		server bool
		steps  []step
	}{
		{"both run", 0, false, []step{{}, {ran: time.Minute}, {ran: 90 * day}}},
		{"a pause of less than an hour", 0, false, []step{{}, {ran: time.Minute, ledger: jumpMax}}},
		{"a jump while a process runs", 0, false, []step{{},
			{ran: time.Minute, ledger: jumpMax + time.Second, doubted: true}}},
		{"a jump of many small ones", 0, false, []step{{}, {ledger: 20 * time.Minute}, {ledger: 40 * time.Minute},
			{ledger: 65 * time.Minute}, {ledger: 126 * time.Minute, doubted: true}}},
		{"a jump that is mended", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true}, {ran: 2}}},
		{"a jump that stands for a day is true", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true},
			{ran: day, ledger: 40 * day, doubted: true}, {ran: day + 1, ledger: 40 * day}, {ran: day + 2, ledger: 40 * day}}},
		{"a second jump waits anew", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true},
			{ran: day + 1, ledger: 80 * day, doubted: true}, {ran: 2 * day, ledger: 80 * day, doubted: true},
			{ran: 2*day + 1, ledger: 80 * day}}},
		{"a jump that comes and goes waits anew", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true}, {ran: 2},
			{ran: day + 1, ledger: 40 * day, doubted: true}}},
		{"a clock that goes back, and is right again", 0, false, []step{{}, {ran: time.Minute, ledger: -9 * day},
			{ran: 2 * time.Minute}, {ran: 3 * time.Minute, ledger: 2 * jumpMax, doubted: true}}},
		{"a night without nodes", day, false, []step{{}}},
		{"a long standstill", 40 * day, false, []step{
			{doubted: true}, {ran: day - 1, doubted: true}, {ran: day}, {ran: day + 1}}},
		{"a server whose clock is near", 0, true, []step{{ledger: apartMax}, {ledger: -apartMax}, {node: apartMax}}},
		{"a server ahead of the node", 0, true, []step{{ledger: apartMax + 1, doubted: true}, {}}},
		{"a server behind the node", 0, true, []step{{node: apartMax + 1, doubted: true}, {}}},
		{"a server that stays ahead is never believed", 0, true, []step{{ledger: 40 * day, doubted: true},
			{ran: 3 * day, ledger: 40 * day, doubted: true}}},
		{"both jump", 0, true, []step{{}, {ran: 1, ledger: 40 * day, node: 40 * day, doubted: true},
			{ran: day + 1, ledger: 40 * day, node: 40 * day}}},
		{"both jump, and then the server alone", 0, true, []step{{},
			{ran: 1, ledger: 40 * day, node: 40 * day, doubted: true},
			{ran: day, ledger: 40 * day, doubted: true}, {ran: day + 1, ledger: 40 * day, node: 40 * day, doubted: true}}},
	} {
		began := time.UnixMilli(1_700_000_000_000)
		watch := newClockWatch()
		for i, s := range c.steps {
			l := clockReading{ledger: began.Add(s.ran + s.ledger), swept: began.Add(-c.idle), ran: s.ran}
			if c.server {
				l.node = began.Add(s.ran + s.node)
			}
			if why := watch.doubt(l); (why != "") != s.doubted {
				t.Errorf("%s, step %d: doubted because %q, want %v", c.name, i+1, why, s.doubted)
				break
			}
		}
	}
}

const day = 24 * time.Hour
