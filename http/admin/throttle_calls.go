package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

// noTable is why there are no rules to show or to change; nil: there are.
func (d throttleOps) noTable() error {
	if d.options.Throttle == nil {
		return errNoThrottle
	}
	return nil
}

// noReplay is why candidate files cannot be tried; nil: they can.
func (d throttleOps) noReplay() error {
	if d.options.ReplayThrottle == nil {
		return errNoThrottle
	}
	return nil
}

// tabled bounds a question about rules; an error where there are none.
func (d throttleOps) tabled(ctx context.Context) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	return ctx, cancel, d.noTable()
}

// Throttle gives the rules of all layers; with files also of which nodes the file differs. When the ledger does not
// answer it gives the rules of the file and of the program beside the error.
func (d throttleOps) Throttle(ctx context.Context, files bool) (ThrottleRules, error) {
	out := ThrottleRules{Rules: []ThrottleRule{}}
	ctx, cancel, err := d.tabled(ctx)
	defer cancel()
	if err != nil {
		return out, err
	}
	if d.options.ThrottleFile != nil {
		out.File = d.options.ThrottleFile()
	}
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
	if d.options.Survey != nil && files {
		if out.Others, out.Silent, err = d.options.Survey.Files(ctx); err != nil {
			return out, d.ofSurvey("compare throttle files", err)
		}
	}
	return out, nil
}

// OverrideCheck is an override that was looked at and not set.
type OverrideCheck struct {
	Name    string // of its rule, in the one form
	Fields  map[string]string
	Loosens []string // what it would allow beyond what an operator is known to bear, a sentence each
}

// CheckOverride says what an override would be, and changes nothing.
func (d throttleOps) CheckOverride(ctx context.Context, in OverrideCall) (OverrideCheck, error) {
	ctx, cancel, err := d.tabled(ctx)
	defer cancel()
	if err != nil {
		return OverrideCheck{}, err
	}
	name, set, err := in.parse()
	if err != nil {
		return OverrideCheck{}, err
	}
	return OverrideCheck{Name: name, Fields: set.Texts(), Loosens: d.loosens(ctx, name, set)}, nil
}

// parse checks the call and gives the name and the fields of its rule.
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
		problem = fmt.Sprintf("seconds must be a whole number from %d to %d: what shall hold for longer than a month "+
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

// SetOverride sets an override; the same id again is the same override.
func (d throttleOps) SetOverride(ctx context.Context, in OverrideCall) (ThrottleRule, error) {
	ctx, cancel, err := d.tabled(ctx)
	defer cancel()
	if err != nil {
		return ThrottleRule{}, err
	}
	name, set, err := in.parse()
	if err != nil {
		return ThrottleRule{}, err
	}
	if found := d.loosens(ctx, name, set); len(found) > 0 && !in.Force {
		return ThrottleRule{}, refusal(http.StatusConflict, "loosens_known", strings.Join(found,
			"; ")+". Nothing was changed: give --force "+
			"(\"force\":true) if you know that more is borne")
	}
	made, err := d.options.Book.SetOverride(ctx, ledger.ThrottleOverride{ID: in.ID, Key: name,
		Fields: set.Texts(), Reason: in.Reason}, time.Duration(in.Seconds)*time.Second)
	if err != nil {
		return ThrottleRule{}, d.ofOverride("set override", err)
	}
	d.options.Log.Info("throttle set", "override", made.ID, "key", made.Key, "fields", made.Fields,
		"until", made.Expires, "author", made.Author)
	d.tuned()
	return overrideOf(made), nil
}

// ClearOverrides ends overrides before their time, and gives those that it ended.
func (d throttleOps) ClearOverrides(ctx context.Context, in ClearCall) ([]ThrottleRule, error) {
	ctx, cancel, err := d.tabled(ctx)
	defer cancel()
	if err == nil {
		err = named("reason", in.Reason, 0)
	}
	if err != nil {
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
		d.tuned()
	}
	return out, nil
}

// Explain says what holds for a mail domain, a key or a source; byName asks the rules alone.
func (d throttleOps) Explain(ctx context.Context, text string, byName bool) (inspect.Explanation, error) {
	return askNodes(ctx, d.common, "explain", func(ctx context.Context, s Survey) (found inspect.Explanation, err error) {
		name, err := keyOf("name", text)
		if err != nil {
			return found, err
		}
		if byName {
			found, err = s.ExplainRules(name)
		} else {
			found, err = s.Explain(ctx, name)
		}
		if errors.Is(err, inspect.ErrNotThere) || errors.Is(err, throttle.ErrOverrideName) {
			err = refusal(http.StatusNotFound, "name_unknown", plain(err)+": give a mail domain, the key of a receiver as "+
				"GET /v1/receivers has them, or source: and one of our addresses")
		}
		found.Fields = full(found.Fields)
		return found, err
	})
}

// ofOverride is the refusal for an error of the ledger about overrides.
func (d throttleOps) ofOverride(step string, err error) error {
	switch {
	case errors.Is(err, ledger.ErrTooManyOverrides):
		return refusal(http.StatusConflict, "too_many_overrides",
			fmt.Sprintf("%d overrides hold, and no more are possible: "+
				"clear some (GET /v1/throttle shows them), or write rules that shall stay into the throttle file",
				ledger.OverridesMax))
	case errors.Is(err, ledger.ErrIllegal):
		return refusal(http.StatusConflict, "conflict", "the id was used for another override, or for this one, which was "+
			"cleared or is over; or a text is too long: use a new id for a new override")
	}
	return d.ofLedger(step, err)
}

// oneReplay runs a replay unless another one of this node runs.
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
		return found, d.ofSurvey("replay the record", err)
	}
	found.Receivers, found.Warnings, found.Silent = full(found.Receivers), full(found.Warnings), full(found.Silent)
	return found, nil
}

// ReplayThrottle says what a candidate file would have made of what the nodes recorded. One at a time.
func (d throttleOps) ReplayThrottle(ctx context.Context, candidate string) (inspect.Replayed, error) {
	if err := d.noReplay(); err != nil {
		return inspect.Replayed{}, err
	}
	return d.oneReplay(func() (inspect.Replayed, error) { return d.options.ReplayThrottle(ctx, candidate) })
}

// ReplayOverride says what an override would have made of what the nodes recorded. One at a time.
func (d throttleOps) ReplayOverride(ctx context.Context, in OverrideCall) (inspect.Replayed, error) {
	if d.options.ReplayOverride == nil {
		return inspect.Replayed{}, errNoThrottle
	}
	name, set, err := in.parse()
	if err != nil {
		return inspect.Replayed{}, err
	}
	return d.oneReplay(func() (inspect.Replayed, error) { return d.options.ReplayOverride(ctx, name, set) })
}
