package ledgertest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// racing runs do n times at once and waits for all.
func racing(n int, do func(i int)) {
	start, done := make(chan struct{}), make(chan struct{})
	for i := range n {
		go func() {
			<-start
			do(i)
			done <- struct{}{}
		}()
	}
	close(start)
	for range n {
		<-done
	}
}

var races = []exercise{
	{"32 creates of one identity make one verification", 0, raceCreates},
	{"32 files race for half the credits they need", 32, raceForCredits},
	{"grants race with each other and with files that wait", 0, raceGrants},
	{"one batch settled by 16 at once counts once", 20, raceSettles},
	{"cancel races with the last settlements", 60, raceCancel},
	{"two nodes never lease the same", 0, raceLeases},
	{"writers of one upload never mix", 0, raceWriters},
	{"a secret made by 16 at once is one", 0, raceSecrets},
	{"views published by 16 at once are seen in their turns", 0, raceViews},
	{"who is counted out by 16 at once is counted out once", 0, raceRetire},
	{"facts learned by 16 at once", 0, raceFacts},
	{"an override set and cleared by 16 at once", 0, raceOverrides},
}

func raceCreates(d *Fixture) {
	racesCreates(d, func(ledger.NewVerification) uuid.UUID { return uuid.New() })
	// A call with the id of another one gets the right answer too.
	racesCreates(d, func(n ledger.NewVerification) uuid.UUID { return n.ID })
}

// racesCreates has each eighth ask with another length: whose length wins is told the same verification, one of them
// that it is new, and the others are refused.
func racesCreates(d *Fixture, id func(n ledger.NewVerification) uuid.UUID) {
	n := d.Asks(7)
	var mu sync.Mutex
	var made []ledger.Verification
	told, refusals := map[uuid.UUID]int{}, 0
	racing(32, func(i int) {
		mine := n
		mine.ID = id(n)
		if i%8 == 7 {
			mine.Bytes++
		}
		v, created, err := d.Create(d.T.Context(), mine)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, ledger.ErrIdentityReused):
			refusals++
		case err != nil:
			d.T.Errorf("create: %v", err)
		default:
			told[v.ID]++
		}
		if created {
			made = append(made, v)
		}
	})
	effort.FatalIf(d.T, len(made) != 1 || len(told) != 1,
		"%d were told that they created it, and all of %d verifications", len(made), len(told))
	want := 4
	if made[0].Bytes != n.Bytes {
		want = 28
	}
	effort.Is(d.T, refusals, want, "were refused for their length")
}

// sound fails the test unless the account is, at this moment.
func sound(d *Fixture, granted ledger.Credits) {
	b, err := d.Balance(d.T.Context(), d.Workspace)
	sums := b.Granted == granted && granted == b.Available+b.Held+b.Spent
	effort.ErrorIf(d.T, err != nil || !sums || min(b.Available, b.Held, b.Spent) < 0,
		"account %+v of %d granted, %v", b, granted, err)
}

// raceForCredits: half of the files are funded. Then all of those return their credits at once, which lets the others
// in.
func raceForCredits(d *Fixture) {
	for range 32 {
		d.Uploads()
	}
	list := effort.Must(d.Lease(d.T.Context(), d.Node, 32, Hour))(d.T)
	racing(32, func(i int) {
		l := ledger.Lease{Verification: list[i].ID, Node: d.Node, Epoch: list[i].Epoch}
		effort.Denied(d.Prepare(d.T.Context(), l, 2, 0, 2))(d.T, nil, "prepare")
		sound(d, 32)
	})
	d.has(32, 0, 32, 0)
	for range 2 {
		_, err := d.Lease(d.T.Context(), d.Node, 32, Hour) // the waiting ones were returned
		d.ok(err)
		all := effort.Must(d.History(d.T.Context(), ledger.HistoryQuery{Workspace: d.Workspace, Limit: 32}))(d.T)
		funded := slices.DeleteFunc(all, func(v ledger.Verification) bool { return v.Status != ledger.Verifying })
		effort.Is(d.T, len(funded), 16)
		racing(len(funded), func(i int) {
			l := ledger.Lease{Verification: funded[i].ID, Node: d.Node, Epoch: funded[i].Epoch}
			v, err := d.Settle(d.T.Context(), Batch(l, 1, 0, 1, smtp.Unknown))
			effort.ErrIs(d.T, err, nil, "settle")
			effort.Is(d.T, v.Status, ledger.Completed, "settle")
			sound(d, 32)
		})
	}
	d.has(32, 32, 0, 0)
}

func raceGrants(d *Fixture) {
	for range 8 {
		d.Prepares(2)
	}
	same := uuid.New()
	racing(16, func(i int) {
		id := same
		if i%2 == 0 {
			id = uuid.New()
		}
		effort.Denied(d.Grant(d.T.Context(), id, d.Workspace, 1, "race"))(d.T, nil, "grant")
	})
	d.has(9, 1, 8, 0) // eight fresh grants and one that was made eight times
}

func raceSettles(d *Fixture) {
	v, l := d.Prepares(20)
	racing(16, func(int) {
		effort.Denied(d.Settle(d.T.Context(), Batch(l, 1, 0, 9, smtp.Valid)))(d.T, nil, "settle")
	})
	var accepted atomic.Int64
	racing(10, func(i int) { // ten different batches for one number
		s := Batch(l, 2, int64(10+i), int64(10+i), smtp.Unknown)
		switch _, err := d.Settle(d.T.Context(), s); {
		case err == nil:
			accepted.Add(1)
		case !errors.Is(err, ledger.ErrStaleEpoch):
			d.T.Errorf("settle: %v", err)
		}
	})
	effort.Is(d.T, accepted.Load(), 1, "batches have number 2")
	effort.Is(d.T, d.Sees(v.ID).Counts, (ledger.Counts{Valid: 10, Unknown: 1}), "counts")
	d.has(20, 1, 9, 10)
}

// raceCancel: two cancels, the settlements and the end of the work race. A late call changes nothing.
func raceCancel(d *Fixture) {
	for range 10 {
		v, l := d.Prepares(6)
		settles := func() (err error) {
			for n := int64(1); n <= 6 && err == nil; n++ {
				_, err = d.Settle(d.T.Context(), Batch(l, n, n-1, n-1, smtp.Valid))
			}
			return err
		}
		var told [2]ledger.Verification
		racing(4, func(i int) {
			var err error
			switch i {
			case 0, 1:
				told[i], err = d.Cancel(d.T.Context(), d.Workspace, v.ID)
			case 2:
				err = settles()
			case 3:
				_, err = d.FinishCancel(d.T.Context(), l)
			}
			// A late call gets its error, and nothing else can go wrong.
			effort.ErrorIf(d.T, err != nil && !errors.Is(err, ledger.ErrStaleEpoch) &&
				!errors.Is(err, ledger.ErrIllegal), "racer %d: %v", i, err)
		})
		if v = d.Sees(v.ID); v.Status == ledger.Cancelling {
			effort.Must(d.FinishCancel(d.T.Context(), l))(d.T)
			v = d.Sees(v.ID)
		}
		effort.ErrorIf(d.T, !v.Status.Final() || v.Held != 0 || v.Counts.Sum() != 6,
			"ended as %s holding %d with %+v", v.Status, v.Held, v.Counts)
		for _, t := range told {
			effort.ErrorIf(d.T, t.Status != v.Status && (t.Status != ledger.Cancelling || v.Status != ledger.Cancelled),
				"a cancel was told %s, and it ends as %s", t.Status, v.Status)
		}
		_ = settles() // refused or known
		effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		effort.Is(d.T, d.Sees(v.ID), v, fmt.Sprintf("%+v became", v))
	}
}

func raceLeases(d *Fixture) {
	for range 20 {
		d.Uploads()
	}
	nodes := make([]uuid.UUID, 8)
	handed := make([][]ledger.Verification, len(nodes))
	racing(len(nodes), func(i int) {
		nodes[i] = uuid.New()
		for {
			list, err := d.Lease(d.T.Context(), nodes[i], 3, Hour)
			effort.ErrIs(d.T, err, nil, "lease")
			if len(list) == 0 {
				return
			}
			handed[i] = append(handed[i], list...)
		}
	})
	owner := map[uuid.UUID]int{}
	for i, list := range handed {
		for _, v := range list {
			before, ok := owner[v.ID]
			effort.ErrorIf(d.T, ok, "nodes %d and %d have the same verification", before, i)
			owner[v.ID] = i
		}
	}
	effort.Is(d.T, len(owner), 20, "of 20 verifications were leased")
}

func raceWriters(d *Fixture) {
	const chunks = 20
	v := d.Creates(8 * chunks)
	racing(4, func(i int) {
		u, err := d.OpenUpload(d.T.Context(), v.ID)
		for err == nil && u.Status == ledger.Uploading {
			data := fmt.Appendf(nil, "w%d at %2d", i, u.Durable/8)
			u, err = d.AppendChunk(d.T.Context(), v.ID, u.Writer, u.Durable, data)
		}
		effort.ErrorIf(d.T, err != nil && !errors.Is(err, ledger.ErrFenced), "writer %d: %v", i, err)
	})
	// The newest writer is never fenced, so that the file is whole.
	d.is(d.Sees(v.ID), "preparing")
	f := effort.Must(d.OpenFile(d.T.Context(), v.ID))(d.T)
	for i := range chunks {
		var writer, at int
		var chunk [8]byte
		_, err := f.Read(chunk[:])
		effort.FatalIf(d.T, err != nil, "chunk %d: %v", i, err)
		_, err = fmt.Sscanf(string(chunk[:]), "w%d at %d", &writer, &at)
		effort.ErrorIf(d.T, err != nil || at != i, "chunk %d is %q", i, chunk)
	}
	d.ok(f.Close())
}

func raceSecrets(d *Fixture) {
	values := make([]string, 16)
	racing(16, func(i int) {
		value, err := d.Secret(d.T.Context(), "urls", 32)
		effort.ErrIs(d.T, err, nil, "secret")
		values[i] = string(value)
	})
	for _, v := range values {
		effort.Is(d.T, v, values[0], "two values for one secret")
	}
}

// raceOverrides: one override that 16 set is one, and of 16 that clear it one ended it.
func raceOverrides(d *Fixture) {
	o := Halves("example.net")
	racing(16, func(int) {
		kept, err := d.SetOverride(d.T.Context(), o, Hour)
		effort.ErrorIf(d.T, err != nil || kept.ID != o.ID || kept.Key != o.Key, "set: %+v, %v", kept, err)
	})
	effort.Is(d.T, len(d.tunes().Overrides), 1, "hold")
	var ended atomic.Int64
	racing(16, func(int) {
		list, err := d.ClearOverrides(d.T.Context(), ledger.Clearing{Key: o.Key})
		effort.ErrIs(d.T, err, nil, "clear")
		ended.Add(int64(len(list)))
	})
	d.hold()
	set, cleared := len(d.logged("throttle set")), len(d.logged("throttle clear"))
	effort.ErrorIf(d.T, set != 1 || cleared != 1, "%d lines about setting, %d about clearing", set, cleared)
	effort.ErrorIf(d.T, ended.Load() < 1, "nobody was told that it ended")
}

// racingProcesses publish at once; a cluster does so when a member dies.
const (
	racingProcesses = 16
	racingViews     = 4 // that each of them publishes
)

// publication is a view that its process saw in the ledger, and its generation.
type publication struct {
	process ledger.Incarnation
	turn    int64
	view    []ledger.Incarnation
}

// raceViews: many processes publish and beat at once. Each generation is used once, and a snapshot of a generation has
// every publication up to it, and none after it.
func raceViews(d *Fixture) {
	var mu sync.Mutex
	var published []publication
	var rolls []ledger.NodeSnapshot
	racing(racingProcesses, func(i int) {
		self := life(uuid.Nil)
		for n := range racingViews {
			b := heartbeatOf(self, life(uuid.Nil))
			for range 2 { // the second says nothing new
				snapshot, err := d.WriteHeartbeat(d.T.Context(), b)
				if err != nil {
					d.T.Errorf("process %d, view %d: %v", i, n, err)
					return
				}
				row := rowOf(snapshot, self.Session)
				if row == nil || !slices.Equal(row.View, b.View) {
					d.T.Errorf("process %d, view %d: its row is %+v", i, n, row)
					return
				}
				mu.Lock()
				rolls = append(rolls, snapshot)
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
		other, taken := turns[p.turn]
		effort.ErrorIf(d.T, taken && other != p.process.Session, "turn %d is of two processes", p.turn)
		turns[p.turn] = p.process.Session
	}
	snapshot := effort.Must(d.ReadNodes(d.T.Context()))(d.T)
	if want := racingProcesses * racingViews; len(turns) != want || snapshot.Generation != int64(want) {
		d.T.Errorf("%d turns for %d publications, the last %d", len(turns), want, snapshot.Generation)
	}
	for _, r := range rolls {
		holds(d, r, published)
	}
}

// rowOf returns the row of a session; nil when there is none.
func rowOf(snapshot ledger.NodeSnapshot, session uuid.UUID) *ledger.NodeRow {
	for i := range snapshot.Nodes {
		if snapshot.Nodes[i].Session == session {
			return &snapshot.Nodes[i]
		}
	}
	return nil
}

// holds fails the test unless a snapshot has exactly the publications up to its generation.
func holds(d *Fixture, snapshot ledger.NodeSnapshot, published []publication) {
	d.T.Helper()
	for _, p := range published {
		row := rowOf(snapshot, p.process.Session)
		switch {
		case p.turn > snapshot.Generation:
			continue
		case row == nil || row.Generation < p.turn:
			d.T.Errorf("a roll of turn %d without the publication of turn %d", snapshot.Generation, p.turn)
		case row.Generation == p.turn && !slices.Equal(row.View, p.view):
			d.T.Errorf("a roll of turn %d has another view for turn %d", snapshot.Generation, p.turn)
		}
	}
	for _, row := range snapshot.Nodes {
		effort.ErrorIf(d.T, row.Generation > snapshot.Generation,
			"a roll of turn %d with a publication of turn %d", snapshot.Generation, row.Generation)
	}
}

// raceRetire: many processes mark the same one as lost at once, which takes one generation, while they write
// heartbeats.
func raceRetire(d *Fixture) {
	gone := heartbeatOf(life(d.Node))
	others := make([]ledger.Heartbeat, racingProcesses)
	for i := range others {
		others[i] = heartbeatOf(life(uuid.Nil))
		d.Beats(others[i])
	}
	_, before := d.Beats(gone)
	racing(racingProcesses, func(i int) {
		effort.ErrIs(d.T, d.Retire(d.T.Context(), gone.Session, 0, i%2 == 0), nil, "retire")
		effort.Denied(d.WriteHeartbeat(d.T.Context(), others[i]))(d.T, nil, "beat")
	})
	row := d.row(gone.Session)
	effort.ErrorIf(d.T, row.Status != ledger.NodeLost || !row.Dead || row.Generation != before.Generation+1,
		"got %+v after turn %d", row, before.Generation)
}

// raceFacts: nodes that learn the same in another order do not stop each other.
func raceFacts(d *Fixture) {
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
		effort.ErrIs(d.T, d.Learn(d.T.Context(), mine), nil, "learn")
	})
	d.knows(keys, all...)
}
