package pagetest

import (
	"context"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/http/api"
)

// Hostile is a reply that runs as a script unless it is escaped.
const Hostile = `4.7.1 <script>alert("x")</script> try later`

func row(key, state, cause string, queued int) inspect.Receiver {
	r := inspect.Receiver{Key: key, Node: "node-1", State: state, Cause: cause, Why: "a sentence with the numbers", Queued: queued, Oldest: 640,
		Sessions: 1, Most: 2, Rcpts: 1, Allowed: 1, Ceiling: 5, Budget: 20, Refused: 0.61, Deferred: 0.01, PerHour: 3600,
		Last: inspect.Reply{At: time.Now(), Code: 450, Text: Hostile}}
	if cause != "free" {
		r.Until = time.Now().Add(time.Hour)
	}
	return r
}

// Receivers returns a receiver of each state, and a node that does not answer.
func (g *Rig) Receivers(context.Context) (inspect.Receivers, error) {
	return inspect.Receivers{At: time.Now(), Silent: []inspect.UnreachableNode{{Node: "node-3",
		Why: "no answer within 2 s"}}, Receivers: []inspect.Receiver{
		row("mx.slow.test", "asking", "allowance", 81_204), row("uni.test", "waiting", "connections", 917),
		row("strict.test", "resting", "penalty", 300), row("quiet.test", "idle", "free", 0)}}, nil
}

// Receiver gives all of mx.slow.test.
func (g *Rig) Receiver(_ context.Context, key string) ([]inspect.ReceiverDetail, error) {
	if key != "mx.slow.test" {
		return nil, inspect.ErrNotThere
	}
	d := inspect.ReceiverDetail{Receiver: row(key, "asking", "allowance", 81_204),
		SessionList: []inspect.Session{{ID: 7, Source: "192.0.2.7", Host: "mx1.slow.test", State: "asking", Age: 12, Rcpts: 40, Refused: 3, TLS: "1.3"}},
		Queues:      []inspect.Queue{{Workspace: g.Workspace.ID.String(), Verification: g.Open.ID.String(), Queued: 81_204, Oldest: 640, Weight: 1}},
		Firings:     []inspect.Reply{{At: time.Now(), Code: 450, Text: Hostile, Rule: "rcpt-4.7.1", Action: "slow down"}},
		Learned:     []inspect.Limit{{Field: "rcpt_rate", Value: "1/s", From: "it put us off twice", Until: time.Now().Add(time.Hour)}}}
	for i := range 60 {
		d.Minutes = append(d.Minutes, inspect.Minute{At: time.Now().Add(time.Duration(i-60) * time.Minute), Asked: i, Accepted: i / 2,
			Refused: i / 4, Deferred: i / 4, Allowed: 1, Cause: "allowance"})
	}
	return []inspect.ReceiverDetail{d}, nil
}

// Sources returns one in use, one suspended, and a paused one whose address the system chooses.
func (g *Rig) Sources(context.Context) ([]inspect.Source, []inspect.UnreachableNode, error) {
	return []inspect.Source{{Node: "node-1", Source: "192.0.2.7", Hello: "out1.test", State: "used", Today: 12, PerDay: 100, Spoken: 3},
		{Node: "node-1", Source: "192.0.2.8", State: "resting", Until: time.Now().Add(time.Hour), Reason: "listed", Blocked: 2},
		{Node: "node-2", Source: inspect.DefaultSource, State: "paused"}}, nil, nil
}

// CloseSession notes it.
func (g *Rig) CloseSession(ctx context.Context, key, node string, session int) error {
	return note(ctx, g, "close %s %s %d", key, node, session)
}

// Forget notes it.
func (g *Rig) Forget(ctx context.Context, key, what string) ([]inspect.Forgotten, []inspect.UnreachableNode, error) {
	return []inspect.Forgotten{{Key: key, Dropped: []string{"a pace"}}}, nil, note(ctx, g, "forget %s %s", key, what)
}

// Trace gives two lines.
func (g *Rig) Trace(context.Context, string, string, map[string]uint64) ([]inspect.TraceLine, error) {
	return []inspect.TraceLine{{Number: 1, Node: "node-1", At: time.Now(), Session: 7, Source: "192.0.2.7", Host: "mx1.slow.test", Line: "> RCPT TO:<…@slow.test>"},
		{Number: 2, Node: "node-1", At: time.Now(), Session: 7, Source: "192.0.2.7", Host: "mx1.slow.test", Line: "< " + Hostile}}, nil
}

// Verification says that the open one waits for mx.slow.test.
func (g *Rig) Verification(_ context.Context, id string) (inspect.Verification, error) {
	if id != g.Open.ID.String() {
		return inspect.Verification{}, inspect.ErrNotThere
	}
	return inspect.Verification{ID: id, Workspace: g.Workspace.ID.String(), Status: "verifying", Node: "node-1", Total: 90_000, Final: 8_796,
		At: time.Now(), Finish: time.Now().Add(time.Hour), Waits: []inspect.Wait{{Addresses: 81_204, For: inspect.ForReceiver, Receiver: "mx.slow.test",
			Cause: "allowance", PerHour: 3600}}}, nil
}

// Explain returns the built-in limits, and the override of mx.slow.test.
func (g *Rig) Explain(_ context.Context, name string) (inspect.Explanation, error) {
	return g.ExplainRules(name)
}

// ExplainRules returns the same.
func (g *Rig) ExplainRules(name string) (inspect.Explanation, error) {
	x := inspect.Explanation{Key: name, Fields: inspect.Fields(g.table.Explain(name))}
	for i := range x.Fields {
		if f := &x.Fields[i]; name == "mx.slow.test" && f.Field == "rcpt_rate" {
			f.Beaten = []inspect.SaidValue{{Value: f.Value, Said: f.Said}}
			f.Value, f.Said = "1/s", inspect.Said{Layer: "override", Name: name, ID: g.Override.ID.String(), Author: g.Override.Author,
				Reason: g.Override.Reason, Until: g.Override.Expires}
		}
	}
	return x, nil
}

// Files returns no differences.
func (g *Rig) Files(context.Context) ([]inspect.OtherFile, []inspect.UnreachableNode, error) {
	return nil, nil, nil
}

// Health returns a healthy node, one with a failed check, and one that does not answer.
func (g *Rig) Health(context.Context) ([]inspect.Health, []inspect.UnreachableNode, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone {
		return nil, nil, errAlone
	}
	own := admin.HealthOf(finding())
	own.Node, own.This = "node-1", true
	return []inspect.Health{own, {Node: "node-2", Known: true, Enforced: true, Unread: 1200, Foreign: 40, Why: "ptr of 192.0.2.9: no name <b>", Checked: time.Now(),
			Findings: []inspect.HealthFinding{{Check: "ptr", Source: "192.0.2.9", State: "fail", Saw: "no name <b>", Next: "Ask the owner of the network for a name."},
				{Check: "spf", Source: "192.0.2.9", State: "warn", Saw: "softfail", Next: "Add it to the record."}, {Check: "clock", State: "ok", Saw: "12 ms"}}},
			{Node: "node-4", Known: true, Probing: true, Checked: time.Now(), Findings: []inspect.HealthFinding{{Check: "clock", State: "ok", Saw: "3 ms"}}}},
		[]inspect.UnreachableNode{{Node: "node-3", Why: "no answer within 2 s"}}, nil
}

// Alone makes the inspector fail, as on a node that has just started.
func (g *Rig) Alone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alone = true
}

// members is the cluster of a Rig, a type of its own because the inspector has a different method Forget.
type members struct{ *Rig }

// Members returns two live nodes and a lost one.
func (m members) Members(context.Context) (admin.Membership, error) {
	age, clock := 1.5, int64(-20)
	of := func(session uuid.UUID, name string, state admin.State) admin.Member {
		return admin.Member{Node: session, Session: session, Name: name, State: state, This: name == "node-1", Version: "1.4.0",
			Actors: "192.0.2.1:7947", Gossip: "192.0.2.1:7946", Since: api.Time(time.Now()), HeartbeatAge: &age,
			ClockOffset: &clock, Leases: 4,
			Addresses: 12_044, Receivers: 31, Agreed: true}
	}
	return admin.Membership{Cluster: "test", LedgerAge: 1, Members: []admin.Member{of(uuid.NewSHA1(m.Node, nil), "node-1", admin.StateServing),
		of(m.Node, "node-2", admin.StateUnfit), of(uuid.NewSHA1(m.Node, []byte{1}), "node-3", admin.StateLost)}}, nil
}

// Lost is the session of the node that is lost.
func (g *Rig) Lost() uuid.UUID { return uuid.NewSHA1(g.Node, []byte{1}) }

// Drain notes it.
func (m members) Drain(ctx context.Context, node uuid.UUID) error {
	return note(ctx, m.Rig, "drain %s", node)
}

// Undrain notes it.
func (m members) Undrain(ctx context.Context, node uuid.UUID) error {
	return note(ctx, m.Rig, "undrain %s", node)
}

// Keys is not asked by pages.
func (m members) Keys(context.Context, admin.KeyCommand) ([]admin.KeyResult, error) { return nil, nil }

// Forget notes it.
func (m members) Forget(ctx context.Context, node uuid.UUID) error {
	return note(ctx, m.Rig, "forget node %s", node)
}
