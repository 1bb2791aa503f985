package clerk

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/status"
	"rollcall/cluster"
)

const (
	// defaultSource is how people write the source whose address the system chooses, where
	// "" means all of them.
	defaultSource = inspect.DefaultSource

	// recordPages bounds the answers that are asked of one node for its record: more than
	// the bounds of a record can fill.
	recordPages = 64
)

// Receivers gives the live table of the whole cluster.
func (c *Clerk) Receivers(ctx context.Context) (inspect.Receivers, error) {
	all, err := c.ask(ctx, question{Kind: kindReceivers})
	if err != nil {
		return inspect.Receivers{}, err
	}
	out := inspect.Receivers{At: c.options.Clock(), Receivers: []inspect.Receiver{}, Silent: silent(all)}
	for _, s := range all {
		for i := range s.Receivers {
			s.Receivers[i].Node = s.name
			nameSources(&s.Receivers[i])
		}
		out.Receivers = append(out.Receivers, s.Receivers...)
		out.More += s.More
	}
	inspect.SortReceivers(out.Receivers)
	if n := len(out.Receivers); n > inspect.ReceiversMax {
		out.Receivers, out.More = out.Receivers[:inspect.ReceiversMax], out.More+n-inspect.ReceiversMax
	}
	return out, nil
}

// Receiver gives everything about one receiver, by its key or the name of a rule: one
// value for each node where it lives. inspect.ErrNotThere; a inspect.Unheard when a node
// that does not answer may have it.
func (c *Clerk) Receiver(ctx context.Context, key string) ([]inspect.ReceiverDetail, error) {
	all, err := c.ask(ctx, question{Kind: kindReceiver, Key: key})
	if err != nil {
		return nil, err
	}
	var out []inspect.ReceiverDetail
	for _, s := range all {
		for i := range s.Details {
			s.Details[i].Node = s.name
			nameAllSources(&s.Details[i])
		}
		out = append(out, s.Details...)
	}
	if quiet := silent(all); len(out) == 0 && len(quiet) > 0 {
		return nil, &inspect.Unheard{Silent: quiet}
	}
	if len(out) == 0 {
		return nil, inspect.ErrNotThere
	}
	slices.SortStableFunc(out, func(a, b inspect.ReceiverDetail) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Node, b.Node))
	})
	return out, nil
}

// Sources says how the sources of all nodes do.
func (c *Clerk) Sources(ctx context.Context) ([]inspect.Source, []inspect.Silent, error) {
	all, err := c.ask(ctx, question{Kind: kindSources})
	if err != nil {
		return nil, nil, err
	}
	out := []inspect.Source{}
	for _, s := range all {
		for i := range s.Sources {
			s.Sources[i].Node = s.name
			s.Sources[i].Source = inspect.SourceName(s.Sources[i].Source)
		}
		out = append(out, s.Sources...)
	}
	return out, silent(all), nil
}

// CloseSession ends one session after the command that is on the wire. The numbers of
// sessions are those of one node; "" is any node, when one alone has it. inspect.ErrNotThere.
func (c *Clerk) CloseSession(ctx context.Context, key, node string, session int) error {
	q := question{Kind: kindClose, Key: key, Session: session}
	if node != "" {
		s := c.askOne(ctx, node, q)
		if s.err == nil && !s.Closed {
			s.err = inspect.ErrNotThere
		}
		return s.err
	}
	var having []string
	details, err := c.Receiver(ctx, key)
	if err != nil {
		return err
	}
	for _, d := range details {
		has := func(s inspect.Session) bool { return s.ID == session }
		if slices.ContainsFunc(d.SessionList, has) && !slices.Contains(having, d.Node) {
			having = append(having, d.Node)
		}
	}
	switch len(having) {
	case 0:
		return inspect.ErrNotThere
	case 1:
		return c.CloseSession(ctx, key, having[0], session)
	}
	return &manyNodes{having}
}

// Forget drops what a receiver taught all nodes: what is a word of package receiver. Nodes that
// do not answer may still know it. Where it lives on none, what is kept for later is dropped.
// inspect.ErrNotThere; a inspect.Unheard when a node that does not answer may have it.
func (c *Clerk) Forget(ctx context.Context, key, what string) ([]inspect.Forgotten, []inspect.Silent, error) {
	all, err := c.ask(ctx, question{Kind: kindForget, Key: key, What: what})
	if err != nil {
		return nil, nil, err
	}
	out := []inspect.Forgotten{}
	for _, s := range all {
		for i := range s.Forgotten {
			s.Forgotten[i].Node = s.name
		}
		out = append(out, s.Forgotten...)
	}
	quiet := silent(all)
	if len(out) == 0 {
		if out, err = c.options.Living.ForgetKept(ctx, key, what); err != nil {
			return nil, quiet, err
		}
	}
	switch {
	case len(out) > 0:
	case len(quiet) > 0:
		return nil, quiet, &inspect.Unheard{Silent: quiet}
	default:
		return nil, nil, inspect.ErrNotThere
	}
	slices.SortStableFunc(out, func(a, b inspect.Forgotten) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Node, b.Node))
	})
	return out, quiet, nil
}

// Trace gives the newest lines of a receiver's sessions whose numbers are above after, by
// node; source "" is all of them, "default" the one whose address the system chooses.
func (c *Clerk) Trace(
	ctx context.Context, key, source string, after map[string]uint64,
) ([]inspect.TraceLine, error) {
	q := question{Kind: kindTrace, Key: key, Source: source, Lines: after}
	switch source {
	case "":
		q.Source = status.AnySource
	case defaultSource:
		q.Source = ""
	}
	all, err := c.ask(ctx, q)
	if err != nil {
		return nil, err
	}
	out, refused := []inspect.TraceLine{}, error(nil)
	for _, s := range all {
		if s.err != nil && (refused == nil || errors.Is(refused, cluster.ErrLost)) {
			refused = s.err // why a node does not trace says more than that one is lost
		}
		for i := range s.Lines {
			s.Lines[i].Node = s.name
			s.Lines[i].Source = inspect.SourceName(s.Lines[i].Source)
		}
		out = append(out, s.Lines...)
	}
	if len(silent(all)) == len(all) && refused != nil {
		return nil, refused
	}
	slices.SortStableFunc(out, func(a, b inspect.TraceLine) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Number, b.Number))
	})
	return out, nil
}

// Verification says what the open addresses of a verification wait for. inspect.ErrNotThere; a
// inspect.Unheard when a node that does not answer may work on it.
func (c *Clerk) Verification(ctx context.Context, id string) (inspect.Verification, error) {
	of, err := uuid.Parse(id)
	if err != nil {
		return inspect.Verification{}, inspect.ErrNotThere
	}
	all, err := c.ask(ctx, question{Kind: kindVerification, ID: of})
	if err != nil {
		return inspect.Verification{}, err
	}
	var found *inspect.Verification
	for _, s := range all {
		// Two may have it while it changes hands: the one that knows more of it.
		if v := s.answer.Verification; v != nil && (found == nil || v.Final > found.Final) {
			v.Node = s.name
			found = v
		}
	}
	if quiet := silent(all); found == nil && len(quiet) > 0 {
		return inspect.Verification{}, &inspect.Unheard{Silent: quiet}
	}
	if found == nil {
		return inspect.Verification{}, inspect.ErrNotThere
	}
	return *found, nil
}

// Record gathers what all nodes kept of the last hours.
func (c *Clerk) Record(ctx context.Context) ([]inspect.Record, []inspect.Silent, error) {
	all, err := c.ask(ctx, question{Kind: kindRecord})
	if err != nil {
		return nil, nil, err
	}
	out := []inspect.Record{}
	for i := range all {
		s := &all[i]
		if s.err != nil || s.answer.Record == nil {
			continue
		}
		record, page := *s.answer.Record, s.answer
		record.Node = s.name
		for range recordPages {
			n := len(record.Receivers)
			if page.Whole || n == 0 {
				break
			}
			next := c.askOne(ctx, s.name, question{Kind: kindRecord, After: record.Receivers[n-1].Key})
			if next.err != nil || next.answer.Record == nil {
				s.err = next.err // what is there counts, and the reader is told
				break
			}
			page = next.answer
			record.Receivers = append(record.Receivers, page.Record.Receivers...)
			record.From = min(record.From, cmp.Or(page.Record.From, record.From))
		}
		out = append(out, record)
	}
	return out, silent(all), nil
}

// nameSources names our sources as people are shown them.
func nameSources(r *inspect.Receiver) {
	for i := range r.Sources {
		r.Sources[i].Source = inspect.SourceName(r.Sources[i].Source)
	}
	if !r.Last.At.IsZero() {
		r.Last.Source = inspect.SourceName(r.Last.Source)
	}
}

// nameAllSources is nameSources for everything about a receiver.
func nameAllSources(d *inspect.ReceiverDetail) {
	nameSources(&d.Receiver)
	for i := range d.SessionList {
		d.SessionList[i].Source = inspect.SourceName(d.SessionList[i].Source)
	}
	for i := range d.Firings {
		d.Firings[i].Source = inspect.SourceName(d.Firings[i].Source)
	}
}

// manyNodes says that several nodes have a session of a number.
type manyNodes struct{ nodes []string }

// Error implements error.
func (m *manyNodes) Error() string {
	return "sessions are numbered by node, and several have one with this number: name one of " +
		strings.Join(m.nodes, ", ")
}
