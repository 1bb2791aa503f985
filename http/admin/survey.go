package admin

import (
	"context"

	"rollcall/actors/inspect"
)

// Survey asks every node of the cluster what it is doing. Nodes that do not answer are
// named in the answers, never waited for longer than a second or two. Methods are safe for
// concurrent use and end with ctx.
type Survey interface {
	Receivers(ctx context.Context) (inspect.Receivers, error)
	// Receiver gives everything about one, by its key or the name of a rule: one value for
	// each node where it lives. inspect.ErrNotThere; an inspect.Unreachable when a node that
	// does not answer may have it.
	Receiver(ctx context.Context, key string) ([]inspect.ReceiverDetail, error)
	Sources(ctx context.Context) ([]inspect.Source, []inspect.UnreachableNode, error)
	// CloseSession ends one session after the command that is on the wire. inspect.ErrNotThere.
	CloseSession(ctx context.Context, key, node string, session int) error
	// Forget drops what a receiver taught all nodes: what is one of inspect.Forgets. The nodes that
	// do not answer may still know it. inspect.ErrNotThere; an inspect.Unreachable when one of them may have it.
	Forget(ctx context.Context, key, what string) ([]inspect.Forgotten, []inspect.UnreachableNode, error)
	// Trace gives the newest lines of a receiver's sessions whose numbers are above after,
	// by node, at most 1,000 of each node; nodes keep them from the first call on, for ten
	// seconds after the last one.
	Trace(ctx context.Context, key, source string, after map[string]uint64) ([]inspect.TraceLine, error)
	// Verification says what the open addresses wait for: inspect.ErrNotThere when nobody works on it.
	Verification(ctx context.Context, id string) (inspect.Verification, error)
	// Explain says what holds for a mail domain, a key or a source, by this node's rules.
	Explain(ctx context.Context, name string) (inspect.Explanation, error)
	// ExplainRules says what this node's rules hold for a name, without asking anybody.
	ExplainRules(name string) (inspect.Explanation, error)
	// Files names the nodes whose throttle file differs from this node's, or has a fault.
	Files(ctx context.Context) ([]inspect.OtherFile, []inspect.UnreachableNode, error)
	// Health says what every node found of its identity: this node first, then those that take no probing work.
	Health(ctx context.Context) ([]inspect.Health, []inspect.UnreachableNode, error)
}
