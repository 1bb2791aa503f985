package ledgertest

import (
	"slices"
	"sync"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// racingProcesses publish at once; a cluster does so when a member dies.
const (
	racingProcesses = 16
	racingViews     = 12 // that each of them publishes
)

// publication is a view that its process saw in the ledger, and its turn.
type publication struct {
	process ledger.Incarnation
	turn    int64
	view    []ledger.Incarnation
}

// raceViews: many processes publish and beat at once. Turns are taken once each,
// and whoever has read a roll of a turn has read every publication up to it, and
// none after it.
func raceViews(d *Desk) {
	var mu sync.Mutex
	var published []publication
	var rolls []ledger.NodeSnapshot
	racing(racingProcesses, func(i int) {
		self := life(uuid.Nil)
		for n := range racingViews {
			b := heartbeatOf(self, life(uuid.Nil))
			for range 2 { // the second says nothing new
				roll, err := d.WriteHeartbeat(d.T.Context(), b)
				if err != nil {
					d.T.Errorf("process %d, view %d: %v", i, n, err)
					return
				}
				row := rowOf(roll, self.Session)
				if row == nil || !slices.Equal(row.View, b.View) {
					d.T.Errorf("process %d, view %d: its row is %+v", i, n, row)
					return
				}
				mu.Lock()
				rolls = append(rolls, roll)
				published = append(published, publication{self, row.Generation, b.View})
				mu.Unlock()
			}
		}
	})
	if d.T.Failed() {
		return
	}
	turns := map[int64]uuid.UUID{}
	for _, p := range published {
		if other, taken := turns[p.turn]; taken && other != p.process.Session {
			d.T.Errorf("turn %d is of two processes", p.turn)
		}
		turns[p.turn] = p.process.Session
	}
	roll, err := d.ReadNodes(d.T.Context())
	d.ok(err)
	if want := racingProcesses * racingViews; len(turns) != want || roll.Generation != int64(want) {
		d.T.Errorf("%d turns for %d publications, the last %d", len(turns), want, roll.Generation)
	}
	for _, r := range rolls {
		d.holds(r, published)
	}
}

// rowOf returns the row of a session; nil when there is none.
func rowOf(roll ledger.NodeSnapshot, session uuid.UUID) *ledger.NodeRow {
	for i := range roll.Nodes {
		if roll.Nodes[i].Session == session {
			return &roll.Nodes[i]
		}
	}
	return nil
}

// holds fails the test unless a roll is one moment of all that was published.
func (d *Desk) holds(roll ledger.NodeSnapshot, published []publication) {
	d.T.Helper()
	for _, p := range published {
		row := rowOf(roll, p.process.Session)
		switch {
		case p.turn > roll.Generation:
			continue
		case row == nil || row.Generation < p.turn:
			d.T.Errorf("a roll of turn %d without the publication of turn %d", roll.Generation, p.turn)
		case row.Generation == p.turn && !slices.Equal(row.View, p.view):
			d.T.Errorf("a roll of turn %d has another view for turn %d", roll.Generation, p.turn)
		}
	}
	for _, row := range roll.Nodes {
		if row.Generation > roll.Generation {
			d.T.Errorf("a roll of turn %d with a publication of turn %d", roll.Generation, row.Generation)
		}
	}
}

// raceRetire: many processes count out the same one at once, which is one turn; and
// one that beats meanwhile is in or begins anew, but never in and counted out.
func raceRetire(d *Desk) {
	gone := heartbeatOf(life(d.Node))
	others := make([]ledger.Heartbeat, racingProcesses)
	for i := range others {
		others[i] = heartbeatOf(life(uuid.Nil))
		d.Beats(others[i])
	}
	_, before := d.Beats(gone)
	racing(racingProcesses, func(i int) {
		if err := d.Retire(d.T.Context(), gone.Session, 0, i%2 == 0); err != nil {
			d.T.Errorf("retire: %v", err)
		}
		if _, err := d.WriteHeartbeat(d.T.Context(), others[i]); err != nil {
			d.T.Errorf("beat: %v", err)
		}
	})
	row := d.row(gone.Session)
	if row.Status != ledger.NodeLost || !row.Dead || row.Generation != before.Generation+1 {
		d.T.Errorf("got %+v after turn %d", row, before.Generation)
	}
}

// raceFacts: nodes that learn the same in another order do not stop each other.
func raceFacts(d *Desk) {
	var keys []string
	var all []ledger.Fact
	for range 40 {
		f := ledger.Fact{Key: uuid.NewString(), Data: []byte("x"), Expires: inAnHour()}
		keys, all = append(keys, f.Key), append(all, f)
	}
	racing(racingProcesses, func(i int) {
		mine := slices.Clone(all)
		if i%2 == 0 {
			slices.Reverse(mine)
		}
		if err := d.Learn(d.T.Context(), mine); err != nil {
			d.T.Errorf("learn: %v", err)
		}
	})
	d.knows(keys, all...)
}
