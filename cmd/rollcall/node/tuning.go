package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

const (
	// tuneEvery is how often a node reads what operators have changed: a change holds
	// on all nodes within two of these.
	tuneEvery = time.Second

	// tuneWithin bounds one reading. While the ledger does not answer, what was read last
	// holds until its own end.
	tuneWithin = 5 * time.Second
)

// tuning follows what operators change while a node runs: overrides of throttles and the
// weights of workspaces, which the ledger keeps for all nodes.
type tuning struct {
	read   func(ctx context.Context) (ledger.Tuning, error)
	table  *throttle.Table
	clock  func() time.Time // the ledger's, as far as it is known
	replan func()           // lets the receivers look at their allowances again
	log    *slog.Logger

	again   chan struct{}
	weights atomic.Pointer[map[uuid.UUID]int]

	// Of the goroutine that follows, and of start before it.
	last    []ledger.ThrottleOverride // as the ledger told them
	applied []uuid.UUID
	holding []ledger.ThrottleOverride // those of applied
	failing bool
}

// follow reads once and applies what has changed.
func (t *tuning) follow(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, tuneWithin)
	defer cancel()
	found, err := t.read(within)
	if err == nil {
		t.last = found.Overrides
		t.weigh(found.Weights)
	}
	t.apply()
	return err
}

// weigh takes over the weights of workspaces.
func (t *tuning) weigh(found map[uuid.UUID]int) {
	if now := t.weights.Load(); now == nil || !maps.Equal(*now, found) {
		t.weights.Store(&found)
	}
}

// weight is how many turns a workspace has for one of another.
func (t *tuning) weight(workspace uuid.UUID) int {
	if known := t.weights.Load(); known != nil && (*known)[workspace] > 0 {
		return (*known)[workspace]
	}
	return 1
}

// weightOf is weight by the workspace's name.
func (t *tuning) weightOf(workspace string) int {
	id, _ := uuid.Parse(workspace) // of nobody: the weight of nobody
	return t.weight(id)
}

// apply puts the overrides that hold now into the table, if they are others than before.
func (t *tuning) apply() {
	now := t.clock()
	var holding []ledger.ThrottleOverride
	var ids []uuid.UUID
	for _, o := range t.last {
		if o.Expires.After(now) {
			holding, ids = append(holding, o), append(ids, o.ID)
		}
	}
	if slices.Equal(ids, t.applied) {
		return
	}
	rules := t.rules(holding)
	if err := t.table.Replace(throttle.LayerOverride, rules); err != nil {
		t.log.Error("overrides not used", "err", err)
		return
	}
	t.tellEnded(holding, now)
	t.applied, t.holding = ids, holding
	t.log.Info("overrides in force", "overrides", len(rules))
	t.replan()
}

// tellEnded logs the overrides that held until now and whose time is over. Those that somebody
// has cleared were logged by who did it.
func (t *tuning) tellEnded(holding []ledger.ThrottleOverride, now time.Time) {
	for _, o := range t.holding {
		holds := func(other ledger.ThrottleOverride) bool { return other.ID == o.ID }
		if o.Expires.After(now.Add(endsApart)) || slices.ContainsFunc(holding, holds) {
			continue
		}
		t.log.Info("throttle ended", "override", o.ID, "key", o.Key, "fields", o.Fields, "author", o.Author,
			"reason", o.Reason, "since", o.Created, "until", o.Expires)
	}
}

// endsApart is by how much our idea of the ledger's clock may be behind it: the ledger gives
// an override no more that we take to hold. Guess.
const endsApart = 2 * time.Second

// rules gives overrides as rules. One that this version does not understand, because a node
// of another one took it, is left out.
func (t *tuning) rules(overrides []ledger.ThrottleOverride) []throttle.Rule {
	var rules []throttle.Rule
	for _, o := range overrides {
		set, err := throttle.ParseOverride(o.Fields)
		r := throttle.Rule{Name: o.Key, Set: set, ID: o.ID.String(), Author: o.Author, Reason: o.Reason,
			Until: o.Expires}
		if err == nil {
			err = r.Check()
		}
		if err != nil {
			t.log.Warn("override not understood here", "override", o.ID, "err", err)
			continue
		}
		rules = append(rules, r)
	}
	return rules
}

// wake makes the next reading come at once: this node has just changed something.
func (t *tuning) wake() {
	select {
	case t.again <- struct{}{}:
	default:
	}
}

// start reads once, so that nothing is asked before the overrides are known, and then
// follows until the stop that it gives.
func (t *tuning) start(ctx context.Context) (stop func(context.Context) error, err error) {
	t.again = make(chan struct{}, 1)
	if err := t.follow(ctx); err != nil {
		return nil, fmt.Errorf("read the overrides of throttles: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.run(ctx)
	}()
	return func(context.Context) error {
		cancel()
		<-done
		return nil
	}, nil
}

func (t *tuning) run(ctx context.Context) {
	ticker := time.NewTicker(tuneEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-t.again:
		}
		err := t.follow(ctx)
		if failing := err != nil && ctx.Err() == nil; failing != t.failing {
			t.failing = failing
			if failing {
				t.log.Warn("overrides of throttles not read; those that are known hold until their end", "err", err)
			}
		}
	}
}
