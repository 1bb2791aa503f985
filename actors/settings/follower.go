package settings

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
	// readEvery is how often a node reads the operators' changes: a change holds on all nodes within twice that.
	readEvery = time.Second

	// readWithin bounds one reading. While the ledger doesn't answer, what was read last holds until its own end.
	readWithin = 5 * time.Second
)

// Options is what a Follower needs.
type Options struct {
	Read   func(ctx context.Context) (ledger.Settings, error)
	Table  *throttle.Table  // gets the overrides
	Clock  func() time.Time // the ledger's, as far as it is known
	Replan func()           // lets the receivers look at their allowances again
	Log    *slog.Logger
}

// Follower keeps the overrides of throttles and the weights of workspaces as the ledger has
// them. Safe for concurrent use.
type Follower struct {
	options Options

	again   chan struct{}
	weights atomic.Pointer[map[uuid.UUID]int]

	// Used by the following goroutine, and by Start before it runs.
	last    []ledger.ThrottleOverride // as the ledger told them
	holding []ledger.ThrottleOverride // those in the table
	failing bool
}

// read reads the ledger once and applies what has changed.
func (f *Follower) read(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	found, err := f.options.Read(within)
	if err == nil {
		f.last = found.Overrides
		f.setWeights(found.Weights)
	}
	f.apply()
	return err
}

// setWeights takes over the weights of workspaces.
func (f *Follower) setWeights(found map[uuid.UUID]int) {
	if now := f.weights.Load(); now == nil || !maps.Equal(*now, found) {
		f.weights.Store(&found)
	}
}

// Weight returns how many turns a workspace gets where one of weight 1 gets one.
func (f *Follower) Weight(workspace uuid.UUID) int {
	if known := f.weights.Load(); known != nil && (*known)[workspace] > 0 {
		return (*known)[workspace]
	}
	return 1
}

// WeightOf is Weight by the workspace's id as text.
func (f *Follower) WeightOf(workspace string) int {
	id, _ := uuid.Parse(workspace) // of nobody: the weight of nobody
	return f.Weight(id)
}

// apply puts the overrides that hold now into the table, if they have changed.
func (f *Follower) apply() {
	now := f.options.Clock()
	var holding []ledger.ThrottleOverride
	for _, o := range f.last {
		if o.Expires.After(now) {
			holding = append(holding, o)
		}
	}
	same := func(a, b ledger.ThrottleOverride) bool { return a.ID == b.ID }
	if slices.EqualFunc(holding, f.holding, same) {
		return
	}
	rules := f.rules(holding)
	if err := f.options.Table.Replace(throttle.LayerOverride, rules); err != nil {
		f.options.Log.Error("overrides not used", "err", err)
		return
	}
	f.logEnded(holding, now)
	f.holding = holding
	f.options.Log.Info("overrides in force", "overrides", len(rules))
	f.options.Replan()
}

// logEnded logs the overrides that have just expired. A cleared one was logged by the command that cleared it.
func (f *Follower) logEnded(holding []ledger.ThrottleOverride, now time.Time) {
	for _, o := range f.holding {
		holds := func(other ledger.ThrottleOverride) bool { return other.ID == o.ID }
		if o.Expires.After(now.Add(endsApart)) || slices.ContainsFunc(holding, holds) {
			continue
		}
		f.options.Log.Info("throttle ended", "override", o.ID, "key", o.Key, "fields", o.Fields, "author", o.Author,
			"reason", o.Reason, "since", o.Created, "until", o.Expires)
	}
}

// endsApart is how far our view of the ledger's clock may be behind: the ledger may drop an override that we believe to
// hold. Guess.
const endsApart = 2 * time.Second

// rules returns overrides as rules. One that this version doesn't understand, taken by a node of another version, is
// left out.
func (f *Follower) rules(overrides []ledger.ThrottleOverride) []throttle.Rule {
	var rules []throttle.Rule
	for _, o := range overrides {
		set, err := throttle.ParseOverride(o.Fields)
		r := throttle.Rule{Name: o.Key, Set: set, ID: o.ID.String(), Author: o.Author, Reason: o.Reason,
			Until: o.Expires}
		if err == nil {
			err = r.Check()
		}
		if err != nil {
			f.options.Log.Warn("unknown override ignored", "override", o.ID, "err", err)
			continue
		}
		rules = append(rules, r)
	}
	return rules
}

// Wake makes the next reading come at once, after a change by this node.
func (f *Follower) Wake() {
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// Start reads once, so that nothing is asked before the overrides are known, and then
// follows until the stop that it returns.
func Start(ctx context.Context, o Options) (f *Follower, stop func(context.Context) error, err error) {
	f = &Follower{options: o, again: make(chan struct{}, 1)}
	if err := f.read(ctx); err != nil {
		return nil, nil, fmt.Errorf("read the overrides of throttles: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx)
	}()
	return f, func(context.Context) error {
		cancel()
		<-done
		return nil
	}, nil
}

func (f *Follower) run(ctx context.Context) {
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-f.again:
		}
		err := f.read(ctx)
		if failing := err != nil && ctx.Err() == nil; failing != f.failing {
			f.failing = failing
			if failing {
				f.options.Log.Warn("overrides of throttles not read; those that are known hold until their end", "err", err)
			}
		}
	}
}
