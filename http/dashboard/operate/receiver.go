package operate

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	waiting "rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/http/web"
	"rollcall/smtp/throttle"
)

const (
	receiverEvery = "5s"
	traceEvery    = "2s"
	traceShown    = 200 // lines
)

// heldBy says in a sentence what keeps a receiver from being asked more, by its cause.
var heldBy = map[string]string{
	"free":              "Nothing holds it back.",
	"allowance":         "We ask as fast as our own limit of addresses a second allows:",
	"connections":       "We wait because of our own limit of connections:",
	"budget":            "We wait because of our own limit of refusals:",
	"paused":            "We wait because an operator paused it:",
	"penalty":           "We wait because the receiver asked for less:",
	"no healthy source": "We wait because none of our sources can be used:",
	"no share":          "We wait for this node's share of the limits:",
	"unreached":         "We wait because its servers can't be reached:",
}

// heldField is the one field whose value holds a receiver back now; "": none does. A receiver that wanted less of us is
// held back by what it taught us.
func heldField(r waiting.Receiver, fields []waiting.ExplainedField) string {
	value := func(name string) string {
		i := slices.IndexFunc(fields, func(f waiting.ExplainedField) bool { return f.Field == name })
		if i < 0 {
			return ""
		}
		return fields[i].Value
	}
	switch share := value("refused_share"); {
	case r.Cause == "allowance":
		return "rcpt_rate"
	case r.Cause == "connections" && r.Sessions < r.Most:
		return "connection_rate"
	case r.Cause == "connections":
		return "connections"
	case r.Cause == "budget" && r.Budget > 0 && share != "" && share != "0":
		return "refused_share"
	case r.Cause == "budget":
		return "refused_per_hour"
	case r.Cause == "paused":
		return "pause"
	case r.Cause == "penalty":
		if i := slices.IndexFunc(fields, taught); i >= 0 {
			return fields[i].Field
		}
	}
	return ""
}

// taught reports whether the value of a field comes from the receiver's answers and not from a rule.
func taught(f waiting.ExplainedField) bool {
	return f.Layer == throttle.LayerLearned.String() || f.Layer == throttle.LayerPenalty.String()
}

// receiverView is everything about one receiver.
type receiverView struct {
	Key     string
	Path    string
	Places  []placeView // where it lives; empty: nothing is asked of it now
	Limits  limitsView
	Notes   []string
	Taught  bool   // what holds it back is what the receiver taught us, which goes before every rule
	Missing string // why it is not to be seen
	Forgets []string
	Trace   *traceView // what is said now; nil: nobody wants to see it
	Every   string
	Changes bool
	Say     string
}

// placeView is a receiver where it lives.
type placeView struct {
	waiting.ReceiverDetail
	Answer string // whether it takes mail from us, and how fast
	Held   string // what holds it back, in a sentence
	Ends   string // when it goes on; "": not known, or it does
	Hour   web.Chart
}

// placeOf puts into words how it is with a receiver.
func placeOf(d waiting.ReceiverDetail, now time.Time) placeView {
	v := placeView{ReceiverDetail: d, Held: heldBy[d.Cause], Hour: hourOf(d.Minutes)}
	if d.Until.After(now) && d.State != "asking" {
		v.Ends = web.Soon(d.Until, now)
	}
	switch d.State {
	case "asking":
		v.Answer = "Takes mail from us: " + rateText(d.Rcpts) + ", " + web.Plural(d.Queued, "address") + " waiting"
	case "idle":
		v.Answer = "Idle: nothing waits"
	default:
		v.Answer = strings.ToUpper(d.State[:1]) + d.State[1:] + ": " + web.Plural(d.Queued, "address") + " waiting"
	}
	return v
}

const minutesMax = 60

// hourOf draws minutes: accepted, refused and deferred, and the allowed rate as a line.
func hourOf(minutes []waiting.Minute) web.Chart {
	c := web.Chart{Unit: "Addresses asked in a minute"}
	for _, m := range minutes[max(0, len(minutes)-minutesMax):] {
		c.Add(fmt.Sprintf("%s: %d accepted, %d refused, %d deferred, %s allowed", web.Clock(m.At)[:5], m.Accepted, m.Refused,
			m.Deferred, rateText(m.Allowed)), web.Clock(m.At)[:5]+" UTC", web.Bar{Class: "valid", Value: float64(m.Accepted)},
			web.Bar{Class: "invalid", Value: float64(m.Refused)}, web.Bar{Class: "catch_all", Value: float64(m.Deferred)})
		c.Level(60 * m.Allowed)
	}
	return c
}

// readReceiver asks for everything about a receiver. What the rules say is shown also of one that does not live now.
func (p *Pages) readReceiver(r *request) (receiverView, error) {
	key := r.PathValue("key")
	v := receiverView{Key: key, Path: receiverPath(key), Every: receiverEvery, Forgets: waiting.Forgets[:], Changes: !r.in.ReadOnly}
	found, err := p.desk.Receiver(r.Context(), key)
	if err != nil && statusOf(err) != http.StatusNotFound {
		return v, err
	}
	explained, wrong := p.desk.Explain(r.Context(), key, false)
	if wrong != nil {
		if err == nil {
			err = wrong
		}
		return v, err
	}
	v.Notes = explained.Notes
	if err != nil {
		v.Missing = "These limits would apply."
	}
	holds := ""
	for _, f := range found {
		longest(f.Queues)
		v.Places = append(v.Places, placeOf(f, p.now()))
		if f.Cause != "free" {
			holds, v.Say = heldField(f.Receiver, explained.Fields), "Held back by "+f.Cause
		}
	}
	v.Limits = limitsOf(explained.Fields, holds)
	v.Taught = slices.ContainsFunc(explained.Fields, func(f waiting.ExplainedField) bool { return f.Field == holds && taught(f) })
	return v, nil
}

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

// receiver answers GET /receivers/{key}; with ?trace=1 also what is said there now.
func receiver(p *Pages, w http.ResponseWriter, r *request) {
	v, err := p.readReceiver(r)
	if err == nil && r.URL.Query().Get("trace") != "" {
		var lines traceView
		lines, err = p.readTrace(r)
		v.Trace = &lines
	}
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	p.show(w, r, http.StatusOK, "receiver", living(v.Key+" · Receivers", "receivers", v))
}

// closeSession answers POST /receivers/{key}/close. A session that is over already is no fault.
func closeSession(p *Pages, w http.ResponseWriter, r *request) {
	number, _ := strconv.Atoi(r.PostFormValue("session"))
	err := p.desk.CloseSession(r.Context(), admin.CloseCall{Key: r.PathValue("key"), Node: r.PostFormValue("node"),
		Session: number})
	if err != nil && statusOf(err) != http.StatusNotFound {
		p.refuse(w, r, err)
		return
	}
	http.Redirect(w, r.Request, receiverPath(r.PathValue("key")), http.StatusSeeOther)
}

// forget answers POST /receivers/{key}/forget.
func forget(p *Pages, w http.ResponseWriter, r *request) {
	_, err := p.desk.Forget(r.Context(), admin.ForgetCall{Key: r.PathValue("key"), What: r.PostFormValue("what"),
		Reason: web.Text(r.Request, "reason")})
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	http.Redirect(w, r.Request, receiverPath(r.PathValue("key")), http.StatusSeeOther)
}

// traceView is what the sessions of a receiver say, the newest last.
type traceView struct {
	Path  string
	Lines []waiting.TraceLine
	Every string
}

// readTrace asks for the newest lines.
func (p *Pages) readTrace(r *request) (traceView, error) {
	v := traceView{Path: receiverPath(r.PathValue("key")), Every: traceEvery}
	found, err := p.desk.Trace(r.Context(), r.PathValue("key"), "", nil)
	if err != nil {
		return v, err
	}
	slices.SortStableFunc(found.Lines, func(a, b waiting.TraceLine) int { return a.At.Compare(b.At) })
	v.Lines = found.Lines[max(0, len(found.Lines)-traceShown):]
	return v, nil
}

// explainPath is the page that says what holds for a name.
func explainPath(name string) string {
	return "/throttles?" + url.Values{"name": {name}}.Encode()
}
