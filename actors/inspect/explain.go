package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/mx"
	"rollcall/smtp/throttle"
)

// routeWithin bounds what an explanation waits for DNS. Guess: names that nobody has asked
// for yet, from servers that do not all answer; the rest of the answer needs its time too.
const routeWithin = 6 * time.Second

// ExplainRules returns what the rules of this node say about a name in rules, or the key of a receiver. It asks nobody
// else, not even DNS.
func (i *Inspector) ExplainRules(name string) (Explanation, error) {
	name = strings.TrimSpace(name)
	if !strings.HasPrefix(name, throttle.SourcePrefix) {
		name = throttle.NameOf(name)
	}
	if name == throttle.SourcePrefix+DefaultSource {
		name = throttle.SourcePrefix
	}
	clean, err := throttle.CleanName(name)
	if err != nil {
		return Explanation{}, err
	}
	table := i.options.Table
	return Explanation{Key: clean, Fields: Fields(table.Explain(clean)), Narrower: narrower(table, clean)}, nil
}

// Explain returns the limits of a mail domain, the key of a receiver or one of our sources, by this node's rules, with
// what its receivers have shown and why they pause. When DNS does not answer, it returns the limits of the name itself.
func (i *Inspector) Explain(ctx context.Context, name string) (Explanation, error) {
	name = strings.TrimSpace(name)
	if strings.HasPrefix(name, throttle.SourcePrefix) {
		return i.explainSource(ctx, name)
	}
	out, base := Explanation{Key: name}, ""
	if !strings.ContainsAny(name, ":/") { // else it is a key
		clean, err := throttle.CleanName(name)
		if err != nil {
			return out, err
		}
		out.Key = clean
		if base, err = i.route(ctx, clean, &out); err != nil {
			return out, err
		}
	}
	if base == "" {
		base = baseOf(out.Key)
	}
	table := i.options.Table
	var asked sync.WaitGroup
	asked.Go(func() { _ = i.options.Guard.Run("inspect", func() { i.compare(ctx, &out) }) })
	all, err := i.Receivers(ctx)
	asked.Wait()
	if err != nil {
		return out, err
	}
	living := all.Receivers
	out.Silent = all.Silent
	out.Fields = Fields(table.Explain(out.Key))
	out.Narrower = narrower(table, throttle.NameOf(out.Key))
	out.Beside = beside(table, living, base, out.Key)
	for _, r := range living {
		if r.Key == out.Key {
			out.Receiver = append(out.Receiver, r)
		}
	}
	if len(out.Receiver) > 0 {
		i.taught(ctx, &out)
	}
	return out, nil
}

// compare adds the nodes whose throttle file may differ, this one included.
func (i *Inspector) compare(ctx context.Context, out *Explanation) {
	if fault := i.ownFile().Fault; fault != "" {
		out.Notes = append(out.Notes, "The node that was asked does not use its throttle file as it is now: "+
			strings.TrimSuffix(fault, ".")+".")
	}
	out.Others, _, _ = i.Files(ctx) // the next query names the nodes that don't answer
}

func (i *Inspector) explainSource(ctx context.Context, name string) (Explanation, error) {
	out, err := i.ExplainRules(name)
	if err != nil {
		return out, err
	}
	out.Narrower = nil // no source is another's
	sources, quiet, err := i.Sources(ctx)
	if err != nil {
		return out, err
	}
	out.Silent = quiet
	address := strings.TrimPrefix(out.Key, throttle.SourcePrefix)
	has := func(s Source) bool { return s.Source == address || address == "" && s.Source == DefaultSource }
	if !slices.ContainsFunc(sources, has) {
		who := "No node"
		if len(quiet) > 0 {
			who = "No node that answers"
		}
		out.Notes = append(out.Notes, fmt.Sprintf("%s has the source %s: `rollcall sources` lists all.",
			who, cmp.Or(address, DefaultSource)))
	}
	i.compare(ctx, &out)
	return out, nil
}

// route finds the receiver of a mail domain and returns the operator's own domain. If a name has no mail or is
// unknown to DNS, it is used as the key of a receiver or the name of a rule.
func (i *Inspector) route(ctx context.Context, name string, out *Explanation) (base string, err error) {
	within, cancel := context.WithTimeout(ctx, routeWithin)
	defer cancel()
	r, err := i.options.Route(within, name)
	if ctx.Err() != nil {
		return "", fmt.Errorf("inspect: find where mail for %s goes: %w", name, ctx.Err())
	}
	if err == nil && r.NoMail == smtp.NotSimulated { // what the real one's hosts bear is not known here
		err = errors.New("the receivers are simulated")
	}
	if err != nil {
		why := err.Error()
		if within.Err() != nil {
			why = fmt.Sprintf("it did not answer within %s", routeWithin)
		}
		out.Notes = append(out.Notes, fmt.Sprintf("DNS could not be asked where mail for %s goes: %s. This is what "+
			"holds for the name itself; the rules of its hosts may say more.", name, why))
		return "", nil
	}
	if len(r.Hosts) == 0 {
		if !HasRule(i.options.Table, name) {
			return "", fmt.Errorf("%s takes no mail (%s), and no rule has this name: %w", name, r.NoMail, ErrNotThere)
		}
		return "", nil
	}
	hosts := make([]string, len(r.Hosts))
	for n, h := range r.Hosts {
		hosts[n] = h.Name
	}
	out.Domain, out.Hosts = r.Domain, hosts
	out.Key, _ = i.options.Table.Match(r.Receiver, hosts, r.Domain)
	return r.Receiver, nil
}

// HasRule reports whether a rule, of whatever layer, has a name.
func HasRule(t *throttle.Table, name string) bool {
	return slices.ContainsFunc(ruleLayers[:], func(layer throttle.Layer) bool {
		return slices.ContainsFunc(t.Rules(layer), func(r throttle.Rule) bool { return r.Name == name })
	})
}

// ruleLayers are those in which rules have names.
var ruleLayers = [...]throttle.Layer{throttle.LayerKnown, throttle.LayerFile, throttle.LayerOverride}

// Fields puts what a table explains into views.
func Fields(list []throttle.Explained) []ExplainedField {
	out := make([]ExplainedField, 0, len(list))
	for _, e := range list {
		f := ExplainedField{Field: e.Field.String(), Value: e.Text}
		for i, s := range slices.Backward(e.Said) {
			one := Said{Layer: s.Layer.String(), Name: s.Name, Where: s.Where, ID: s.ID, Author: s.Author,
				Reason: s.Reason, Until: s.Until}
			if i == len(e.Said)-1 {
				f.Said = one
			} else {
				f.Beaten = append(f.Beaten, SaidValue{Value: s.Text, Said: one})
			}
		}
		out = append(out, f)
	}
	return out
}

// narrower returns the names below one that have rules of their own, which take precedence.
func narrower(t *throttle.Table, name string) []string {
	var out []string
	for _, layer := range ruleLayers {
		for _, r := range t.Rules(layer) {
			if name != "" && strings.HasSuffix(r.Name, "."+name) {
				out = append(out, r.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// baseOf is the operator's own domain of a receiver key.
func baseOf(key string) string { return mx.Registrable(throttle.AnchorOf(key)) }

// besideMax bounds the keys that are listed beside one.
const besideMax = 50

// beside returns the keys of receivers that speak to the same operator beside one: each has an allowance of its own.
func beside(t *throttle.Table, living []Receiver, base, key string) []string {
	var out []string
	for _, name := range narrower(t, base) {
		out = append(out, throttle.SuffixKey(name))
	}
	for _, r := range living {
		if baseOf(r.Key) == base {
			out = append(out, r.Key)
		}
	}
	if base != "" {
		out = append(out, base)
	}
	slices.Sort(out)
	out = slices.DeleteFunc(slices.Compact(out), func(k string) bool { return k == key })
	return out[:min(len(out), besideMax)]
}

// taught puts the learned limits and the pauses of the receiver over the allowed values.
func (i *Inspector) taught(ctx context.Context, out *Explanation) {
	details, err := i.Receiver(ctx, out.Key)
	if err != nil {
		return // it is gone since
	}
	for _, d := range details {
		overSoftware(out, d)
		for _, l := range d.Learned {
			over(out, l.Field, l.Value, Said{Layer: throttle.LayerLearned.String(), Where: "node " + d.Node, Until: l.Until})
		}
		for _, s := range d.Sources {
			t := s.Rate
			if t.Phase == "" || t.Phase == string(throttle.PhaseFull) || t.Rate >= t.Ceiling {
				continue
			}
			over(out, throttle.FieldRcptRate.String(), fmt.Sprintf("%.3g/s", t.Rate), Said{Reason: t.Why,
				Layer: throttle.LayerLearned.String(), Where: "node " + d.Node + sourceText(s.Source)})
		}
		if d.State == "suspended" {
			over(out, throttle.FieldPause.String(), string(throttle.PauseYes), Said{
				Layer: throttle.LayerPenalty.String(), Where: "node " + d.Node, Reason: d.Why, Until: d.Until})
		}
	}
}

// overSoftware puts the refusals that a receiver's software tolerates over the fields that the software decides.
func overSoftware(out *Explanation, d ReceiverDetail) {
	s := d.Software
	if s == nil || !s.Decides {
		return
	}
	by := Said{Layer: throttle.LayerKnown.String(), Where: "node " + d.Node, Reason: s.Words() + " (" + s.Where + ")"}
	if s.PerHour > 0 {
		over(out, throttle.FieldRefusedPerHour.String(), strconv.Itoa(s.PerHour), by)
		return
	}
	over(out, throttle.FieldRefusedPerHour.String(), strconv.Itoa(throttle.CountMax), by)
	for _, f := range out.Fields {
		n, err := strconv.Atoi(f.Value)
		if f.Field == throttle.FieldRefusedPerSession.String() && err == nil && s.PerSession <= n {
			over(out, f.Field, strconv.Itoa(s.PerSession), by)
		}
	}
}

// sourceText returns ", source " and the name, to append to another text; "": there is no source.
func sourceText(source string) string {
	if source == "" {
		return ""
	}
	return ", source " + source
}

// over replaces a field's value, and lists the old value as beaten.
func over(out *Explanation, field, value string, by Said) {
	for i := range out.Fields {
		f := &out.Fields[i]
		if f.Field != field {
			continue
		}
		f.Beaten = slices.Insert(f.Beaten, 0, SaidValue{Value: f.Value, Said: f.Said})
		f.Value, f.Said = value, by
	}
}

// Explanation is the limits of a mail domain, a key or one of our sources, and where they come from.
type Explanation struct {
	Domain string           `json:"domain,omitempty"` // that was asked about; "": it was a key
	Hosts  []string         `json:"hosts,omitempty"`  // of its MX, in the order to try
	Key    string           `json:"key"`              // of the receiver
	Fields []ExplainedField `json:"fields"`
	// Keys that speak to the same operator with an allowance of their own.
	Beside   []string          `json:"beside,omitempty"`
	Narrower []string          `json:"narrower,omitempty"` // names below this one with rules that go before its own
	Receiver []Receiver        `json:"receiver,omitempty"` // as it is now, where it lives
	Notes    []string          `json:"notes,omitempty"`    // what else there is to know, in sentences
	Others   []OtherFile       `json:"others,omitempty"`   // nodes that may ask by other rules
	Silent   []UnreachableNode `json:"silent,omitempty"`
}

// OtherFile is a node with another throttle file than the node that was asked, or with one that cannot be used.
type OtherFile struct {
	Node    string `json:"node"`
	Differs bool   `json:"differs"`         // the rules that hold there are others
	Fault   string `json:"fault,omitempty"` // why its file, as it is now, is not used
}

// ExplainedField is a field, its value, and who has set it.
type ExplainedField struct {
	Field string `json:"field"`
	Value string `json:"value"`
	Said
	Beaten []SaidValue `json:"beaten,omitempty"` // what others said, the strongest first
}

// Said is who set a field, and where.
type Said struct {
	Layer  string    `json:"layer"`        // of throttle.Layer
	Name   string    `json:"name"`         // the rule's; "": everybody
	Where  string    `json:"where"`        // file and line; where a published value was found
	ID     string    `json:"id,omitempty"` // of an override
	Author string    `json:"author,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

// SaidValue is a value that somebody set.
type SaidValue struct {
	Value string `json:"value"`
	Said
}
