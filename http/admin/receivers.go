package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"rollcall/actors/inspect"
	"rollcall/smtp/throttle"
)

// inspectTimeout bounds a call that asks every node: nodes get a second or two, and DNS may need some time before that.
const inspectTimeout = 15 * time.Second

// keyMax is the longest key of a receiver or name of a rule: a mail domain, a suffix and the separators.
const keyMax = 600

// nodesMax bounds the nodes that a caller may name. Guess: far more than a cluster has.
const nodesMax = 1000

// CloseCall is the body of the call that ends a session.
type CloseCall struct {
	Key     string `json:"key"`
	Node    string `json:"node"`
	Session int    `json:"session"`
}

// ForgetCall is the body of the call that clears a receiver's learned limits.
type ForgetCall struct {
	Key    string `json:"key"`
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Forgotten lists what each node forgot.
type Forgotten struct {
	Receivers []inspect.Forgotten       `json:"receivers"`
	Silent    []inspect.UnreachableNode `json:"silent"` // nodes that may still have it
}

// Details are everything about one receiver, for each of its nodes.
type Details struct {
	Receivers []inspect.ReceiverDetail `json:"receivers"`
}

// Sources are our addresses on all nodes.
type Sources struct {
	Sources []inspect.Source          `json:"sources"`
	Silent  []inspect.UnreachableNode `json:"silent"` // that may have others
}

// Traced are lines of sessions; After is the parameter for the next call.
type Traced struct {
	Lines []inspect.TraceLine `json:"lines"`
	After map[string]uint64   `json:"after"`
}

type traceCall struct {
	key, source string
	after       map[string]uint64
}

func (d receiverOps) addRoutes(add addCall) {
	add("GET /v1/receivers", plainCall(d.Receivers))
	key := func(r *http.Request) (string, error) { return r.URL.Query().Get("key"), nil }
	add("GET /v1/receivers/detail", handle(key, func(ctx context.Context, key string) (Details, error) {
		found, err := d.Receiver(ctx, key)
		return Details{found}, err
	}))
	add("POST /v1/receivers/close", handle(body[CloseCall], func(ctx context.Context, in CloseCall) (CloseCall, error) {
		return in, d.CloseSession(ctx, in)
	}))
	add("POST /v1/receivers/forget", handle(body[ForgetCall], d.Forget))
	add("GET /v1/receivers/trace", handle(traceOf, func(ctx context.Context, in traceCall) (Traced, error) {
		return d.Trace(ctx, in.key, in.source, in.after)
	}))
	add("GET /v1/sources", plainCall(func(ctx context.Context) (Sources, error) {
		found, silent, err := d.Sources(ctx)
		return Sources{found, silent}, err
	}))
}

// traceOf reads ?key=, ?source= and ?after=, which has the number of the last line seen of each node.
func traceOf(r *http.Request) (in traceCall, err error) {
	q := r.URL.Query()
	in = traceCall{key: q.Get("key"), source: q.Get("source"), after: map[string]uint64{}}
	if text := q.Get("after"); text != "" {
		err = json.Unmarshal([]byte(text), &in.after)
	}
	if err != nil || len(in.after) > nodesMax || len(in.source) > nodeTextMax {
		return in, invalid("after must be copied from an answer, and source must be one of our addresses")
	}
	return in, nil
}

// Receivers returns the live table of the whole cluster.
func (d receiverOps) Receivers(ctx context.Context) (inspect.Receivers, error) {
	found, err := askNodes(ctx, d.common, "list receivers", d.options.Inspector.Receivers)
	found.Receivers, found.Silent = full(found.Receivers), full(found.Silent)
	for i := range found.Receivers {
		found.Receivers[i].Sources = full(found.Receivers[i].Sources)
	}
	return found, err
}

// Receiver returns everything about one receiver: one value for each of its nodes.
func (d receiverOps) Receiver(ctx context.Context, text string) ([]inspect.ReceiverDetail, error) {
	key, err := keyOf("key", text)
	if err != nil {
		return nil, err
	}
	found, err := askNodes(ctx, d.common, "show receiver", with(d.options.Inspector.Receiver, key))
	return full(found), err
}

// CloseSession ends one session; its addresses are asked in another.
func (d receiverOps) CloseSession(ctx context.Context, in CloseCall) error {
	key, err := keyOf("key", in.Key)
	if err != nil {
		return err
	}
	if len(in.Node) > nodeTextMax || in.Session < 1 {
		return invalid("session must be the number of a session, and node the name of a node, " +
			"as shown by `rollcall receivers show`")
	}
	session := strings.TrimSpace(fmt.Sprintf("session %d %s", in.Session, in.Node))
	_, err = askNodes(ctx, d.common, "close session", func(ctx context.Context) (any, error) {
		err := d.options.Inspector.CloseSession(ctx, key, in.Node, in.Session)
		switch {
		case err == nil:
			d.note(ctx, line("session close", key, session))
			d.options.Log.Info("session closed by an operator", "receiver", key, "node", in.Node, "session", in.Session)
		case !errors.Is(err, inspect.ErrNotThere):
			// The node may have closed the session although its answer was lost.
			d.note(ctx, line("session close", key, session+": tried, perhaps not closed"))
		}
		return nil, err
	})
	return err
}

// Forget clears a receiver's learned limits on all nodes.
func (d receiverOps) Forget(ctx context.Context, in ForgetCall) (Forgotten, error) {
	return askNodes(ctx, d.common, "forget receiver", func(ctx context.Context) (Forgotten, error) {
		if err := named("reason", in.Reason, 1); err != nil {
			return Forgotten{}, err
		}
		key, err := keyOf("key", in.Key)
		if err != nil {
			return Forgotten{}, err
		}
		if !slices.Contains(inspect.Forgets[:], in.What) {
			return Forgotten{}, invalid("what must be one of " + strings.Join(inspect.Forgets[:], ", "))
		}
		found, quiet, err := d.options.Inspector.Forget(ctx, key, in.What)
		noted := line("receiver forget", key, forgottenWords(in.What, found, quiet))
		noted.Reason = in.Reason
		if err != nil {
			if !errors.Is(err, inspect.ErrNotThere) {
				noted.New = in.What + ": tried, perhaps not forgotten"
				d.note(ctx, noted)
			}
			return Forgotten{}, err
		}
		d.note(ctx, noted)
		d.options.Log.Info("learned limits cleared by operator", "receiver", key, "what", in.What, "reason", in.Reason)
		for i := range found {
			found[i].Dropped = full(found[i].Dropped)
		}
		return Forgotten{full(found), full(quiet)}, nil
	})
}

// Trace returns the newest lines of a receiver's sessions, with numbers above after.
func (d receiverOps) Trace(ctx context.Context, text, source string, after map[string]uint64) (Traced, error) {
	key, err := keyOf("key", text)
	if err != nil {
		return Traced{}, err
	}
	lines, err := askNodes(ctx, d.common, "trace receiver", func(ctx context.Context) ([]inspect.TraceLine, error) {
		return d.options.Inspector.Trace(ctx, key, source, after)
	})
	if after == nil {
		after = map[string]uint64{}
	}
	for _, l := range lines {
		after[l.Node] = max(after[l.Node], l.Number)
	}
	return Traced{full(lines), after}, err
}

// Sources returns our addresses on all nodes, and the nodes that do not answer.
func (d receiverOps) Sources(ctx context.Context) (found []inspect.Source, silent []inspect.UnreachableNode,
	err error) {
	_, err = askNodes(ctx, d.common, "list sources", func(ctx context.Context) (_ any, err error) {
		found, silent, err = d.options.Inspector.Sources(ctx)
		return nil, err
	})
	return full(found), full(silent), err
}

func forgottenWords(what string, found []inspect.Forgotten, quiet []inspect.UnreachableNode) string {
	n := 0
	for _, f := range found {
		n += len(f.Dropped)
	}
	text := fmt.Sprintf("%s: %d things dropped", what, n)
	for _, s := range quiet {
		text += ", without " + s.Node
	}
	return text
}

// SourceRule returns the name of the rules for a source from Service.Sources.
func SourceRule(source string) string {
	if source == inspect.DefaultSource {
		source = ""
	}
	return throttle.SourcePrefix + source
}

// ResumeSource ends the overrides that only pause or drain a source. It returns the rules that still pause or drain it:
// overrides with other fields, and the throttle file. Resuming a working source is no error.
func (d throttleOps) ResumeSource(ctx context.Context, source, reason string) (still []ThrottleRule, err error) {
	if err := named("reason", reason, 1); err != nil {
		return nil, err
	}
	name := SourceRule(source)
	only := throttle.FieldPause.String()
	if _, err = d.ClearOverrides(ctx, ClearCall{Key: name, Only: only, Reason: reason}); err != nil {
		return nil, err
	}
	found, err := d.Throttle(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, rule := range found.Rules {
		for _, f := range rule.Fields {
			if rule.Name == name && f.Field == only && f.Value != string(throttle.PauseNo) && f.Beaten == "" {
				still = append(still, rule)
			}
		}
	}
	return still, nil
}
