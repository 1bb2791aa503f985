package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/view"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

// ErrCandidate says that the text of a candidate file for a replay cannot be read; the
// error says where and why.
var ErrCandidate = errors.New("admin: candidate")

// candidatesMax bounds the body with candidate files: twice what a rule file may have.
const candidatesMax = 2 * rulesMax

// ThrottleFile is how the throttle file of a node stands.
type ThrottleFile struct {
	File   string    `json:"file"`            // "": none is configured
	Loaded *api.Time `json:"loaded_at"`       // when the rules of it were read that hold; null: none were
	Fault  string    `json:"fault,omitempty"` // why the file as it is now is not used: line, column, what to write
}

// ThrottleRules are the rules of all layers: those of the file and of the program as the
// node that answers has them, and the overrides of the cluster.
type ThrottleRules struct {
	Now   api.Time       `json:"now"` // by the ledger's clock, as all times of overrides
	File  ThrottleFile   `json:"file"`
	Rules []ThrottleRule `json:"rules"` // the weakest layer first

	// With files=all only.
	Others []view.OtherFile `json:"others,omitempty"` // nodes whose file differs, or has a fault
	Silent []view.Silent    `json:"silent,omitempty"` // nodes that do not answer
}

// ThrottleRule is what one layer says of one name.
type ThrottleRule struct {
	Layer  string          `json:"layer"`
	Name   string          `json:"name"` // "": everybody
	Fields []ThrottleField `json:"fields"`

	// Of an override only.
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
	Where string `json:"where,omitempty"` // file and line; where a published value was found
	// Beaten is the layer that says the same field of the same name and holds instead; "": this
	// one holds.
	Beaten string `json:"beaten,omitempty"`
}

// OverrideCall is the body of the call that sets an override.
type OverrideCall struct {
	ID      uuid.UUID         `json:"id"` // chosen by the caller: sent again while it holds it is the same override
	Key     string            `json:"key"`
	Fields  map[string]string `json:"fields"`
	Seconds int64             `json:"seconds"`
	Reason  string            `json:"reason"`
	Force   bool              `json:"force"` // also when it allows more than an operator is known to bear
}

// ClearCall is the body of the call that ends overrides before their time.
type ClearCall struct {
	Key    string    `json:"key"`  // "": whatever it is; then there must be an id
	ID     uuid.UUID `json:"id"`   // the nil UUID: all of the key
	Only   string    `json:"only"` // a field: only those that set nothing else
	Reason string    `json:"reason"`
}

// throttleRoutes adds the calls about rules.
func (s *Server) throttleRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/throttle", s.ofTable(s.throttle))
	mux.HandleFunc("POST /v1/throttle/overrides", s.ofTable(s.setOverride))
	mux.HandleFunc("POST /v1/throttle/clear", s.ofTable(s.clearOverrides))
	mux.HandleFunc("POST /v1/throttle/replay", s.replayThrottle)
}

// ofTable refuses a call where there are no rules, and bounds it elsewhere.
func (s *Server) ofTable(call http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.options.Throttle == nil {
			refuse(w, http.StatusConflict, "no_throttle", "this process does not probe: ask another node")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
		defer cancel()
		call(w, r.WithContext(ctx))
	}
}

func (s *Server) throttle(w http.ResponseWriter, r *http.Request) {
	tuning, err := s.options.Book.Tuning(r.Context())
	if err != nil {
		s.fail(w, "list overrides", err)
		return
	}
	out := ThrottleRules{Now: api.Time(tuning.Now), Rules: []ThrottleRule{}}
	if s.options.ThrottleFile != nil {
		out.File = s.options.ThrottleFile()
	}
	for _, layer := range []throttle.Layer{throttle.LayerDefault, throttle.LayerKnown, throttle.LayerFile} {
		for _, rule := range s.options.Throttle.Rules(layer) {
			if shown := ruleOf(layer, rule); len(shown.Fields) > 0 {
				out.Rules = append(out.Rules, shown)
			}
		}
	}
	for _, o := range tuning.Overrides {
		out.Rules = append(out.Rules, overrideOf(o))
	}
	markBeaten(out.Rules)
	if s.options.Survey != nil && r.URL.Query().Get("files") == "all" {
		if out.Others, out.Silent, err = s.options.Survey.Files(r.Context()); err != nil {
			s.failSurvey(w, "compare throttle files", err)
			return
		}
	}
	writeJSON(w, http.StatusOK, out)
}

// markBeaten says of each field which layer says the same and holds instead. The rules come the
// weakest first.
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

// ruleOf shows a rule of the table.
func ruleOf(layer throttle.Layer, rule throttle.Rule) ThrottleRule {
	out := ThrottleRule{Layer: layer.String(), Name: rule.Name, Fields: []ThrottleField{}}
	for _, f := range rule.Set.Fields() {
		out.Fields = append(out.Fields, ThrottleField{Field: f.String(),
			Value: rule.Set.Text(f), Where: rule.WhereOf(f)})
	}
	return out
}

// overrideOf shows an override of the ledger; a field that this version does not know
// stands behind the others.
func overrideOf(o ledger.ThrottleOverride) ThrottleRule {
	created, until := api.Time(o.Created), api.Time(o.Expires)
	out := ThrottleRule{Layer: throttle.LayerOverride.String(), Name: o.Key, ID: o.ID.String(), Author: o.Author,
		Reason: o.Reason, Created: &created, Until: &until, Fields: []ThrottleField{}}
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

// ruleName gives the one form of the name of a rule, also for the key of a receiver.
// A rule for a shard holds for the whole receiver.
func ruleName(key string, set throttle.Override) (string, error) {
	if !strings.HasPrefix(key, throttle.SourcePrefix) {
		key = throttle.NameOf(key)
	}
	if err := (throttle.Rule{Name: key, Set: set}).Check(); err != nil {
		return "", err
	}
	return throttle.CleanName(key)
}

func (s *Server) setOverride(w http.ResponseWriter, r *http.Request) {
	var in OverrideCall
	if !read(w, r, &in) || !named(w, "reason", in.Reason, 1) {
		return
	}
	key, ok := keyOf(w, "key", in.Key)
	if !ok {
		return
	}
	holds, problem := time.Duration(0), ""
	switch least, most := int64(ledger.OverrideMin/time.Second), int64(ledger.OverrideMax/time.Second); {
	case in.ID == uuid.Nil:
		problem = "id must be a UUID of your own for this override; sent again with the same id it is set once"
	case in.Seconds < least || in.Seconds > most:
		problem = fmt.Sprintf("seconds must be a whole number from %d to %d: what shall hold for longer than a month "+
			"belongs into the throttle file", least, most)
	case len(in.Fields) == 0:
		problem = fmt.Sprintf("fields must set at least one of %v", throttle.Fields())
	default:
		holds = time.Duration(in.Seconds) * time.Second
	}
	set, err := throttle.ParseOverride(in.Fields)
	var name string
	if err == nil {
		name, err = ruleName(key, set)
	}
	if problem == "" && err != nil {
		problem = plain(err)
	}
	if problem != "" {
		refuse(w, http.StatusBadRequest, "invalid_request", problem)
		return
	}
	if found := s.loosens(r.Context(), name, set); len(found) > 0 && !in.Force {
		refuse(w, http.StatusConflict, "loosens_known", strings.Join(found,
			"; ")+". Nothing was changed: give --force "+
			"(\"force\":true) if you know that more is borne")
		return
	}
	made, err := s.options.Book.SetOverride(r.Context(), ledger.ThrottleOverride{ID: in.ID, Key: name,
		Fields: set.Texts(), Reason: in.Reason}, holds)
	if err != nil {
		s.failOverride(w, "set override", err)
		return
	}
	s.options.Log.Info("throttle set", "override", made.ID, "key", made.Key, "fields", made.Fields,
		"until", made.Expires, "author", made.Author)
	s.tuned()
	writeJSON(w, http.StatusOK, overrideOf(made))
}

// plain is an error's text without the name of the package that found it.
func plain(err error) string {
	text := err.Error()
	for _, kind := range []error{throttle.ErrLimits, throttle.ErrOverrideName, throttle.ErrRate} {
		text = strings.ReplaceAll(text, kind.Error()+": ", "")
	}
	return text
}

func (s *Server) clearOverrides(w http.ResponseWriter, r *http.Request) {
	var in ClearCall
	if !read(w, r, &in) || !named(w, "reason", in.Reason, 0) {
		return
	}
	name, err := "", error(nil)
	if in.ID == uuid.Nil || in.Key != "" {
		key, ok := keyOf(w, "key", in.Key)
		if !ok {
			return
		}
		name, err = ruleName(key, throttle.Override{})
	}
	if _, known := throttle.ParseField(in.Only); err == nil && in.Only != "" && !known {
		err = fmt.Errorf("only: there is no field %q; the fields are %v", in.Only, throttle.Fields())
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", plain(err))
		return
	}
	ended, err := s.options.Book.ClearOverrides(r.Context(), ledger.Clearing{Key: name, ID: in.ID, Only: in.Only,
		Reason: in.Reason})
	if err != nil {
		s.failOverride(w, "clear overrides", err)
		return
	}
	out := []ThrottleRule{}
	for _, o := range ended {
		out = append(out, overrideOf(o))
		s.options.Log.Info("throttle cleared", "override", o.ID, "key", o.Key, "author", ledger.Author(r.Context()))
	}
	if len(ended) > 0 {
		s.tuned()
	}
	writeJSON(w, http.StatusOK, map[string]any{"cleared": out})
}

// tuned lets this node follow a change at once.
func (s *Server) tuned() {
	if s.options.Tuned != nil {
		s.options.Tuned()
	}
}

// failOverride answers for an error of the ledger about overrides.
func (s *Server) failOverride(w http.ResponseWriter, step string, err error) {
	switch {
	case errors.Is(err, ledger.ErrTooManyOverrides):
		refuse(w, http.StatusConflict, "too_many_overrides",
			fmt.Sprintf("%d overrides hold, and no more are possible: "+
				"clear some (GET /v1/throttle shows them), or write rules that shall stay into the throttle file",
				ledger.OverridesMax))
	case errors.Is(err, ledger.ErrIllegal):
		refuse(w, http.StatusConflict, "conflict", "the id was used for another override, or for this one, which was "+
			"cleared or is over; or a text is too long: use a new id for a new override")
	default:
		s.fail(w, step, err)
	}
}

// loosens says what an override would allow beyond what the operator of a receiver is
// known to bear, by its name and, for a mail domain, by its hosts.
func (s *Server) loosens(ctx context.Context, name string, set throttle.Override) (found []string) {
	if strings.HasPrefix(name, throttle.SourcePrefix) {
		return nil
	}
	var known []knownValue
	for _, e := range s.options.Throttle.Explain(name) {
		for _, said := range e.Said {
			if said.Layer == throttle.LayerKnown {
				known = append(known, knownValue{e.Field, said.Text, said.Name, said.Where})
			}
		}
	}
	if s.options.Survey != nil {
		known = append(known, s.knownByHosts(ctx, name)...)
	}
	told := map[string]bool{}
	for _, k := range known {
		var mine, theirs throttle.Limits
		if !set.Has(k.field) || theirs.Set(k.field, k.text) != nil || !set.Apply(mine).More(theirs, k.field) {
			continue
		}
		text := fmt.Sprintf("%s %s is more than %s is known to bear: %s (%s)", k.field, set.Text(k.field),
			k.name, k.text,
			k.where)
		if !told[text] {
			told[text], found = true, append(found, text)
		}
	}
	return found
}

// knownValue is what is known of an operator.
type knownValue struct {
	field             throttle.Field
	text, name, where string
}

// knownTimeout bounds what a change waits for DNS. Guess: names that nobody has asked
// for yet, from a resolver close by.
const knownTimeout = 3 * time.Second

// knownByHosts looks at where the mail of a domain goes. A name that is no mail domain,
// or DNS that does not answer, adds nothing.
func (s *Server) knownByHosts(ctx context.Context, name string) (known []knownValue) {
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	explained, err := s.options.Survey.Explain(ctx, name)
	if err != nil {
		return nil
	}
	for _, e := range explained.Fields {
		f, ok := throttle.ParseField(e.Field)
		if !ok {
			continue
		}
		for _, said := range append([]view.SaidValue{{Value: e.Value, Said: e.Said}}, e.Beaten...) {
			if said.Layer == throttle.LayerKnown.String() {
				known = append(known, knownValue{f, said.Value, said.Name, said.Where})
			}
		}
	}
	return known
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	name, ok := keyOf(w, "name", r.URL.Query().Get("name"))
	if !ok {
		return
	}
	explain := func() (view.Explanation, error) { return s.options.Survey.Explain(r.Context(), name) }
	if r.URL.Query().Get("by") == "name" {
		explain = func() (view.Explanation, error) { return s.options.Survey.ExplainRules(name) }
	}
	found, err := explain()
	if errors.Is(err, view.ErrNotThere) || errors.Is(err, throttle.ErrOverrideName) {
		refuse(w, http.StatusNotFound, "name_unknown", plain(err)+": give a mail domain, the key of a receiver as "+
			"GET /v1/receivers has them, or source: and one of our addresses")
		return
	}
	if err != nil {
		s.failSurvey(w, "explain", err)
		return
	}
	found.Fields = full(found.Fields)
	writeJSON(w, http.StatusOK, found)
}

// record gathers what the nodes kept, one at a time: of a large cluster that is much memory.
func (s *Server) record(w http.ResponseWriter, r *http.Request) {
	select {
	case s.records <- struct{}{}:
		defer func() { <-s.records }()
	default:
		refuse(w, http.StatusConflict, "record_running",
			"this node is gathering the record for another call; wait for its end, or ask another node")
		return
	}
	found, silent, err := s.options.Survey.Record(r.Context())
	if err != nil {
		s.failSurvey(w, "gather the record", err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"records": full(found), "silent": full(silent)})
}

// replayThrottle runs candidate files over the record. One at a time, as a replay of a
// verification: it takes a core.
func (s *Server) replayThrottle(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Throttle string `json:"throttle"`
		Rules    string `json:"rules"`
	}
	if s.options.ReplayThrottle == nil {
		refuse(w, http.StatusConflict, "no_throttle", "this process does not probe: ask another node")
		return
	}
	if !readMost(w, r, &in, candidatesMax) {
		return
	}
	select {
	case s.replays <- struct{}{}:
		defer func() { <-s.replays }()
	default:
		refuse(w, http.StatusConflict, "replay_running", "another replay of this node is running; wait for its end")
		return
	}
	ctx, cancel := s.longCall(r)
	defer cancel()
	found, err := s.options.ReplayThrottle(ctx, in.Throttle, in.Rules)
	switch {
	case errors.Is(err, ErrCandidate):
		refuse(w, http.StatusBadRequest, "invalid_candidate", strings.TrimPrefix(err.Error(),
			ErrCandidate.Error()+": "))
	case err != nil:
		s.failSurvey(w, "replay the record", err)
	default:
		found.Receivers, found.Verdicts = full(found.Receivers), full(found.Verdicts)
		found.Warnings, found.Silent = full(found.Warnings), full(found.Silent)
		writeJSON(w, http.StatusOK, found)
	}
}
