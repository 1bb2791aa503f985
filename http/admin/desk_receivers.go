package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"rollcall/actors/view"
)

// CloseCall is the body of the call that ends a session.
type CloseCall struct {
	Key     string `json:"key"`
	Node    string `json:"node"`
	Session int    `json:"session"`
}

// ForgetCall is the body of the call that forgets what a receiver taught us.
type ForgetCall struct {
	Key    string `json:"key"`
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Forgotten is what every node dropped.
type Forgotten struct {
	Receivers []view.Forgotten `json:"receivers"`
	Silent    []view.Silent    `json:"silent"` // that may still know it
}

// Traced are lines of sessions; After is what to ask with for the next ones.
type Traced struct {
	Lines []view.TraceLine  `json:"lines"`
	After map[string]uint64 `json:"after"`
}

// Receivers gives the live table of the whole cluster.
func (d *Desk) Receivers(ctx context.Context) (view.Receivers, error) {
	ctx, cancel, err := d.surveyed(ctx)
	defer cancel()
	if err != nil {
		return view.Receivers{}, err
	}
	found, err := d.options.Survey.Receivers(ctx)
	if err != nil {
		return found, d.ofSurvey("list receivers", err)
	}
	found.Receivers, found.Silent = full(found.Receivers), full(found.Silent)
	for i := range found.Receivers {
		found.Receivers[i].Sources = full(found.Receivers[i].Sources)
	}
	return found, nil
}

// Receiver gives everything about one: one value for each node where it lives.
func (d *Desk) Receiver(ctx context.Context, text string) ([]view.ReceiverDetail, error) {
	ctx, cancel, err := d.surveyed(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	key, err := keyOf("key", text)
	if err != nil {
		return nil, err
	}
	found, err := d.options.Survey.Receiver(ctx, key)
	if err != nil {
		return nil, d.ofReceiver("show receiver", err)
	}
	return full(found), nil
}

// CloseSession ends one session; its addresses are asked in another.
func (d *Desk) CloseSession(ctx context.Context, in CloseCall) error {
	ctx, cancel, err := d.surveyed(ctx)
	defer cancel()
	if err != nil {
		return err
	}
	key, err := keyOf("key", in.Key)
	if err != nil {
		return err
	}
	if len(in.Node) > nodeTextMax || in.Session < 1 {
		return refusal(http.StatusBadRequest, "invalid_request",
			"session must be the number of a session, and node the name of a node, as `rollcall receivers show` has them")
	}
	session := strings.TrimSpace(fmt.Sprintf("session %d %s", in.Session, in.Node))
	if err := d.options.Survey.CloseSession(ctx, key, in.Node, in.Session); err != nil {
		if !errors.Is(err, view.ErrNotThere) {
			// A node that was asked may have closed it although its answer never came.
			d.note(ctx, line("session close", key, session+": tried, not known to be closed"))
		}
		return d.ofReceiver("close session", err)
	}
	d.note(ctx, line("session close", key, session))
	d.options.Log.Info("session closed by an operator", "receiver", key, "node", in.Node, "session", in.Session)
	return nil
}

// Forget drops what a receiver taught us, on all nodes at once.
func (d *Desk) Forget(ctx context.Context, in ForgetCall) (Forgotten, error) {
	ctx, cancel, err := d.surveyed(ctx)
	defer cancel()
	if err == nil {
		err = named("reason", in.Reason, 1)
	}
	if err != nil {
		return Forgotten{}, err
	}
	key, err := keyOf("key", in.Key)
	if err != nil {
		return Forgotten{}, err
	}
	if !slices.Contains(view.Forgets[:], in.What) {
		return Forgotten{}, refusal(http.StatusBadRequest, "invalid_request",
			"what must be one of "+strings.Join(view.Forgets[:], ", "))
	}
	found, quiet, err := d.options.Survey.Forget(ctx, key, in.What)
	noted := line("receiver forget", key, forgottenWords(in.What, found, quiet))
	noted.Reason = in.Reason
	if err != nil {
		if !errors.Is(err, view.ErrNotThere) {
			noted.New = in.What + ": tried, not known to be forgotten"
			d.note(ctx, noted)
		}
		return Forgotten{}, d.ofReceiver("forget receiver", err)
	}
	d.note(ctx, noted)
	d.options.Log.Info("receiver's lessons forgotten by an operator", "receiver", key, "what", in.What,
		"reason", in.Reason)
	for i := range found {
		found[i].Dropped = full(found[i].Dropped)
	}
	return Forgotten{full(found), full(quiet)}, nil
}

// Trace gives the newest lines of a receiver's sessions, above those of after.
func (d *Desk) Trace(ctx context.Context, text, source string, after map[string]uint64) (Traced, error) {
	ctx, cancel, err := d.surveyed(ctx)
	defer cancel()
	if err != nil {
		return Traced{}, err
	}
	key, err := keyOf("key", text)
	if err != nil {
		return Traced{}, err
	}
	lines, err := d.options.Survey.Trace(ctx, key, source, after)
	if err != nil {
		return Traced{}, d.ofReceiver("trace receiver", err)
	}
	if after == nil {
		after = map[string]uint64{}
	}
	for _, l := range lines {
		after[l.Node] = max(after[l.Node], l.Number)
	}
	return Traced{full(lines), after}, nil
}

// ofReceiver is ofSurvey for a question about one receiver.
func (d *Desk) ofReceiver(step string, err error) error {
	var unheard *view.Unheard
	if errors.As(err, &unheard) {
		return refusal(http.StatusServiceUnavailable, "node_silent", unheard.Error()+
			": it may live there. Ask again, or see `rollcall cluster members`")
	}
	if errors.Is(err, view.ErrNotThere) {
		return refusal(http.StatusNotFound, "receiver_not_found",
			"nothing is asked of such a receiver now, or the session "+
				"is over; see GET /v1/receivers for those that live, and GET /v1/throttle/explain for what would hold")
	}
	return d.ofSurvey(step, err)
}

// forgottenWords is what the operator log says of it.
func forgottenWords(what string, found []view.Forgotten, quiet []view.Silent) string {
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
