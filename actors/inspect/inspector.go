package inspect

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/process"
	"rollcall/cluster"
	"rollcall/cluster/gossip"
	"rollcall/smtp/mx"
	"rollcall/smtp/throttle"
)

// Node is what an inspector needs of a cluster.Node.
type Node interface {
	// QueryAll asks every member.
	QueryAll(ctx context.Context, question []byte) []cluster.Reply
	// QueryMember asks one member, by its name.
	QueryMember(ctx context.Context, name string, question []byte) cluster.Reply
	// Meta is what this node says of itself; its name is that of its replies.
	Meta() gossip.NodeMeta
}

// LocalReceivers are the receivers of this node; receiver.Registry is one.
type LocalReceivers interface {
	CollectStatus(ctx context.Context) []Receiver
	Detail(ctx context.Context, key string) []ReceiverDetail
	Close(ctx context.Context, key string, session int) bool
	Forget(ctx context.Context, key, what string) []Forgotten
	// ForgetKept drops the stored facts of a receiver that has no actor.
	ForgetKept(ctx context.Context, key, what string) ([]Forgotten, error)
	Trace(now time.Time, key, source string, after uint64) ([]TraceLine, error)
	Record(now time.Time, after string, most int) (out Record, whole bool)
}

// Options is what an inspector needs to know. All fields are required but Clock and Guard.
type Options struct {
	Receivers LocalReceivers
	Sources   func(ctx context.Context) []Source // of this node
	Table     *throttle.Table                    // the rules of this node
	// Route finds where mail for a domain goes.
	Route func(ctx context.Context, domain string) (mx.Route, error)
	// Lookup says what the open addresses of a verification wait for that this node has in work.
	Lookup func(id uuid.UUID) (Verification, bool)
	// Fault says why the throttle file of this node, as it is now, is not used; "": it is.
	Fault func() string
	// Health says what this node found of its identity; its Node and This are not read.
	Health func() Health
	// Clock is the time shown to people; nil: time.Now.
	Clock func() time.Time
	Guard *process.PanicGuard // of what it does beside; nil: none
}

// Inspector asks all nodes, and answers for this one. Safe for concurrent use. It is the Inspector of the admin API.
type Inspector struct {
	options Options
	node    atomic.Pointer[Node] // nil until Join
}

// New makes an inspector that knows this node only; Join lets it ask the others.
func New(o Options) *Inspector {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Inspector{options: o}
}

// Join sets the node whose members are asked. It comes after New, because that node serves this inspector's Answer.
func (i *Inspector) Join(node Node) { i.node.Store(&node) }

// name is this node's, as the others know it.
func (i *Inspector) name() string {
	if node := i.node.Load(); node != nil {
		return (*node).Meta().Name
	}
	return ""
}

// Query is a question to nodes, by its name: what is asked, and what one node answers.
type Query[Ask, Answer any] struct {
	name string
	of   func(i *Inspector, ctx context.Context, ask Ask) (Answer, error) // this node answers
}

type question struct {
	Kind string          `json:"kind"`
	Ask  json.RawMessage `json:"ask,omitempty"`
}

// none is asked by questions that their name says all of.
type none struct{}

type reply[Answer any] struct {
	node  string
	value Answer
	err   error
}

const unpackedMax = 32 << 20

// errAlone means that the node has not joined the cluster yet.
var errAlone = errors.New("inspect: this node has just started: ask again in a second")

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

func (q Query[Ask, Answer]) answer(ctx context.Context, i *Inspector, body json.RawMessage) (any, error) {
	var ask Ask
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, fmt.Errorf("inspect: read the question: %w", err)
	}
	return q.of(i, ctx, ask)
}

// Answer answers a question of this node or of another one: cluster.Node.Serve gets it.
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
	answer := queries[q.Kind]
	if answer == nil {
		return nil, fmt.Errorf("inspect: this node does not know the question %q: is it of an older version?", q.Kind)
	}
	value, err := answer(ctx, i, q.Ask)
	if err != nil {
		return nil, err
	}
	for {
		packed, err := pack(value)
		long, can := value.(*receiverTable)
		if err != nil || len(packed) <= cluster.AnswerMax || !can || !long.leaveHalfOut() {
			return packed, err
		}
	}
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

// ErrNotThere means that no node has what was asked for: the receiver isn't asked now, the session has ended, or nobody
// works on the verification.
var ErrNotThere = errors.New("no node has it")

// Unreachable says that no node that answers has what was asked for, and which do not answer: one
// of them may have it. It is an ErrNotThere too.
type Unreachable struct{ Silent []UnreachableNode }

func (u *Unreachable) Error() string {
	names := make([]string, len(u.Silent))
	for i, s := range u.Silent {
		names[i] = fmt.Sprintf("%s (%s)", s.Node, s.Why)
	}
	return "no node that answers has it, and without an answer are " + strings.Join(names, ", ")
}

// Unwrap makes it an ErrNotThere.
func (u *Unreachable) Unwrap() error { return ErrNotThere }
