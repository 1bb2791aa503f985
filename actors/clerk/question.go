package clerk

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/egress"
	"rollcall/cluster"
	"rollcall/smtp/throttle"
)

// The kinds of questions.
const (
	kindReceivers    = "receivers"
	kindReceiver     = "receiver"
	kindSources      = "sources"
	kindClose        = "close"
	kindForget       = "forget"
	kindTrace        = "trace"
	kindVerification = "verification"
	kindRecord       = "record"
	kindFile         = "file"
	kindHealth       = "health"
)

// question is what one node asks another.
type question struct {
	Kind    string `json:"kind"`
	Key     string `json:"key,omitempty"`    // of a receiver, or the name of a rule
	Source  string `json:"source,omitempty"` // of ours, of a trace
	Session int    `json:"session,omitempty"`
	What    string `json:"what,omitempty"`  // to be forgotten
	After   string `json:"after,omitempty"` // of a record: the key of the last receiver that is there
	// Lines are of a trace: by node, the number of the last line that is there.
	Lines map[string]uint64 `json:"lines,omitempty"`
	ID    uuid.UUID         `json:"id,omitzero"` // of a verification
}

// answer is what it is told. Which field is set depends on the question.
type answer struct {
	Receivers    []inspect.Receiver       `json:"receivers,omitempty"`
	More         int                      `json:"more,omitempty"` // receivers that were left out
	Details      []inspect.ReceiverDetail `json:"details,omitempty"`
	Sources      []inspect.Source         `json:"sources,omitempty"`
	Closed       bool                     `json:"closed,omitempty"`
	Forgotten    []inspect.Forgotten      `json:"forgotten,omitempty"`
	Lines        []inspect.TraceLine      `json:"lines,omitempty"`
	Verification *inspect.Verification    `json:"verification,omitempty"`
	Record       *inspect.Record          `json:"record,omitempty"`
	Whole        bool                     `json:"whole,omitempty"` // the record ends with these receivers
	File         *fileNow                 `json:"file,omitempty"`
	Health       *inspect.Health          `json:"health,omitempty"`
}

const (
	// recordBytes is how much JSON of a record goes in one answer. It packs to a tenth,
	// and to less than cluster.AnswerMax however it looks like.
	recordBytes = 2 << 20

	// unpackedMax bounds an answer that is unpacked.
	unpackedMax = 32 << 20

	// detailsMax bounds the details in one answer: more receivers than a name of a rule
	// stands for. Guess.
	detailsMax = 64
)

// day is that of a source, which begins at midnight UTC.
const day = 24 * time.Hour

// nodeOf is a Node that comes later.
type nodeOf struct{ p atomic.Pointer[Node] }

// errAlone says that the clerk was not joined yet.
var errAlone = errors.New("clerk: this node has just begun: ask again in a second")

// said is what one node answered.
type said struct {
	name string
	answer
	err error
}

// ask puts a question to all nodes.
func (c *Clerk) ask(ctx context.Context, q question) ([]said, error) {
	node := c.node.p.Load()
	if node == nil {
		return nil, errAlone
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("clerk: write the question: %w", err)
	}
	replies := (*node).Errand(ctx, body)
	out := make([]said, len(replies))
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() {
			if err := c.options.Guard.Run("clerk", func() { out[i] = understand(&replies[i]) }); err != nil {
				out[i] = said{name: replies[i].Name, err: err}
			}
		})
	}
	all.Wait()
	return out, ctx.Err()
}

// askOne puts a question to one node.
func (c *Clerk) askOne(ctx context.Context, name string, q question) said {
	node := c.node.p.Load()
	if node == nil {
		return said{name: name, err: errAlone}
	}
	body, err := json.Marshal(q)
	if err != nil {
		return said{name: name, err: err}
	}
	r := (*node).ErrandTo(ctx, name, body)
	return understand(&r)
}

// understand reads a reply.
func understand(r *cluster.Reply) said {
	s := said{name: r.Name, err: r.Err}
	if r.Err == nil {
		s.err = unpack(r.Body, &s.answer)
	}
	return s
}

// name is this node's, as the others know it.
func (c *Clerk) name() string {
	if node := c.node.p.Load(); node != nil {
		return (*node).Card().Name
	}
	return ""
}

// silent gives those that did not answer.
func silent(all []said) []inspect.Silent {
	out := []inspect.Silent{}
	for _, s := range all {
		if s.err != nil {
			out = append(out, inspect.Silent{Node: s.name, Why: s.err.Error()})
		}
	}
	return out
}

// Answer answers a question of this node or of another one: it is the Answer of
// cluster.Options.
func (c *Clerk) Answer(ctx context.Context, body []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("clerk: read the question: %w", err)
	}
	var a answer
	var err error
	fault := c.options.Guard.Run("clerk", func() { a, err = c.answer(ctx, q) })
	if err := cmp.Or(fault, err); err != nil {
		return nil, err
	}
	for {
		packed, err := pack(&a)
		if err != nil || len(packed) <= cluster.AnswerMax || len(a.Receivers) < 2 {
			return packed, err
		}
		half := len(a.Receivers) / 2 // names and texts of receivers may be long
		a.Receivers, a.More = a.Receivers[:half], a.More+len(a.Receivers)-half
	}
}

// answer says what this node knows.
func (c *Clerk) answer(ctx context.Context, q question) (a answer, err error) {
	o, now := &c.options, time.Now() // that of this host, as the receivers have it
	switch q.Kind {
	case kindReceivers:
		a.Receivers = o.Living.Survey(ctx)
		inspect.SortReceivers(a.Receivers)
		if n := len(a.Receivers); n > inspect.ReceiversMax {
			a.Receivers, a.More = a.Receivers[:inspect.ReceiversMax], n-inspect.ReceiversMax
		}
	case kindReceiver:
		a.Details = o.Living.Detail(ctx, q.Key)
		slices.SortFunc(a.Details, func(x, y inspect.ReceiverDetail) int { return cmp.Compare(x.Key, y.Key) })
		a.Details = a.Details[:min(len(a.Details), detailsMax)]
	case kindSources:
		a.Sources = c.sources(ctx)
	case kindClose:
		a.Closed = o.Living.Close(ctx, q.Key, q.Session)
	case kindForget:
		a.Forgotten = o.Living.Forget(ctx, q.Key, q.What)
	case kindTrace:
		a.Lines, err = o.Living.Trace(now, q.Key, q.Source, q.Lines[c.name()])
	case kindVerification:
		if o.Lookup == nil {
			break
		}
		if v, found := o.Lookup(q.ID); found {
			a.Verification = &v
		}
	case kindRecord:
		record, whole := o.Living.Record(now, q.After, recordBytes)
		a.Record, a.Whole = &record, whole
	case kindFile:
		a.File = c.file()
	case kindHealth:
		a.Health = c.health()
	default:
		err = fmt.Errorf("clerk: this node does not know the question %q: is it of an older version?", q.Kind)
	}
	return a, err
}

// sources says how the sources of this node do.
func (c *Clerk) sources(ctx context.Context) []inspect.Source {
	now := time.Now()
	sessions := map[string]int{}
	for _, r := range c.options.Living.Survey(ctx) {
		for _, s := range r.Sources {
			sessions[s.Source] += s.Sessions
		}
	}
	out := []inspect.Source{}
	for _, s := range c.options.Sources.State(now) {
		out = append(out, sourceOf(s, sessions[s.Source], now))
	}
	return out
}

// pack writes an answer, and makes it smaller.
func pack(a *answer) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, fmt.Errorf("clerk: pack an answer: %w", err)
	}
	if err := json.NewEncoder(z).Encode(a); err != nil {
		return nil, fmt.Errorf("clerk: write an answer: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("clerk: pack an answer: %w", err)
	}
	return out.Bytes(), nil
}

// unpack reads what pack wrote.
func unpack(body []byte, a *answer) error {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("clerk: unpack an answer: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(z, unpackedMax)).Decode(a); err != nil {
		return fmt.Errorf("clerk: read an answer: %w", err)
	}
	return nil
}

// sourceOf is a source's state as people are shown it.
func sourceOf(s egress.SourceState, sessions int, now time.Time) inspect.Source {
	out := inspect.Source{Source: s.Source, Hello: s.Hello, State: "used", Sessions: sessions, Today: s.Today,
		PerDay: s.PerDay, Spoken: s.Spoken, Blocked: s.Blocked}
	switch {
	case s.Pause == throttle.PauseYes:
		out.State = "paused"
	case s.Pause == throttle.PauseDrain:
		out.State = "draining"
	case now.Before(s.SuspendedUntil):
		out.State, out.Until, out.Reason = "resting", s.SuspendedUntil, s.Reason.String()
	case s.PerDay > 0 && s.Today >= s.PerDay:
		out.State, out.Until = "spent", now.UTC().Truncate(day).Add(day)
	case s.OnTrial:
		out.State, out.Reason = "on trial", s.Reason.String()
	}
	return out
}
