package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/cluster"
	"rollcall/smtp/throttle"
)

const (
	// recordBytes is how much JSON of a record goes in one answer. It packs to a tenth,
	// and to less than cluster.AnswerMax however it looks like.
	recordBytes = 2 << 20

	// recordPages bounds the answers that are asked of one node for its record: more than the bounds of a record can fill.
	recordPages = 64

	// detailsMax bounds the details in one answer: more receivers than a rule's name matches. Guess.
	detailsMax = 64
)

// queries are all questions that a node can answer.
var queries = map[string]func(context.Context, *Inspector, json.RawMessage) (any, error){
	receiversQuery.name: receiversQuery.answer, detailQuery.name: detailQuery.answer,
	sourcesQuery.name: sourcesQuery.answer, closeQuery.name: closeQuery.answer, forgetQuery.name: forgetQuery.answer,
	traceQuery.name: traceQuery.answer, verificationQuery.name: verificationQuery.answer,
	recordQuery.name: recordQuery.answer, fileQuery.name: fileQuery.answer, healthQuery.name: healthQuery.answer,
}

var receiversQuery = Query[none, *receiverTable]{"receivers", (*Inspector).ownReceivers}

type receiverTable struct {
	Receivers []Receiver `json:"receivers"`
	More      int        `json:"more,omitempty"` // that were left out
}

// keepMost leaves out the least important receivers if there are too many for one table.
func (t *receiverTable) keepMost(most int) {
	SortReceivers(t.Receivers)
	if n := len(t.Receivers); n > most {
		t.Receivers, t.More = t.Receivers[:most], t.More+n-most
	}
}

// leaveHalfOut leaves half of an answer out that is longer than cluster.AnswerMax, because names and texts of receivers
// may be long; false: nothing can be left out.
func (t *receiverTable) leaveHalfOut() bool {
	if len(t.Receivers) < 2 {
		return false
	}
	t.keepMost(len(t.Receivers) / 2)
	return true
}

func (i *Inspector) ownReceivers(ctx context.Context, _ none) (*receiverTable, error) {
	t := &receiverTable{Receivers: i.options.Receivers.CollectStatus(ctx)}
	t.keepMost(ReceiversMax)
	return t, nil
}

// Receivers returns the live table of the whole cluster.
func (i *Inspector) Receivers(ctx context.Context) (Receivers, error) {
	all, err := receiversQuery.askAll(ctx, i, none{})
	if err != nil {
		return Receivers{}, err
	}
	t := receiverTable{Receivers: []Receiver{}}
	for _, r := range all {
		if r.value == nil {
			continue
		}
		for n := range r.value.Receivers {
			r.value.Receivers[n].Node = r.node
			nameSources(&r.value.Receivers[n])
		}
		t.Receivers, t.More = append(t.Receivers, r.value.Receivers...), t.More+r.value.More
	}
	t.keepMost(ReceiversMax)
	return Receivers{At: i.options.Clock(), Receivers: t.Receivers, More: t.More, Silent: silent(all)}, nil
}

// ofReceiver asks about a receiver, by its key or the name of a rule.
type ofReceiver struct {
	Key     string `json:"key"`
	Session int    `json:"session,omitempty"` // to be closed
	What    string `json:"what,omitempty"`    // to be forgotten
}

var detailQuery = Query[ofReceiver, []ReceiverDetail]{"receiver", (*Inspector).ownDetails}

func (i *Inspector) ownDetails(ctx context.Context, of ofReceiver) ([]ReceiverDetail, error) {
	found := i.options.Receivers.Detail(ctx, of.Key)
	slices.SortFunc(found, func(x, y ReceiverDetail) int { return cmp.Compare(x.Key, y.Key) })
	return found[:min(len(found), detailsMax)], nil
}

// Receiver returns everything about one receiver, by its key or the name of a rule: one value for each node where it
// lives. Errors: ErrNotThere; an Unreachable if a node that does not answer may have it.
func (i *Inspector) Receiver(ctx context.Context, key string) ([]ReceiverDetail, error) {
	all, err := detailQuery.askAll(ctx, i, ofReceiver{Key: key})
	if err != nil {
		return nil, err
	}
	out := joined(all, func(d *ReceiverDetail, node string) {
		d.Node = node
		nameAllSources(d)
	})
	if len(out) == 0 {
		return nil, notThere(silent(all))
	}
	slices.SortStableFunc(out, func(a, b ReceiverDetail) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Node, b.Node))
	})
	return out, nil
}

// notThere returns an Unreachable if a node did not answer, since that node may have it; otherwise ErrNotThere.
func notThere(quiet []UnreachableNode) error {
	if len(quiet) > 0 {
		return &Unreachable{Silent: quiet}
	}
	return ErrNotThere
}

var sourcesQuery = Query[none, []Source]{"sources", func(i *Inspector, ctx context.Context, _ none) ([]Source, error) {
	return i.options.Sources(ctx), nil
}}

// Sources says how the sources of all nodes do.
func (i *Inspector) Sources(ctx context.Context) ([]Source, []UnreachableNode, error) {
	all, err := sourcesQuery.askAll(ctx, i, none{})
	if err != nil {
		return nil, nil, err
	}
	return joined(all, func(s *Source, node string) { s.Node, s.Source = node, SourceName(s.Source) }), silent(all), nil
}

var closeQuery = Query[ofReceiver, bool]{"close", func(i *Inspector, ctx context.Context, of ofReceiver) (bool, error) {
	return i.options.Receivers.Close(ctx, of.Key, of.Session), nil
}}

// CloseSession ends one session after the command that is on the wire. Each node numbers its sessions; node may be ""
// if only one has this number. Error: ErrNotThere.
func (i *Inspector) CloseSession(ctx context.Context, key, node string, session int) error {
	if node != "" {
		r := closeQuery.askOne(ctx, i, node, ofReceiver{Key: key, Session: session})
		if r.err == nil && !r.value {
			r.err = ErrNotThere
		}
		return r.err
	}
	var having []string
	details, err := i.Receiver(ctx, key)
	if err != nil {
		return err
	}
	for _, d := range details {
		has := func(s Session) bool { return s.ID == session }
		if slices.ContainsFunc(d.SessionList, has) && !slices.Contains(having, d.Node) {
			having = append(having, d.Node)
		}
	}
	switch len(having) {
	case 0:
		return ErrNotThere
	case 1:
		return i.CloseSession(ctx, key, having[0], session)
	}
	return errors.New("sessions are numbered by node, and several have one with this number: name one of " +
		strings.Join(having, ", "))
}

var forgetQuery = Query[ofReceiver, []Forgotten]{"forget",
	func(i *Inspector, ctx context.Context, of ofReceiver) ([]Forgotten, error) {
		return i.options.Receivers.Forget(ctx, of.Key, of.What), nil
	}}

// Forget drops what all nodes learned of a receiver; what is one of Forgets. Nodes that do not answer may still know
// it. If no node has the receiver, its stored facts are dropped. Errors: ErrNotThere; an Unreachable if a node that
// does not answer may have it.
func (i *Inspector) Forget(ctx context.Context, key, what string) ([]Forgotten, []UnreachableNode, error) {
	all, err := forgetQuery.askAll(ctx, i, ofReceiver{Key: key, What: what})
	if err != nil {
		return nil, nil, err
	}
	out, quiet := joined(all, func(f *Forgotten, node string) { f.Node = node }), silent(all)
	if len(out) == 0 {
		if out, err = i.options.Receivers.ForgetKept(ctx, key, what); err != nil {
			return nil, quiet, err
		}
	}
	if len(out) == 0 {
		return nil, quiet, notThere(quiet)
	}
	slices.SortStableFunc(out, func(a, b Forgotten) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Node, b.Node))
	})
	return out, quiet, nil
}

// AnySource stands for all sources of a node; "" is the one that the system chooses.
const AnySource = "*"

// linesOf asks for lines of the sessions of a receiver.
type linesOf struct {
	Key    string            `json:"key"`
	Source string            `json:"source,omitempty"`
	After  map[string]uint64 `json:"after,omitempty"` // by node, the number of the last line that is there
}

var traceQuery = Query[linesOf, []TraceLine]{"trace",
	func(i *Inspector, _ context.Context, of linesOf) ([]TraceLine, error) {
		// The clock is that of this host, as the receivers have it.
		return i.options.Receivers.Trace(time.Now(), of.Key, of.Source, of.After[i.name()])
	}}

// Trace returns the newest lines of a receiver's sessions: those with numbers above after, which is by node. Source
// "" means all sources, DefaultSource the one whose address the system chooses.
func (i *Inspector) Trace(ctx context.Context, key, source string, after map[string]uint64) ([]TraceLine, error) {
	switch source {
	case "":
		source = AnySource
	case DefaultSource:
		source = ""
	}
	all, err := traceQuery.askAll(ctx, i, linesOf{Key: key, Source: source, After: after})
	if err != nil {
		return nil, err
	}
	out := joined(all, func(l *TraceLine, node string) { l.Node, l.Source = node, SourceName(l.Source) })
	var refused error
	for _, r := range all {
		if r.err != nil && (refused == nil || errors.Is(refused, cluster.ErrLost)) {
			refused = r.err // why a node does not trace says more than that one is lost
		}
	}
	if len(silent(all)) == len(all) && refused != nil {
		return nil, refused
	}
	slices.SortStableFunc(out, func(a, b TraceLine) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Number, b.Number))
	})
	return out, nil
}

var verificationQuery = Query[uuid.UUID, *Verification]{"verification",
	func(i *Inspector, _ context.Context, id uuid.UUID) (*Verification, error) {
		if v, found := i.options.Lookup(id); found {
			return &v, nil
		}
		return nil, nil
	}}

// Verification says what the open addresses of a verification wait for. ErrNotThere; an
// Unreachable when a node that does not answer may work on it.
func (i *Inspector) Verification(ctx context.Context, id string) (Verification, error) {
	of, err := uuid.Parse(id)
	if err != nil {
		return Verification{}, ErrNotThere
	}
	all, err := verificationQuery.askAll(ctx, i, of)
	if err != nil {
		return Verification{}, err
	}
	var found *Verification
	for _, r := range all {
		// While a receiver moves, two nodes may have it: the one with more final answers counts.
		if v := r.value; v != nil && (found == nil || v.Final > found.Final) {
			v.Node = r.node
			found = v
		}
	}
	if found == nil {
		return Verification{}, notThere(silent(all))
	}
	return *found, nil
}

// recordAfter asks for the record of the receivers after one.
type recordAfter struct {
	Key string `json:"key,omitempty"`
}

// recordPage is a part of what a node kept.
type recordPage struct {
	Record Record `json:"record"`
	Whole  bool   `json:"whole,omitempty"` // the record ends with these receivers
}

var recordQuery = Query[recordAfter, recordPage]{"record",
	func(i *Inspector, _ context.Context, after recordAfter) (p recordPage, err error) {
		p.Record, p.Whole = i.options.Receivers.Record(time.Now(), after.Key, recordBytes)
		return p, nil
	}}

// Record gathers what all nodes kept of the last hours.
func (i *Inspector) Record(ctx context.Context) ([]Record, []UnreachableNode, error) {
	all, err := recordQuery.askAll(ctx, i, recordAfter{})
	if err != nil {
		return nil, nil, err
	}
	out := []Record{}
	for n := range all {
		r := &all[n]
		if r.err != nil {
			continue
		}
		record, page := r.value.Record, r.value
		record.Node = r.node
		for range recordPages {
			n := len(record.Receivers)
			if page.Whole || n == 0 {
				break
			}
			next := recordQuery.askOne(ctx, i, r.node, recordAfter{record.Receivers[n-1].Key})
			if next.err != nil {
				r.err = next.err // the part that was read counts; the reader sees the error
				break
			}
			page = next.value
			record.Receivers = append(record.Receivers, page.Record.Receivers...)
			record.From = min(record.From, cmp.Or(page.Record.From, record.From))
		}
		out = append(out, record)
	}
	return out, silent(all), nil
}

// nameSources names our sources as people are shown them.
func nameSources(r *Receiver) {
	for i := range r.Sources {
		r.Sources[i].Source = SourceName(r.Sources[i].Source)
	}
	if !r.Last.At.IsZero() {
		r.Last.Source = SourceName(r.Last.Source)
	}
}

// nameAllSources is nameSources for everything about a receiver.
func nameAllSources(d *ReceiverDetail) {
	nameSources(&d.Receiver)
	for i := range d.SessionList {
		d.SessionList[i].Source = SourceName(d.SessionList[i].Source)
	}
	for i := range d.Firings {
		d.Firings[i].Source = SourceName(d.Firings[i].Source)
	}
}

// Health is what one node found of its identity: what receivers hold against a sender.
type Health struct {
	Node     string          `json:"node"`
	This     bool            `json:"this,omitempty"` // it is the node that was asked
	Known    bool            `json:"known"`          // it checks its identity; without that the rest says nothing
	Probing  bool            `json:"probing"`        // it takes probing work now
	Enforced bool            `json:"enforced"`       // it probes only while no check fails
	Why      string          `json:"why,omitempty"`  // a check fails, in one line
	Checked  time.Time       `json:"checked_at,omitzero"`
	Findings []HealthFinding `json:"findings,omitempty"`       // those that are to be seen to first
	More     int             `json:"more,omitempty"`           // findings that were left out
	Unread   int             `json:"unread_replies,omitempty"` // that no rule knew, since the node began
	Foreign  int             `json:"intercepted,omitempty"`    // times that another host answered in place of a receiver
}

// HealthFinding is what one check found at one source.
type HealthFinding struct {
	Check  string `json:"check"`
	Source string `json:"source,omitempty"` // "": it is the same for all, or the source has no address
	List   string `json:"list,omitempty"`   // the block list that was asked
	State  string `json:"state"`            // "fail", "warn", "ok" or "skipped"
	Saw    string `json:"saw"`
	Next   string `json:"next,omitempty"` // what to do
}

const (
	// findingsMax bounds the findings in one answer: more than a node with 50 sources and five block lists has. Guess.
	findingsMax = 500

	// sawMax bounds what a check saw, and what to do, in runes: texts of DNS may be long.
	sawMax = 300
)

// findingOrder is the order of findings: what needs action comes first.
var findingOrder = []string{"fail", "warn", "skipped", "ok"}

var healthQuery = Query[none, Health]{"health", func(i *Inspector, _ context.Context, _ none) (Health, error) {
	return i.ownHealth(), nil
}}

// ownHealth says what this node found of its identity.
func (i *Inspector) ownHealth() Health {
	h := i.options.Health()
	h.Findings = slices.Clone(h.Findings)
	slices.SortStableFunc(h.Findings, func(a, b HealthFinding) int {
		return cmp.Compare(slices.Index(findingOrder, a.State), slices.Index(findingOrder, b.State))
	})
	if n := len(h.Findings); n > findingsMax {
		h.Findings, h.More = h.Findings[:findingsMax], h.More+n-findingsMax
	}
	h.Why = clip(h.Why)
	for n := range h.Findings {
		h.Findings[n].Saw, h.Findings[n].Next = clip(h.Findings[n].Saw), clip(h.Findings[n].Next)
	}
	return h
}

func clip(text string) string {
	if all := []rune(text); len(all) > sawMax {
		return string(all[:sawMax]) + "…"
	}
	return text
}

// Health says what every node found of its identity: this node first, then those that take no probing work, then by
// name. The second value names those that do not answer.
func (i *Inspector) Health(ctx context.Context) ([]Health, []UnreachableNode, error) {
	all, err := healthQuery.askAll(ctx, i, none{})
	if err != nil {
		return nil, nil, err
	}
	out := []Health{}
	for _, r := range all {
		if r.err == nil {
			r.value.Node, r.value.This = r.node, r.node == i.name()
			out = append(out, r.value)
		}
	}
	slices.SortStableFunc(out, func(a, b Health) int {
		return cmp.Or(first(b.This)-first(a.This), first(b.Known && !b.Probing)-first(a.Known && !a.Probing),
			cmp.Compare(a.Node, b.Node))
	})
	return out, silent(all), nil
}

// first is 1 for what comes first.
func first(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// fileNow is the state of a node's throttle file.
type fileNow struct {
	Hash  string `json:"hash"` // of the rules of it that hold
	Fault string `json:"fault,omitempty"`
}

var fileQuery = Query[none, fileNow]{"file", func(i *Inspector, _ context.Context, _ none) (fileNow, error) {
	return i.ownFile(), nil
}}

// ownFile says how this node's throttle file stands.
func (i *Inspector) ownFile() fileNow {
	return fileNow{Hash: throttle.Fingerprint(i.options.Table.Rules(throttle.LayerFile)), Fault: i.options.Fault()}
}

// Files names the nodes with another throttle file than this node, and those whose file cannot be used.
func (i *Inspector) Files(ctx context.Context) ([]OtherFile, []UnreachableNode, error) {
	all, err := fileQuery.askAll(ctx, i, none{})
	if err != nil {
		return nil, nil, err
	}
	own := i.ownFile()
	var out []OtherFile
	for _, r := range all {
		differs := r.value.Hash != own.Hash
		if r.err == nil && (differs || r.value.Fault != "" && r.node != i.name()) {
			out = append(out, OtherFile{Node: r.node, Differs: differs, Fault: r.value.Fault})
		}
	}
	return out, silent(all), nil
}
