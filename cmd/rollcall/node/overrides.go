package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/process"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

const (
	// settingsEvery is how often a node reads the operators' changes. A change holds on all nodes within twice that
	// time.
	settingsEvery = time.Second

	// settingsWithin bounds one reading. While the ledger doesn't answer, the values read last hold until their own
	// end.
	settingsWithin = 5 * time.Second
)

// settingsFollower follows what operators change while a node runs: overrides of throttles and the weights of
// workspaces. The ledger keeps them for all nodes, and each node reads them every second. While the ledger does not
// answer, the values read last hold, but no override holds beyond its own end. Safe for concurrent use.
type settingsFollower struct {
	from   func(ctx context.Context) (ledger.Settings, error)
	table  *throttle.Table  // gets the overrides
	clock  func() time.Time // the ledger's time, as measured by heartbeats
	replan func()           // makes the receivers read their limits again
	log    *slog.Logger

	again   chan struct{}
	weights atomic.Pointer[map[uuid.UUID]int]

	// The follower's goroutine uses this, and Start before the goroutine runs.
	last    []ledger.ThrottleOverride // as read from the ledger
	holding []ledger.ThrottleOverride // those in the table
	failing bool
}

func (f *settingsFollower) read(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, settingsWithin)
	defer cancel()
	found, err := f.from(within)
	if err == nil {
		f.last = found.Overrides
		f.weights.Store(&found.Weights)
	}
	f.apply()
	return err
}

// Weight returns how many turns a workspace gets for one turn of a workspace with weight 1.
func (f *settingsFollower) Weight(workspace uuid.UUID) int {
	if known := f.weights.Load(); known != nil && (*known)[workspace] > 0 {
		return (*known)[workspace]
	}
	return 1
}

// WeightOf is Weight by the workspace's id as text.
func (f *settingsFollower) WeightOf(workspace string) int {
	id, _ := uuid.Parse(workspace) // of the nil workspace
	return f.Weight(id)
}

// apply puts the overrides that hold now into the table if they have changed.
func (f *settingsFollower) apply() {
	now := f.clock()
	ended := func(o ledger.ThrottleOverride) bool { return !o.Expires.After(now) }
	holding := slices.DeleteFunc(slices.Clone(f.last), ended)
	same := func(a, b ledger.ThrottleOverride) bool { return a.ID == b.ID }
	if slices.EqualFunc(holding, f.holding, same) {
		return
	}
	rules := f.rules(holding)
	if err := f.table.Replace(throttle.LayerOverride, rules); err != nil {
		f.log.Error("overrides not used", "err", err)
		return
	}
	f.logEnded(holding, now)
	f.holding = holding
	f.log.Info("overrides in force", "overrides", len(rules))
	f.replan()
}

// logEnded logs the overrides that have just expired. A cleared one was logged by the command that cleared it.
func (f *settingsFollower) logEnded(holding []ledger.ThrottleOverride, now time.Time) {
	for _, o := range f.holding {
		holds := func(other ledger.ThrottleOverride) bool { return other.ID == o.ID }
		if o.Expires.After(now.Add(endsApart)) || slices.ContainsFunc(holding, holds) {
			continue
		}
		f.log.Info("throttle ended", "override", o.ID, "key", o.Key, "fields", o.Fields, "author", o.Author,
			"reason", o.Reason, "since", o.Created, "until", o.Expires)
	}
}

// endsApart is how far our view of the ledger's clock may be behind. So the ledger may drop an override that we
// believe to hold. Guess.
const endsApart = 2 * time.Second

// rules returns overrides as rules. It leaves out an override that this version doesn't understand, because a node of
// another version accepted it.
func (f *settingsFollower) rules(overrides []ledger.ThrottleOverride) []throttle.Rule {
	var rules []throttle.Rule
	for _, o := range overrides {
		set, err := throttle.ParseOverride(o.Fields)
		r := throttle.Rule{Name: o.Key, Set: set, ID: o.ID.String(), Author: o.Author, Reason: o.Reason, Until: o.Expires}
		if err == nil {
			err = r.Check()
		}
		if err != nil {
			f.log.Warn("unknown override ignored", "override", o.ID, "err", err)
			continue
		}
		rules = append(rules, r)
	}
	return rules
}

// Wake makes the next reading come at once, after a change made at this node.
func (f *settingsFollower) Wake() {
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// followSettings reads the settings once, so that the overrides are known before anything is asked. Then it follows
// them until the returned function stops it.
func followSettings(ctx context.Context, f *settingsFollower) (stop func(context.Context) error, err error) {
	f.again = make(chan struct{}, 1)
	if err := f.read(ctx); err != nil {
		return nil, fmt.Errorf("read the overrides of throttles: %w", err)
	}
	return process.Background(ctx, f.run), nil
}

func (f *settingsFollower) run(ctx context.Context) {
	ticker := time.Tick(settingsEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		case <-f.again:
		}
		err := f.read(ctx)
		failing := err != nil && ctx.Err() == nil
		if failing && !f.failing {
			f.log.Warn("overrides not read; known ones hold until they end", "err", err)
		}
		f.failing = failing
	}
}
