package sqlstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// flood is a workspace whose writers store chunks without a pause.
type flood struct {
	writers  int
	stored   atomic.Int64 // chunks
	draining chan struct{}
	all      sync.WaitGroup
}

const floodChunk = 1 << 10

// flood starts so many writers, each with an upload of its own, in a workspace of theirs.
func (s *Store) flood(t *testing.T, workspace uuid.UUID, writers int) *flood {
	t.Helper()
	f := &flood{writers: writers, draining: make(chan struct{})}
	ctx := ledger.WithTenant(t.Context(), workspace)
	data := make([]byte, floodChunk)
	for range writers {
		v := s.created(t, ctx, workspace, 1<<40)
		u, err := s.OpenUpload(ctx, v.ID)
		if err != nil {
			t.Fatal(err)
		}
		f.all.Go(func() {
			for {
				select {
				case <-f.draining:
					return
				default:
				}
				if u, err = s.AppendChunk(ctx, v.ID, u.Writer, u.Durable, data); err != nil {
					t.Error(err)
					return
				}
				f.stored.Add(1)
			}
		})
	}
	return f
}

func (f *flood) stop() {
	close(f.draining)
	f.all.Wait()
}

// created makes a verification.
func (s *Store) created(t *testing.T, ctx context.Context, workspace uuid.UUID, size int64) ledger.Verification {
	t.Helper()
	v, _, err := s.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: workspace, Identity: uuid.New(),
		Filename: "list.csv", Bytes: size, BytesMax: size,
		Limits: ledger.Limits{Open: 1 << 20, Stored: 1 << 60, Unpaid: 1 << 20}, UploadExpiry: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// passed says how many chunks of the flood came before the end of one write that began when all
// its writers were at it, at the median of several.
func (f *flood) passed(write func()) int64 {
	var passed []int64
	for range 9 {
		before := f.stored.Load()
		for f.stored.Load() < before+int64(f.writers) { // all stand in line again
			select {
			case <-f.draining:
				return -1
			case <-time.After(time.Millisecond):
			}
		}
		before = f.stored.Load()
		write()
		passed = append(passed, f.stored.Load()-before)
	}
	slices.Sort(passed)
	return passed[len(passed)/2]
}

// TestAFloodDelaysAnothersWriteByOneTransaction: 32 writers of one workspace store chunks; a write of
// another workspace, and one of the node itself, waits for the transaction under way.
func TestAFloodDelaysAnothersWriteByOneTransaction(t *testing.T) {
	const writers = 32
	for name, open := range map[string]func(t *testing.T) (s *Store, a uuid.UUID, most int64){
		"embedded": func(t *testing.T) (*Store, uuid.UUID, int64) {
			s, w := openForTest(t)
			// The one under way, and one that is counted late: who stored it counts when it runs again.
			return s, w, 3
		},
		"server": func(t *testing.T) (*Store, uuid.UUID, int64) {
			s := newServer(t, engine.Seams{})
			// Six of eight sessions are the flood's: each may end one or two while the other's runs.
			return s.Store, s.a, 2 * 8
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, a, most := open(t)
			b := uuid.New()
			if _, err := s.CreateWorkspace(t.Context(), b, "small"); err != nil {
				t.Fatal(err)
			}
			f := s.flood(t, a, writers)
			defer f.stop()
			small := f.passed(func() { s.created(t, ledger.WithTenant(t.Context(), b), b, 10) })
			own := f.passed(func() { s.created(t, t.Context(), b, 10) })
			same := f.passed(func() { s.created(t, ledger.WithTenant(t.Context(), a), b, 10) })
			t.Logf("of %d writers, so many chunks came first: another workspace %d, the node %d, the same workspace %d",
				writers, small, own, same)
			// On a machine that is busy otherwise more may end while the other's runs. Whoever waits in the flood's
			// line waits for about as many as the same workspace does.
			if worst := max(small, own); worst > most && 4*worst > 3*same {
				t.Errorf("another workspace's write waited for %d chunks and the node's for %d, want at most %d, or three quarters of %d",
					small, own, most, same)
			}
			if same < writers/2 {
				t.Errorf("a write of the same workspace waited for %d chunks: there is no flood", same)
			}
		})
	}
}
