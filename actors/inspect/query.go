package inspect

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"rollcall/cluster"
)

// Query is a question to nodes, by its name: what is asked, and what one node answers.
type Query[Ask, Answer any] struct {
	name string
	of   func(i *Inspector, ctx context.Context, ask Ask) (Answer, error) // this node answers
}

// question is what one node asks another.
type question struct {
	Kind string          `json:"kind"`
	Ask  json.RawMessage `json:"ask,omitempty"`
}

// none is asked by questions that their name says all of.
type none struct{}

// reply is what one node answered.
type reply[Answer any] struct {
	node  string
	value Answer
	err   error
}

// unpackedMax bounds an answer that is unpacked.
const unpackedMax = 32 << 20

// errAlone says that the inspector has not joined yet.
var errAlone = errors.New("inspect: this node has just begun: ask again in a second")

// askAll asks all nodes.
func (q Query[Ask, Answer]) askAll(ctx context.Context, i *Inspector, ask Ask) ([]reply[Answer], error) {
	node := i.node.Load()
	if node == nil {
		return nil, errAlone
	}
	body, err := q.writeQuestion(ask)
	if err != nil {
		return nil, err
	}
	replies := (*node).QueryAll(ctx, body)
	out := make([]reply[Answer], len(replies))
	var all sync.WaitGroup
	for n, r := range replies {
		all.Go(func() {
			if err := i.options.Guard.Run("inspect", func() { out[n] = read[Answer](r) }); err != nil {
				out[n] = reply[Answer]{node: r.Name, err: err}
			}
		})
	}
	all.Wait()
	return out, ctx.Err()
}

// askOne asks one node, by its name.
func (q Query[Ask, Answer]) askOne(ctx context.Context, i *Inspector, name string, ask Ask) reply[Answer] {
	node := i.node.Load()
	if node == nil {
		return reply[Answer]{node: name, err: errAlone}
	}
	body, err := q.writeQuestion(ask)
	if err != nil {
		return reply[Answer]{node: name, err: err}
	}
	return read[Answer]((*node).QueryMember(ctx, name, body))
}

func (q Query[Ask, Answer]) writeQuestion(ask Ask) ([]byte, error) {
	body, err := json.Marshal(ask)
	if err == nil {
		body, err = json.Marshal(question{q.name, body})
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: write the question: %w", err)
	}
	return body, nil
}

func read[Answer any](r cluster.Reply) reply[Answer] {
	out := reply[Answer]{node: r.Name, err: r.Err}
	if r.Err == nil {
		out.err = unpack(r.Body, &out.value)
	}
	return out
}

// kind implements answerer.
func (q Query[Ask, Answer]) kind() string { return q.name }

// answer implements answerer.
func (q Query[Ask, Answer]) answer(ctx context.Context, i *Inspector, body json.RawMessage) (any, error) {
	var ask Ask
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, fmt.Errorf("inspect: read the question: %w", err)
	}
	return q.of(i, ctx, ask)
}

// answerer is any Query.
type answerer interface {
	kind() string
	answer(ctx context.Context, i *Inspector, body json.RawMessage) (any, error)
}

// shorter is an answer that may be too long for cluster.AnswerMax.
type shorter interface {
	// leaveHalfOut leaves half of the answer out; false: nothing can be left out.
	leaveHalfOut() bool
}

// Answer answers a question of this node or of another one: it is the Answer of cluster.Options.
func (i *Inspector) Answer(ctx context.Context, body []byte) (packed []byte, err error) {
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("inspect: read the question: %w", err)
	}
	fault := i.options.Guard.Run("inspect", func() { packed, err = i.answer(ctx, q) })
	if fault != nil {
		return nil, fault
	}
	return packed, err
}

func (i *Inspector) answer(ctx context.Context, q question) ([]byte, error) {
	for _, known := range queries {
		if known.kind() != q.Kind {
			continue
		}
		value, err := known.answer(ctx, i, q.Ask)
		if err != nil {
			return nil, err
		}
		for {
			packed, err := pack(value)
			long, can := value.(shorter)
			if err != nil || len(packed) <= cluster.AnswerMax || !can || !long.leaveHalfOut() {
				return packed, err
			}
		}
	}
	return nil, fmt.Errorf("inspect: this node does not know the question %q: is it of an older version?", q.Kind)
}

// pack writes an answer, and makes it smaller.
func pack(answer any) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		err = json.NewEncoder(z).Encode(answer)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: write an answer: %w", err)
	}
	return out.Bytes(), nil
}

// unpack reads what pack wrote.
func unpack(body []byte, into any) error {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		err = json.NewDecoder(io.LimitReader(z, unpackedMax)).Decode(into)
	}
	if err != nil {
		return fmt.Errorf("inspect: read an answer: %w", err)
	}
	return nil
}

// silent names the nodes that did not answer.
func silent[Answer any](all []reply[Answer]) []UnreachableNode {
	out := []UnreachableNode{}
	for _, r := range all {
		if r.err != nil {
			out = append(out, UnreachableNode{Node: r.node, Why: r.err.Error()})
		}
	}
	return out
}

// joined puts the lists of all nodes together, with the node of each value written into it.
func joined[T any](all []reply[[]T], from func(v *T, node string)) []T {
	out := []T{}
	for _, r := range all {
		for n := range r.value {
			from(&r.value[n], r.node)
		}
		out = append(out, r.value...)
	}
	return out
}
