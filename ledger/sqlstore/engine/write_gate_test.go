package engine

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"rollcall/config/effort"
)

// TestTheGateLetsOneAloneInAtATime goes through who is in, and who may come then.
func TestTheGateLetsOneAloneInAtATime(t *testing.T) {
	t.Parallel()
	a, b := uuid.New(), uuid.New()
	type visitor struct {
		workspace uuid.UUID
		alone     bool
	}
	beside, alone, other, otherAlone := visitor{a, false}, visitor{a, true}, visitor{b, false}, visitor{b, true}
	for _, c := range []struct {
		in       visitor
		may, not []visitor
	}{
		{beside, []visitor{beside, other, otherAlone}, []visitor{alone}},
		{alone, nil, []visitor{beside, alone, other, otherAlone}},
	} {
		g := newWriteGate()
		leave, only, err := g.enter(t.Context(), c.in.workspace, c.in.alone)
		effort.FatalIf(t, err != nil || only != c.in.alone, "%+v: alone in the process: %v, %v", c.in, only, err)
		for _, v := range c.not {
			soon, cancel := context.WithTimeout(t.Context(), 3*aloneTime) // longer than it waits to be alone
			_, _, err := g.enter(soon, v.workspace, v.alone)
			effort.ErrorIf(t, !errors.Is(err, context.DeadlineExceeded), "%+v beside %+v: got %v", v, c.in, err)
			cancel()
		}
		for _, v := range c.may {
			soon, cancel := context.WithTimeout(t.Context(), 20*aloneTime)
			out, only, err := g.enter(soon, v.workspace, v.alone)
			cancel()
			effort.FatalIf(t, err != nil || only, "%+v beside %+v: alone in the process: %v, %v", v, c.in, only, err)
			out()
		}
		leave()
		effort.Is(t, len(g.locks), 0, "lanes are kept that nobody uses")
	}
}

// TestOneIsAtAnAccountAtATime: another account is free, and so are all other rows of the workspace.
func TestOneIsAtAnAccountAtATime(t *testing.T) {
	g, a := newWriteGate(), uuid.New()
	leave := effort.Must(g.account(t.Context(), a))(t)
	soon, cancel := context.WithTimeout(t.Context(), aloneTime)
	defer cancel()
	effort.Denied(g.account(soon, a))(t, context.DeadlineExceeded, "a second one")
	other := effort.Must(g.account(t.Context(), uuid.New()))(t)
	other()
	in, _, err := g.enter(t.Context(), a, true)
	effort.OK(t, err)
	in()
	leave()
	leave = effort.Must(g.account(t.Context(), a))(t)
	leave()
	effort.Is(t, len(g.locks), 0, "lanes are kept that nobody uses")
}

// TestTheGateIsForOneAloneAfterTwoConflicts: every third run of a transaction that meets others again and again.
func TestTheGateIsForOneAloneAfterTwoConflicts(t *testing.T) {
	t.Parallel()
	s := newServer(t, postgresDialect())
	var alone []bool
	err := s.UpdateIn(t.Context(), Scope{Workspace: s.a}, func(*Tx) error {
		s.gate.mu.Lock()
		places := s.gate.locks[s.a].places
		s.gate.mu.Unlock()
		free := places.TryAcquire(1)
		if free {
			places.Release(1)
		}
		if alone = append(alone, !free); len(alone) < 2*(crowdedRuns+1) {
			return &pgconn.PgError{Code: "40001"}
		}
		return nil
	})
	want := []bool{false, false, true, false, false, true}
	effort.ErrorIf(t, err != nil || !slices.Equal(alone, want), "alone in its runs: %v, want %v; %v", alone, want, err)
}
