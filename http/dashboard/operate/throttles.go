package operate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/http/web"
	"rollcall/smtp/throttle"
)

type throttlesView struct {
	Overrides []ruleView
	Layers    []layerView // the strongest first
	File      admin.ThrottleFile
	Loaded    time.Time
	Away      string       // why overrides are not shown
	Explained *explainView // limits of a name; nil: not requested
	Problem   string
	Changes   bool
	Every     string
	Say       string
}

// throttlesEvery is how often the list of overrides refreshes. It counts down in minutes, so most answers are "not
// changed".
const throttlesEvery = "10s"

type layerView struct {
	Name  string
	Rules []ruleView
}

type ruleView struct {
	admin.ThrottleRule
	Title string
	Ends  time.Time
	Hour  bool // it ends within the hour
}

// readThrottles reads the rules of all layers. If the ledger does not answer, it leaves out the overrides.
func (p *Pages) readThrottles(r *request) (throttlesView, error) {
	found, err := p.service.Throttle(r.Context(), false)
	v := throttlesView{File: found.File, Changes: !r.in.ReadOnly, Every: throttlesEvery}
	if err != nil {
		if len(found.Rules) == 0 {
			return v, err
		}
		v.Away = "The ledger isn't answering, so overrides aren't shown. Nodes keep to the overrides that they know until these end."
	}
	if found.File.Loaded != nil {
		v.Loaded = time.Time(*found.File.Loaded)
	}
	ending := 0
	for _, rule := range slices.Backward(found.Rules) {
		shown := p.ruleOf(rule)
		ending += boolOrder(shown.Hour)
		switch {
		case rule.Layer == throttle.LayerOverride.String():
			v.Overrides = append(v.Overrides, shown)
		case len(v.Layers) == 0 || v.Layers[len(v.Layers)-1].Name != rule.Layer:
			v.Layers = append(v.Layers, layerView{rule.Layer, []ruleView{shown}})
		default:
			last := &v.Layers[len(v.Layers)-1]
			last.Rules = append(last.Rules, shown)
		}
	}
	v.Say = fmt.Sprintf("Overrides: %d. Ending within the hour: %d.", len(v.Overrides), ending)
	if v.Away != "" {
		v.Say = "The ledger isn't answering."
	}
	return v, nil
}

// countdown returns the time until then in minutes, so that a list changes only once a minute.
func (p *Pages) countdown(until time.Time) string {
	left := until.Sub(p.now())
	days, hours, minutes := int(left.Hours())/24, int(left.Hours())%24, int(left.Minutes())%60
	switch {
	case left < time.Minute:
		return "less than a minute"
	case left < time.Hour:
		return fmt.Sprintf("%d min", minutes)
	case days < 2:
		return fmt.Sprintf("%d h %d min", 24*days+hours, minutes)
	}
	return fmt.Sprintf("%d days %d h", days, hours)
}

func (p *Pages) ruleOf(rule admin.ThrottleRule) ruleView {
	v := ruleView{ThrottleRule: rule, Title: nameText(rule.Name)}
	if rule.Until != nil {
		v.Ends = time.Time(*rule.Until)
		v.Hour = v.Ends.Sub(p.now()) < time.Hour
	}
	return v
}

func nameText(name string) string {
	switch name {
	case "":
		return "everybody"
	case throttle.SourcePrefix:
		return throttle.SourcePrefix + inspect.DefaultSource
	}
	return name
}

type explainView struct {
	Title  string
	Found  *inspect.Explanation
	Fields []string
	Form   string
	Name   string
	In     overrideForm
}

// limitsView has the fields that a rule sets, and those with built-in defaults.
type limitsView struct{ Own, Defaults fieldsView }

type fieldsView struct {
	Caption string
	Fields  []inspect.ExplainedField
	Holds   string // the field that holds a receiver back; "": none
}

// limitsOf divides the fields. The field that holds a receiver back comes first, whatever its layer.
func limitsOf(fields []inspect.ExplainedField, holds string) limitsView {
	v := limitsView{fieldsView{Caption: "Limits, with who set them", Holds: holds}, fieldsView{Caption: "Built-in defaults"}}
	for _, f := range fields {
		switch {
		case f.Field == holds:
			v.Own.Fields = slices.Insert(v.Own.Fields, 0, f)
		case f.Layer == throttle.LayerDefault.String():
			v.Defaults.Fields = append(v.Defaults.Fields, f)
		default:
			v.Own.Fields = append(v.Own.Fields, f)
		}
	}
	return v
}

func fieldsOf(e *inspect.Explanation) limitsView { return limitsOf(e.Fields, "") }

type overrideForm struct{ Form, Name, Field, Value, For, Reason, Force string }

func formOf(r *request) overrideForm {
	of := func(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }
	return overrideForm{of("form"), of("name"), of("field"), of("value"), of("for"), of("reason"), of("force")}
}

func (f overrideForm) call() (admin.OverrideCall, error) {
	id, err := uuid.Parse(f.Form)
	if err != nil {
		return admin.OverrideCall{}, errors.New("the form is too old: fill it in again")
	}
	holds, err := parseHolds(f.For)
	if err != nil {
		return admin.OverrideCall{}, err
	}
	return admin.OverrideCall{ID: id, Key: f.Name, Fields: map[string]string{f.Field: f.Value}, Seconds: int64(holds / time.Second),
		Reason: f.Reason, Force: f.Force == "yes"}, nil
}

// parseHolds reads how long an override holds.
func parseHolds(text string) (time.Duration, error) {
	d, err := admin.ParseSpan(text)
	if err != nil || d <= 0 {
		err = fmt.Errorf("%q is not a length of time: write 30m, 2h or 3d", text)
	}
	return d, err
}

// throttles answers GET /throttles; with ?name= also its limits, their layers, and a form for an override.
func throttles(p *Pages, w http.ResponseWriter, r *request) error {
	q := r.URL.Query()
	in := overrideForm{Name: strings.TrimSpace(q.Get("name")), Field: q.Get("field")}
	return p.showThrottles(w, r, http.StatusOK, in, "")
}

func (p *Pages) showThrottles(w http.ResponseWriter, r *request, status int, in overrideForm, problem string) error {
	v, err := p.readThrottles(r)
	v.Problem = problem
	if err == nil && in.Name != "" {
		var found inspect.Explanation
		found, err = p.service.Explain(r.Context(), in.Name, false)
		v.Explained = &explainView{Name: in.Name, Title: nameText(in.Name), Form: uuid.NewString(), In: in, Found: &found}
		for _, f := range throttle.Fields() {
			v.Explained.Fields = append(v.Explained.Fields, f.String())
		}
	}
	if err != nil {
		return err
	}
	title := "Throttles"
	if in.Name != "" {
		title = nameText(in.Name) + " · " + title
	}
	return p.show(w, r, status, "throttles", refreshing(title, "throttles", v))
}

type previewView struct {
	In       overrideForm
	Title    string
	Ends     time.Time
	Was      inspect.ExplainedField
	Loosens  []string
	Replayed *inspect.Replayed // nil: the last hours could not be replayed
	Why      string            // and why
}

// preview answers POST /throttles/preview: it shows what an override would change, and changes nothing.
func preview(p *Pages, w http.ResponseWriter, r *request) error {
	in := formOf(r)
	call, err := in.call()
	if err != nil {
		return p.showThrottles(w, r, http.StatusUnprocessableEntity, in, web.Sentence(err.Error()))
	}
	checked, err := p.service.CheckOverride(r.Context(), call)
	if err != nil {
		return p.wrongOverride(w, r, in, err)
	}
	v := previewView{In: in, Title: nameText(checked.Name), Loosens: checked.Loosens,
		Ends: p.now().Add(time.Duration(call.Seconds) * time.Second)}
	v.In.Value = checked.Fields[in.Field]
	found, err := p.service.Explain(r.Context(), checked.Name, true)
	if err != nil {
		return err
	}
	for _, f := range found.Fields {
		if f.Field == in.Field {
			v.Was = f
		}
	}
	if replayed, err := p.service.ReplayOverride(r.Context(), call); err != nil {
		v.Why = "We can't say what it would have changed in the last hours: " + plainly(err) + "."
	} else {
		v.Replayed = &replayed
	}
	return p.show(w, r, http.StatusOK, "preview", titled("Review the override", "throttles", v))
}

// setOverride answers POST /throttles/set. A repeated form sets the override once.
func setOverride(p *Pages, w http.ResponseWriter, r *request) error {
	in := formOf(r)
	call, err := in.call()
	if err != nil {
		return p.showThrottles(w, r, http.StatusUnprocessableEntity, in, web.Sentence(err.Error()))
	}
	if _, err := p.service.SetOverride(r.Context(), call); err != nil {
		return p.wrongOverride(w, r, in, err)
	}
	return seeOther(w, r, explainPath(in.Name))
}

func (p *Pages) wrongOverride(w http.ResponseWriter, r *request, in overrideForm, err error) error {
	if refused, ok := errors.AsType[*admin.Refusal](err); ok && refused.Status < http.StatusInternalServerError {
		return p.showThrottles(w, r, http.StatusUnprocessableEntity, in, sentence(refused))
	}
	return err
}

// clearOverrides answers POST /throttles/clear. Clearing an override that has ended is no error.
func clearOverrides(p *Pages, w http.ResponseWriter, r *request) error {
	reason := web.Text(r.Request, "reason")
	id, err := uuid.Parse(r.PostFormValue("id"))
	if err != nil || reason == "" {
		return p.showThrottles(w, r, http.StatusUnprocessableEntity, overrideForm{},
			"Say why the override ends: the operator log keeps it.")
	}
	if _, err := p.service.ClearOverrides(r.Context(), admin.ClearCall{ID: id, Reason: reason}); err != nil {
		return err
	}
	return seeOther(w, r, "/throttles")
}

// statusOf returns the status of a refusal, or 0 for other errors.
func statusOf(err error) int {
	if refused, ok := errors.AsType[*admin.Refusal](err); ok {
		return refused.Status
	}
	return 0
}
