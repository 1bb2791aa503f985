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
	"rollcall/http/dashboard/view"
	"rollcall/smtp/throttle"
)

const (
	receiverEvery = "5s"
	traceEvery    = "2s"
	traceShown    = 200 // lines
)

// heldBy are the fields that set what a cause counts.
var heldBy = map[string][]string{
	"allowance": {"rcpt_rate"}, "connections": {"connections", "connection_rate"},
	"budget": {"refused_per_hour", "refused_share", "refused_per_session"}, "paused": {"pause"},
}

// heldFields are the fields whose values a cause counts. A receiver that wanted less of us is held back by what it taught us.
func heldFields(cause string, fields []waiting.ExplainedField) []string {
	if cause != penalty {
		return heldBy[cause]
	}
	var held []string
	for _, f := range fields {
		if taught(f) {
			held = append(held, f.Field)
		}
	}
	return held
}

// penalty is the cause of a receiver that wanted less of us, a word of view.Causes.
const penalty = "penalty"

// taught reports whether the value of a field comes from the receiver's answers and not from a rule.
func taught(f waiting.ExplainedField) bool {
	return f.Layer == throttle.LayerLearned.String() || f.Layer == throttle.LayerPenalty.String()
}

// receiverView is everything about one receiver.
type receiverView struct {
	Key     string
	Path    string
	At      time.Time
	Places  []placeView // where it lives; empty: nothing is asked of it now
	Fields  []waiting.ExplainedField
	Learned bool // something was learned that may be forgotten
	Notes   []string
	Holds   map[string]bool // fields that hold it back now
	Taught  bool            // one of them is what the receiver taught us, which goes before every rule
	Missing string          // why it is not to be seen
	Forgets []string
	Every   string
	Changes bool
	Say     string
}

// placeView is a receiver where it lives.
type placeView struct {
	waiting.ReceiverDetail
	Hour hourView
}

// hourView is the last hour as a chart.
type hourView struct {
	Width, Height int
	Bars          []barView
	Allowed       string // points of a line
	Most          int    // addresses in one minute, the top of the chart
}

// barView is a part of a bar.
type barView struct{ Class, X, Y, Height string }

const (
	minuteWidth = 10
	hourHeight  = 100
	minutesMax  = 60
)

// hourOf draws minutes: accepted, refused, put off, and the rest that was asked.
func hourOf(minutes []waiting.Minute) hourView {
	minutes = minutes[max(0, len(minutes)-minutesMax):]
	h := hourView{Width: minuteWidth * minutesMax, Height: hourHeight, Most: 1}
	for _, m := range minutes {
		h.Most = max(h.Most, m.Asked, m.Accepted+m.Refused+m.Deferred)
	}
	scale := float64(hourHeight) / float64(h.Most)
	var points []string
	for i, m := range minutes {
		x, top := (minutesMax-len(minutes)+i)*minuteWidth, float64(hourHeight)
		for _, part := range []struct {
			class string
			n     int
		}{{"valid", m.Accepted}, {"invalid", m.Refused}, {"catch_all", m.Deferred}} {
			height := scale * float64(part.n)
			top -= height
			if part.n > 0 {
				h.Bars = append(h.Bars, barView{part.class, strconv.Itoa(x), fmt.Sprintf("%.1f", top), fmt.Sprintf("%.1f", height)})
			}
		}
		y := float64(hourHeight) - min(float64(hourHeight), scale*60*m.Allowed)
		points = append(points, fmt.Sprintf("%d,%.1f %d,%.1f", x, y, x+minuteWidth, y))
	}
	h.Allowed = strings.Join(points, " ")
	return h
}

// readReceiver asks for everything about a receiver. What the rules say is shown also of one that does not live now.
func (p *Pages) readReceiver(r *request) (receiverView, error) {
	key := r.PathValue("key")
	v := receiverView{Key: key, Path: receiverPath(key), At: p.now(), Every: receiverEvery, Forgets: waiting.Forgets[:],
		Changes: !r.in.ReadOnly, Holds: map[string]bool{}}
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
	v.Fields, v.Notes = explained.Fields, explained.Notes
	if err != nil {
		v.Missing = "It isn't in use now. These limits would apply."
	}
	for _, f := range found {
		longest(f.Queues)
		v.Places = append(v.Places, placeView{f, hourOf(f.Minutes)})
		v.Learned = v.Learned || len(f.Learned) > 0
		for _, field := range heldFields(f.Cause, v.Fields) {
			v.Holds[field] = true
		}
		if f.Cause != "free" {
			v.Say = "Held back by " + f.Cause
		}
	}
	v.Taught = slices.ContainsFunc(v.Fields, func(f waiting.ExplainedField) bool { return v.Holds[f.Field] && taught(f) })
	slices.SortStableFunc(v.Fields, func(a, b waiting.ExplainedField) int {
		return boolOrder(v.Holds[b.Field]) - boolOrder(v.Holds[a.Field])
	})
	return v, nil
}

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

// receiver answers GET /receivers/{key}.
func receiver(p *Pages, w http.ResponseWriter, r *request) {
	v, err := p.readReceiver(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	p.show(w, r, http.StatusOK, "receiver", &frame{Here: "receivers", Body: v,
		Frame: view.Frame{Title: v.Key + " · Receivers", Live: true}})
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
		Reason: strings.TrimSpace(r.PostFormValue("reason"))})
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	http.Redirect(w, r.Request, receiverPath(r.PathValue("key")), http.StatusSeeOther)
}

// traceView is what the sessions of a receiver say, the newest last.
type traceView struct {
	Key, Path string
	Lines     []waiting.TraceLine
	Every     string
	Say       string
}

// readTrace asks for the newest lines.
func (p *Pages) readTrace(r *request) (traceView, error) {
	v := traceView{Key: r.PathValue("key"), Path: receiverPath(r.PathValue("key")), Every: traceEvery}
	found, err := p.desk.Trace(r.Context(), v.Key, "", nil)
	if err != nil {
		return v, err
	}
	slices.SortStableFunc(found.Lines, func(a, b waiting.TraceLine) int { return a.At.Compare(b.At) })
	v.Lines = found.Lines[max(0, len(found.Lines)-traceShown):]
	return v, nil
}

// trace answers GET /receivers/{key}/trace.
func trace(p *Pages, w http.ResponseWriter, r *request) {
	v, err := p.readTrace(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	p.show(w, r, http.StatusOK, "trace", &frame{Here: "receivers", Body: v,
		Frame: view.Frame{Title: "Trace of " + v.Key, Live: true}})
}

// explainPath is the page that says what holds for a name.
func explainPath(name string) string {
	return "/throttles/explain?" + url.Values{"name": {name}}.Encode()
}
