package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

// ErrCandidate: a candidate file for a replay has a fault; the text says where and what.
var ErrCandidate = errors.New("admin: candidate")

// candidateMax bounds the body with a candidate file: twice the bound of a configuration file, because JSON adds
// bytes.
const candidateMax = 4 << 20

// ThrottleFile is the state of a node's throttle file.
type ThrottleFile struct {
	File   string    `json:"file"`            // "": none is configured
	Loaded *api.Time `json:"loaded_at"`       // when the rules in use were read; null: never
	Fault  string    `json:"fault,omitempty"` // why the present file is not used: line, column, what to write
}

// ThrottleRules are the rules of all layers: those of the answering node's file and program, and the overrides of the
// cluster.
type ThrottleRules struct {
	Now   api.Time       `json:"now"` // by the ledger's clock, like all times of overrides
	File  ThrottleFile   `json:"file"`
	Rules []ThrottleRule `json:"rules"` // the weakest layer first

	// Only with files=all.
	Others []inspect.OtherFile       `json:"others,omitempty"` // nodes whose file differs, or has a fault
	Silent []inspect.UnreachableNode `json:"silent,omitempty"` // nodes that do not answer
}

// ThrottleRule is what one layer sets for one name.
type ThrottleRule struct {
	Layer  string          `json:"layer"`
	Name   string          `json:"name"` // "": everybody
	Fields []ThrottleField `json:"fields"`

	// These fields are only for overrides.
	ID      string    `json:"id,omitempty"`
	Author  string    `json:"author,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Created *api.Time `json:"created_at,omitempty"`
	Until   *api.Time `json:"until,omitempty"`
}

// ThrottleField is a field that a rule sets.
type ThrottleField struct {
	Field string `json:"field"`
	Value string `json:"value"`
	Where string `json:"where,omitempty"` // file and line, or the source of a published value
	// Beaten is the stronger layer that sets the same field of the same name; "": this value applies.
	Beaten string `json:"beaten,omitempty"`
}

// OverrideCall is the body of the call that sets an override.
type OverrideCall struct {
	ID      uuid.UUID         `json:"id"` // chosen by the caller: repeating a call with the same id sets the override once
	Key     string            `json:"key"`
	Fields  map[string]string `json:"fields"`
	Seconds int64             `json:"seconds"`
	Reason  string            `json:"reason"`
	Force   bool              `json:"force"` // set it even if it exceeds the known limits of a mail operator
}

// ClearCall is the body of the call that ends overrides before their time.
type ClearCall struct {
	Key    string    `json:"key"`  // "": any, and then ID is required
	ID     uuid.UUID `json:"id"`   // the nil UUID: all overrides of the key
	Only   string    `json:"only"` // a field: only overrides that set nothing else
	Reason string    `json:"reason"`
}

// Cleared are the overrides that a call ended.
type Cleared struct {
	Cleared []ThrottleRule `json:"cleared"`
}

func (d throttleOps) addRoutes(add addCall) {
	type candidate struct {
		Throttle string `json:"throttle"`
	}
	readCandidate := func(r *http.Request) (in candidate, err error) { return in, readBody(r, &in, candidateMax) }
	withFiles := func(r *http.Request) (bool, error) { return r.URL.Query().Get("files") == "all", nil }
	add("GET /v1/throttle", handle(withFiles, d.Throttle))
	query := func(r *http.Request) (url.Values, error) { return r.URL.Query(), nil }
	add("GET /v1/throttle/explain", handle(query,
		func(ctx context.Context, q url.Values) (inspect.Explanation, error) {
			return d.Explain(ctx, q.Get("name"), q.Get("by") == "name")
		}))
	add("POST /v1/throttle/overrides", handle(body[OverrideCall], d.SetOverride))
	add("POST /v1/throttle/clear", handle(body[ClearCall],
		func(ctx context.Context, in ClearCall) (Cleared, error) {
			ended, err := d.ClearOverrides(ctx, in)
			return Cleared{ended}, err
		}))
	add("POST /v1/throttle/replay", handle(readCandidate,
		func(ctx context.Context, in candidate) (inspect.Replayed, error) {
			ctx, cancel := d.longCall(ctx)
			defer cancel()
			return d.ReplayThrottle(ctx, in.Throttle)
		}))
}

// markBeaten sets Beaten for each field. It expects the weakest rules first.
func markBeaten(rules []ThrottleRule) {
	type spoken struct{ name, field string }
	holds := map[spoken]string{}
	for _, r := range slices.Backward(rules) {
		for i := range r.Fields {
			at := spoken{r.Name, r.Fields[i].Field}
			if r.Fields[i].Beaten = holds[at]; holds[at] == "" {
				holds[at] = r.Layer
			}
		}
	}
}

func ruleOf(layer throttle.Layer, rule throttle.Rule) ThrottleRule {
	out := ThrottleRule{Layer: layer.String(), Name: rule.Name, Fields: []ThrottleField{}}
	for _, f := range rule.Set.Fields() {
		out.Fields = append(out.Fields, ThrottleField{Field: f.String(),
			Value: rule.Set.Text(f), Where: rule.WhereOf(f)})
	}
	return out
}

// overrideOf converts an override of the ledger; unknown fields come last.
func overrideOf(o ledger.ThrottleOverride) ThrottleRule {
	out := ThrottleRule{Layer: throttle.LayerOverride.String(), Name: o.Key, ID: o.ID.String(), Author: o.Author,
		Reason: o.Reason, Created: new(api.Time(o.Created)), Until: new(api.Time(o.Expires)), Fields: []ThrottleField{}}
	for _, f := range throttle.Fields() {
		if text, set := o.Fields[f.String()]; set {
			out.Fields = append(out.Fields, ThrottleField{Field: f.String(), Value: text})
		}
	}
	for name, text := range o.Fields {
		if _, known := throttle.ParseField(name); !known {
			out.Fields = append(out.Fields, ThrottleField{Field: name, Value: text})
		}
	}
	return out
}

// daysMost bounds the days of a duration, because nothing here lasts a century.
const daysMost = 36_500

// ParseSpan reads a duration, which may have days: 30m, 2h, 3d.
func ParseSpan(text string) (time.Duration, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseUint(days, 10, 64)
		if err == nil || errors.Is(err, strconv.ErrRange) {
			return time.Duration(min(n, daysMost)) * ledger.Day, nil
		}
	}
	return time.ParseDuration(text)
}

// ruleName returns the canonical name of a rule, also for the key of a receiver.
func ruleName(key string, set throttle.Override) (string, error) {
	if !strings.HasPrefix(key, throttle.SourcePrefix) {
		key = throttle.NameOf(key)
	}
	if err := (throttle.Rule{Name: key, Set: set}).Check(); err != nil {
		return "", err
	}
	return throttle.CleanName(key)
}

// plain returns an error's text without its package prefix.
func plain(err error) string {
	text := err.Error()
	for _, kind := range []error{throttle.ErrLimits, throttle.ErrOverrideName, throttle.ErrRate} {
		text = strings.ReplaceAll(text, kind.Error()+": ", "")
	}
	return text
}

// loosens describes where an override exceeds the known limits of a receiver's operator. It finds these limits by
// name and, for a mail domain, also by its hosts.
func (d throttleOps) loosens(ctx context.Context, name string, set throttle.Override) (found []string) {
	if strings.HasPrefix(name, throttle.SourcePrefix) {
		return nil
	}
	var known []knownValue
	more := false // than holds now
	for _, e := range d.options.Throttle.Explain(name) {
		more = more || isMore(set, e.Field, e.Text)
		for _, said := range e.Said {
			if said.Layer == throttle.LayerKnown {
				known = append(known, knownValue{e.Field, said.Text, said.Name, said.Where})
			}
		}
	}
	byHosts, looked := d.knownByHosts(ctx, name)
	known = append(known, byHosts...)
	if more && !looked {
		found = append(found, "the MX hosts of "+name+" could not be looked up, so it is unknown "+
			"whether this exceeds a known limit")
	}
	told := map[string]bool{}
	for _, k := range known {
		if !isMore(set, k.field, k.text) {
			continue
		}
		text := fmt.Sprintf("%s %s exceeds the known limit of %s: %s (%s)", k.field, set.Text(k.field), k.name, k.text,
			k.where)
		if !told[text] {
			told[text], found = true, append(found, text)
		}
	}
	return found
}

// isMore reports whether an override allows more in a field than a text says.
func isMore(set throttle.Override, field throttle.Field, text string) bool {
	var mine, theirs throttle.Limits
	return set.Has(field) && theirs.Set(field, text) == nil && set.Apply(mine).More(theirs, field)
}

type knownValue struct {
	field             throttle.Field
	text, name, where string
}

// knownTimeout bounds how long a change waits for DNS. Guess: enough for uncached names from a nearby resolver.
const knownTimeout = 3 * time.Second

// knownByHosts looks up the known limits by the MX hosts of a domain. A name that is no mail domain has none. looked
// is false if the lookup failed.
func (d throttleOps) knownByHosts(ctx context.Context, name string) (known []knownValue, looked bool) {
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	explained, err := d.options.Inspector.Explain(ctx, name)
	if err != nil {
		return nil, errors.Is(err, inspect.ErrNotThere)
	}
	for _, e := range explained.Fields {
		f, ok := throttle.ParseField(e.Field)
		if !ok {
			continue
		}
		for _, said := range append([]inspect.SaidValue{{Value: e.Value, Said: e.Said}}, e.Beaten...) {
			if said.Layer == throttle.LayerKnown.String() {
				known = append(known, knownValue{f, said.Value, said.Name, said.Where})
			}
		}
	}
	return known, explained.Domain != "" || strings.ContainsAny(name, ":/") ||
		inspect.HasRule(d.options.Throttle, name)
}

// Throttle returns the rules of all layers, with files also the nodes whose file differs. If the ledger does not
// answer, it returns the rules of the file and the program, and the error.
func (d throttleOps) Throttle(ctx context.Context, files bool) (ThrottleRules, error) {
	out := ThrottleRules{Rules: []ThrottleRule{}}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	out.File = d.options.ThrottleFile()
	for _, layer := range []throttle.Layer{throttle.LayerDefault, throttle.LayerKnown, throttle.LayerFile} {
		for _, rule := range d.options.Throttle.Rules(layer) {
			if shown := ruleOf(layer, rule); len(shown.Fields) > 0 {
				out.Rules = append(out.Rules, shown)
			}
		}
	}
	tuning, err := d.options.Book.Settings(ctx)
	if err != nil {
		markBeaten(out.Rules)
		return out, d.ofLedger("list overrides", err)
	}
	out.Now = api.Time(tuning.Now)
	for _, o := range tuning.Overrides {
		out.Rules = append(out.Rules, overrideOf(o))
	}
	markBeaten(out.Rules)
	if files {
		if out.Others, out.Silent, err = d.options.Inspector.Files(ctx); err != nil {
			return out, d.refuseQuery("compare throttle files", err)
		}
	}
	return out, nil
}

// OverrideCheck is a checked override that was not set.
type OverrideCheck struct {
	Name    string // canonical name of its rule
	Fields  map[string]string
	Loosens []string // how it exceeds the known limits of a mail operator, a sentence each
}

// CheckOverride checks an override without setting it.
func (d throttleOps) CheckOverride(ctx context.Context, in OverrideCall) (OverrideCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	name, set, err := in.parse()
	if err != nil {
		return OverrideCheck{}, err
	}
	return OverrideCheck{Name: name, Fields: set.Texts(), Loosens: d.loosens(ctx, name, set)}, nil
}

// parse checks the call and returns the name and the fields of its rule.
func (in OverrideCall) parse() (name string, set throttle.Override, err error) {
	if err := named("reason", in.Reason, 1); err != nil {
		return "", set, err
	}
	key, err := keyOf("key", in.Key)
	if err != nil {
		return "", set, err
	}
	problem := ""
	switch least, most := int64(ledger.OverrideMin/time.Second), int64(ledger.OverrideMax/time.Second); {
	case in.ID == uuid.Nil:
		problem = "id must be a UUID of your own for this override; sent again with the same id it is set once"
	case in.Seconds < least || in.Seconds > most:
		problem = fmt.Sprintf("seconds must be a whole number from %d to %d: what should last longer than a month "+
			"belongs into the throttle file", least, most)
	case len(in.Fields) == 0:
		problem = fmt.Sprintf("fields must set at least one of %v", throttle.Fields())
	}
	set, err = throttle.ParseOverride(in.Fields)
	if err == nil {
		name, err = ruleName(key, set)
	}
	if problem == "" && err != nil {
		problem = plain(err)
	}
	if problem != "" {
		return "", set, invalid(problem)
	}
	return name, set, nil
}

// SetOverride sets an override. Repeated with the same id, it sets the override once.
func (d throttleOps) SetOverride(ctx context.Context, in OverrideCall) (ThrottleRule, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	name, set, err := in.parse()
	if err != nil {
		return ThrottleRule{}, err
	}
	if found := d.loosens(ctx, name, set); len(found) > 0 && !in.Force {
		return ThrottleRule{}, refusal(http.StatusConflict, "loosens_known", strings.Join(found,
			"; ")+". Nothing was changed: give --force "+
			"(\"force\":true) if you know that more is tolerated")
	}
	made, err := d.options.Book.SetOverride(ctx, ledger.ThrottleOverride{ID: in.ID, Key: name,
		Fields: set.Texts(), Reason: in.Reason}, time.Duration(in.Seconds)*time.Second)
	if err != nil {
		return ThrottleRule{}, d.ofOverride("set override", err)
	}
	d.options.Log.Info("throttle set", "override", made.ID, "key", made.Key, "fields", made.Fields,
		"until", made.Expires, "author", made.Author)
	d.options.Tuned()
	return overrideOf(made), nil
}

// ClearOverrides ends overrides early, and returns those that it ended.
func (d throttleOps) ClearOverrides(ctx context.Context, in ClearCall) ([]ThrottleRule, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if err := named("reason", in.Reason, 0); err != nil {
		return nil, err
	}
	name := ""
	if in.ID == uuid.Nil || in.Key != "" {
		key, err := keyOf("key", in.Key)
		if err != nil {
			return nil, err
		}
		if name, err = ruleName(key, throttle.Override{}); err != nil {
			return nil, invalid(plain(err))
		}
	}
	if _, known := throttle.ParseField(in.Only); in.Only != "" && !known {
		return nil, invalid(
			fmt.Sprintf("only: there is no field %q; the fields are %v", in.Only, throttle.Fields()))
	}
	ended, err := d.options.Book.ClearOverrides(ctx, ledger.Clearing{Key: name, ID: in.ID, Only: in.Only,
		Reason: in.Reason})
	if err != nil {
		return nil, d.ofOverride("clear overrides", err)
	}
	out := []ThrottleRule{}
	for _, o := range ended {
		out = append(out, overrideOf(o))
		d.options.Log.Info("throttle cleared", "override", o.ID, "key", o.Key, "author", ledger.Author(ctx))
	}
	if len(ended) > 0 {
		d.options.Tuned()
	}
	return out, nil
}

// Explain returns the limits of a mail domain, a key or a source; byName uses the rules alone.
func (d throttleOps) Explain(ctx context.Context, text string, byName bool) (inspect.Explanation, error) {
	name, err := keyOf("name", text)
	if err != nil {
		return inspect.Explanation{}, err
	}
	return askNodes(ctx, d.common, "explain", func(ctx context.Context) (found inspect.Explanation, err error) {
		if byName {
			found, err = d.options.Inspector.ExplainRules(name)
		} else {
			found, err = d.options.Inspector.Explain(ctx, name)
		}
		if errors.Is(err, inspect.ErrNotThere) || errors.Is(err, throttle.ErrOverrideName) {
			err = refusal(http.StatusNotFound, "name_unknown", plain(err)+": give a mail domain, the key of a receiver as "+
				"in GET /v1/receivers, or source: and one of our addresses")
		}
		found.Fields = full(found.Fields)
		return found, err
	})
}

func (d throttleOps) ofOverride(step string, err error) error {
	switch {
	case errors.Is(err, ledger.ErrTooManyOverrides):
		return refusal(http.StatusConflict, "too_many_overrides",
			fmt.Sprintf("%d overrides are active, the most allowed: "+
				"clear some (GET /v1/throttle shows them), or write permanent rules into the throttle file",
				ledger.OverridesMax))
	case errors.Is(err, ledger.ErrIllegal):
		return refusal(http.StatusConflict, "conflict", "the id was used for another override, or for this one, which was "+
			"cleared or has ended; or a text is too long: use a new id for a new override")
	}
	return d.ofLedger(step, err)
}

// oneReplay runs a replay unless another replay of this node is running.
func (d throttleOps) oneReplay(run func() (inspect.Replayed, error)) (inspect.Replayed, error) {
	select {
	case d.replays <- struct{}{}:
		defer func() { <-d.replays }()
	default:
		return inspect.Replayed{}, refusal(http.StatusConflict, "replay_running",
			"another replay of this node is running; wait for its end")
	}
	found, err := run()
	switch {
	case errors.Is(err, ErrCandidate):
		return found, refusal(http.StatusBadRequest, "invalid_candidate", strings.TrimPrefix(err.Error(),
			ErrCandidate.Error()+": "))
	case err != nil:
		return found, d.refuseQuery("replay the record", err)
	}
	found.Receivers, found.Warnings, found.Silent = full(found.Receivers), full(found.Warnings), full(found.Silent)
	return found, nil
}

// ReplayThrottle returns what a candidate file would have changed in the nodes' records. One at a time.
func (d throttleOps) ReplayThrottle(ctx context.Context, candidate string) (inspect.Replayed, error) {
	return d.oneReplay(func() (inspect.Replayed, error) { return d.options.ReplayThrottle(ctx, candidate) })
}

// ReplayOverride returns what an override would have changed in the nodes' records. One at a time.
func (d throttleOps) ReplayOverride(ctx context.Context, in OverrideCall) (inspect.Replayed, error) {
	name, set, err := in.parse()
	if err != nil {
		return inspect.Replayed{}, err
	}
	return d.oneReplay(func() (inspect.Replayed, error) { return d.options.ReplayOverride(ctx, name, set) })
}
