package dispatcher

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

const mega = 1 << 20

// file is a verification of a workspace.
func file(id, workspace byte, bytes int64) ledger.Verification {
	return ledger.Verification{ID: uuid.UUID{id}, Workspace: uuid.UUID{workspace}, Bytes: bytes}
}

func equal(uuid.UUID) int { return 1 }

// queue is an admission queue under test.
type queue struct {
	admissionQueue
	t *testing.T
}

func (q *queue) next(at time.Duration, want byte) {
	q.t.Helper()
	got := byte(0)
	if v, ok := q.admissionQueue.next(noon.Add(at)); ok {
		got = v.ID[0]
	}
	effort.MustBe(q.t, got, want, "after", at, "file")
}

func (q *queue) over(workspace byte, bytes int64) {
	q.admissionQueue.ended(uuid.UUID{workspace}, bytes, false)
}

func TestOneFileIsAlwaysBegun(t *testing.T) {
	q := queue{newAdmissionQueue(100*mega, equal), t}
	q.next(0, 0)
	q.join(noon, file(1, 1, 500*mega)) // larger than all there is
	q.join(noon, file(2, 2, 60*mega))
	q.next(0, 1)
	q.next(0, 0) // until it is over
	q.over(1, 500*mega)
	q.next(0, 2)
	q.over(2, 60*mega)
	effort.ErrorIf(t, q.bytes() != 0 || len(q.waiters) != 0 || len(q.busy) != 0, "at the end: %+v", q.admissionQueue)
}

func TestSmallFilesPassLargeOnesWithoutEnd(t *testing.T) {
	q := queue{newAdmissionQueue(100*mega, equal), t}
	q.join(noon, file(1, 1, 70*mega))
	q.join(noon, file(2, 2, 70*mega))
	q.next(0, 1)
	for id := range byte(100) {
		q.join(noon, file(100+id, 3, 1000))
		q.next(time.Hour, 100+id)
	}
	q.next(time.Hour, 0)
}

func TestRoomIsKeptForALargeFile(t *testing.T) {
	q := queue{newAdmissionQueue(200*mega, equal), t} // 150 for large ones
	q.join(noon, file(1, 1, 40*mega))
	q.next(0, 1)
	q.join(noon, file(2, 2, 120*mega)) // does not fit beside
	q.join(noon, file(3, 3, 30*mega))
	q.next(time.Second, 3) // overtakes
	q.join(noon, file(4, 4, 30*mega))
	q.join(noon, file(5, 5, 1000))
	q.over(3, 30*mega)
	q.next(2*time.Minute, 5) // 2 has waited for long: only small ones pass
	q.next(2*time.Minute, 0)
	q.over(1, 40*mega)
	q.next(2*time.Minute, 2)
	q.next(2*time.Minute, 4)
}

func TestAWorkspaceHasOneLargeFileAtWork(t *testing.T) {
	weights := map[uuid.UUID]int{{1}: 1, {2}: 2}
	q := queue{newAdmissionQueue(400*mega, func(w uuid.UUID) int { return weights[w] }), t}
	for id := range byte(4) {
		q.join(noon, file(10+id, 1, 10*mega))
		q.join(noon, file(20+id, 2, 10*mega))
	}
	q.next(0, 10)
	q.next(0, 20)
	q.next(0, 21) // it weighs two
	q.next(time.Hour, 0)
	q.nearly(uuid.UUID{1}, 10*mega)
	q.next(time.Hour, 11)
	q.admissionQueue.ended(uuid.UUID{1}, 10*mega, true) // the first: its turn was given on before
	q.next(time.Hour, 0)
	q.leave(uuid.UUID{12})
	q.over(1, 10*mega)
	q.next(time.Hour, 13)
}

// TestTheMemoryOfALineIsBounded: files are begun only while there is memory for them, whatever comes and ends. The
// exception is one file that is larger than all the memory.
func TestTheMemoryOfALineIsBounded(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		l := newAdmissionQueue(64*mega, equal)
		var begun []ledger.Verification
		for step := range 300 {
			now := noon.Add(time.Duration(step) * time.Second)
			switch r.IntN(3) {
			case 0:
				l.join(now, file(byte(step), byte(r.IntN(4)), 1+r.Int64N(1+r.Int64N(80*mega))))
			case 1:
				if v, ok := l.next(now); ok {
					begun = append(begun, v)
				}
			case 2:
				if len(begun) > 0 {
					i := r.IntN(len(begun))
					l.ended(begun[i].Workspace, begun[i].Bytes, false)
					begun = append(begun[:i], begun[i+1:]...)
				}
			}
			sum := int64(0)
			for _, v := range begun {
				sum += v.Bytes
			}
			effort.FatalIf(t, sum > 64*mega && l.large.Used() < l.large.Size(),
				"seed %d: %d files of %d bytes", seed, len(begun), sum)
		}
		for len(l.waiters)+len(begun) > 0 { // everybody gets through
			if v, ok := l.next(noon.Add(time.Hour)); ok {
				begun = append(begun, v)
				continue
			}
			effort.FatalIf(t, len(begun) == 0, "seed %d: nothing runs and %d wait", seed, len(l.waiters))
			l.ended(begun[0].Workspace, begun[0].Bytes, false)
			begun = begun[1:]
		}
		effort.FatalIf(t, l.bytes() != 0 || len(l.busy) != 0,
			"seed %d: %d bytes, busy %v at the end", seed, l.bytes(), l.busy)
	}
}

func TestWorkspacesAreServedInTurn(t *testing.T) {
	weights := map[uuid.UUID]int{{1}: 1, {2}: 2, {3}: 1}
	turn := newWorkspaceRounds(100, func(w uuid.UUID) int { return weights[w] })
	var order []byte
	for range 8 { // all three always have something to do, the first the oldest
		except := turn.except()
		if len(except) == 3 {
			turn.round()
			except = turn.except()
		}
		for id := byte(1); id <= 3; id++ {
			passed := false
			for _, e := range except {
				passed = passed || e[0] == id
			}
			if !passed {
				turn.noteLease(uuid.UUID{id})
				order = append(order, id)
				break
			}
		}
	}
	effort.Is(t, string(order), "\x01\x02\x02\x03\x01\x02\x02\x03", "served", order)
}

func TestWhoHasItsShareOfLeasesIsPassedOver(t *testing.T) {
	turn := newWorkspaceRounds(8, equal)
	greedy, other := uuid.UUID{1}, uuid.UUID{2}
	n := 0
	for ; len(turn.except()) == 0; n++ {
		effort.FatalIf(t, !turn.noteLease(greedy), "lease %d is too many and was not passed over", n)
		turn.round()
	}
	effort.ErrorIf(t, n != 4 || turn.except()[0] != greedy,
		"one workspace has %d of 8 leases, passed over: %v", n, turn.except())
	for range 2 {
		effort.ErrorIf(t, !turn.noteLease(other), "a newcomer gets no lease")
		turn.round()
	}
	turn.ended(greedy)
	turn.ended(greedy)
	turn.round()
	list := turn.except()
	effort.ErrorIf(t, len(list) != 0, "passed over with room: %v", list)
}
