package operate

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

const (
	// rowsShown bounds the table of receivers, and with it the page.
	rowsShown = 200

	// receiversEvery is how often the table refreshes.
	receiversEvery = "2s"

	findMax = 253 // bytes of a name
)

// states are the states of a receiver, as in inspect.Receiver.
var states = []string{"asking", "waiting", "suspended", "draining", "paused", "idle"}

func stateOf(word string) web.State {
	switch word {
	case "asking", "used", "serving", "ok":
		return web.StateOf(word, "▸", "done", "")
	case "waiting", "on trial", "spent", "draining", "warn":
		return web.StateOf(word, "…", "warn", "")
	case "suspended", "lost", "ineligible", "suspect", "unseen", "unlinked", "fail":
		return web.StateOf(word, "!", "invalid", "")
	}
	return web.StateOf(word, "·", "off", "")
}

type receiversView struct {
	At       time.Time
	Rows     []inspect.Receiver
	More     int // matching receivers that are not shown
	Silent   []inspect.UnreachableNode
	Asking   int // that are asked now
	HeldBack int // that are held back
	Idle     int // matching receivers that are idle and not shown
	Nodes    int // where receivers live

	State, Cause, Find string
	States, Causes     []string
	Query              string // the filters
	Every              string
	Any                bool // there are receivers, whether or not they match
	Say                string
}

func (v *receiversView) fits(r inspect.Receiver) bool {
	return (v.State == "" || r.State == v.State) && (v.Cause == "" || r.Cause == v.Cause) && strings.Contains(r.Key, v.Find)
}

func (p *Pages) readReceivers(r *request) (receiversView, error) {
	q := r.URL.Query()
	v := receiversView{State: q.Get("state"), Cause: q.Get("cause"), Find: strings.ToLower(strings.TrimSpace(q.Get("find"))),
		States: states, Causes: inspect.Causes[:], Every: receiversEvery}
	v.Find = v.Find[:min(len(v.Find), findMax)]
	v.Query = url.Values{"state": {v.State}, "cause": {v.Cause}, "find": {v.Find}}.Encode()
	found, err := p.service.Receivers(r.Context())
	if err != nil {
		return v, err
	}
	v.At, v.Silent, v.Any = found.At, found.Silent, len(found.Receivers) > 0
	nodes := map[string]bool{}
	for _, row := range found.Receivers {
		nodes[row.Node] = true
		v.Asking += boolOrder(row.State == "asking")
		v.HeldBack += boolOrder(row.Queued > 0 && row.Cause != "free")
		switch {
		case !v.fits(row):
		case row.State == "idle" && v.State == "" && v.Find == "":
			v.Idle++
		case len(v.Rows) < rowsShown:
			v.Rows = append(v.Rows, row)
		default:
			v.More++
		}
	}
	v.More += found.More
	v.Nodes = len(nodes)
	if len(v.Silent) > 0 {
		v.Say = "A node isn't answering."
	}
	return v, nil
}

func receiverPath(key string) string { return "/receivers/" + url.PathEscape(key) }

const (
	receiverEvery = "5s"
	traceEvery    = "2s"
	traceShown    = 200 // lines
)

// heldBy describes, for each cause, why a receiver is not asked more.
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

// heldField returns the field whose value holds a receiver back now, or "". A lower learned limit may be the cause.
func heldField(r inspect.Receiver, fields []inspect.ExplainedField) string {
	value := func(name string) string {
		i := slices.IndexFunc(fields, func(f inspect.ExplainedField) bool { return f.Field == name })
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

// taught reports whether the value of a field was learned from the receiver, not set by a rule.
func taught(f inspect.ExplainedField) bool {
	return f.Layer == throttle.LayerLearned.String() || f.Layer == throttle.LayerPenalty.String()
}

type receiverView struct {
	Key     string
	Path    string
	Places  []placeView // its nodes; empty: the receiver is not asked now
	Limits  limitsView
	Notes   []string
	Taught  bool   // a learned limit, which overrides every rule, holds the receiver back
	Missing string // why it is missing
	Forgets []string
	Trace   *traceView // its sessions' lines; nil: not requested
	Every   string
	Changes bool
	Say     string
}

type placeView struct {
	inspect.ReceiverDetail
	Answer string // whether the receiver accepts mail from us, and how fast
	Held   string // what holds it back, in a sentence
	Ends   string // when the receiver is asked again; "": unknown, or not held back
	Hour   web.Chart
}

func placeOf(d inspect.ReceiverDetail, now time.Time) placeView {
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

// hourOf draws a chart of minutes: accepted, refused and deferred, and the allowed rate as a line.
func hourOf(minutes []inspect.Minute) web.Chart {
	c := web.Chart{Unit: "Addresses asked in a minute"}
	for _, m := range minutes[max(0, len(minutes)-minutesMax):] {
		c.Add(fmt.Sprintf("%s: %d accepted, %d refused, %d deferred, %s allowed", web.Clock(m.At)[:5], m.Accepted, m.Refused,
			m.Deferred, rateText(m.Allowed)), web.Clock(m.At)[:5]+" UTC", web.Bar{Class: "valid", Value: float64(m.Accepted)},
			web.Bar{Class: "invalid", Value: float64(m.Refused)}, web.Bar{Class: "catch_all", Value: float64(m.Deferred)})
		c.Level(60 * m.Allowed)
	}
	return c
}

// readReceiver reads everything about a receiver. If no node asks the receiver, it shows the rules.
func (p *Pages) readReceiver(r *request) (receiverView, error) {
	key := r.PathValue("key")
	v := receiverView{Key: key, Path: receiverPath(key), Every: receiverEvery, Forgets: inspect.Forgets[:], Changes: !r.in.ReadOnly}
	found, err := p.service.Receiver(r.Context(), key)
	if err != nil && statusOf(err) != http.StatusNotFound {
		return v, err
	}
	explained, wrong := p.service.Explain(r.Context(), key, false)
	if wrong != nil {
		return v, cmp.Or(err, wrong)
	}
	v.Notes = explained.Notes
	if err != nil {
		v.Missing = "These limits would apply."
	}
	holds := ""
	for _, f := range found {
		slices.SortStableFunc(f.Queues, func(a, b inspect.Queue) int { return cmp.Compare(b.Queued, a.Queued) })
		v.Places = append(v.Places, placeOf(f, p.now()))
		if f.Cause != "free" {
			holds, v.Say = heldField(f.Receiver, explained.Fields), "Held back by "+f.Cause
		}
	}
	v.Limits = limitsOf(explained.Fields, holds)
	v.Taught = slices.ContainsFunc(explained.Fields, func(f inspect.ExplainedField) bool { return f.Field == holds && taught(f) })
	return v, nil
}

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

// receiver answers GET /receivers/{key}; with ?trace=1 also the lines of its sessions.
func receiver(p *Pages, w http.ResponseWriter, r *request) error {
	v, err := p.readReceiver(r)
	if err == nil && r.URL.Query().Get("trace") != "" {
		var lines traceView
		lines, err = p.readTrace(r)
		v.Trace = &lines
	}
	if err != nil {
		return err
	}
	return p.show(w, r, http.StatusOK, "receiver", refreshing(v.Key+" · Receivers", "receivers", v))
}

// closeSession answers POST /receivers/{key}/close. Closing a session that has ended is no error.
func closeSession(p *Pages, w http.ResponseWriter, r *request) error {
	number, _ := strconv.Atoi(r.PostFormValue("session"))
	err := p.service.CloseSession(r.Context(), admin.CloseCall{Key: r.PathValue("key"), Node: r.PostFormValue("node"),
		Session: number})
	if err != nil && statusOf(err) != http.StatusNotFound {
		return err
	}
	return seeOther(w, r, receiverPath(r.PathValue("key")))
}

func forget(p *Pages, w http.ResponseWriter, r *request) error {
	_, err := p.service.Forget(r.Context(), admin.ForgetCall{Key: r.PathValue("key"), What: r.PostFormValue("what"),
		Reason: web.Text(r.Request, "reason")})
	if err != nil {
		return err
	}
	return seeOther(w, r, receiverPath(r.PathValue("key")))
}

// traceView is the lines of a receiver's sessions, the newest last.
type traceView struct {
	Path  string
	Lines []inspect.TraceLine
	Every string
}

func (p *Pages) readTrace(r *request) (traceView, error) {
	v := traceView{Path: receiverPath(r.PathValue("key")), Every: traceEvery}
	found, err := p.service.Trace(r.Context(), r.PathValue("key"), "", nil)
	if err != nil {
		return v, err
	}
	slices.SortStableFunc(found.Lines, func(a, b inspect.TraceLine) int { return a.At.Compare(b.At) })
	v.Lines = found.Lines[max(0, len(found.Lines)-traceShown):]
	return v, nil
}

func explainPath(name string) string {
	return "/throttles?" + url.Values{"name": {name}}.Encode()
}

const (
	// slowestShown bounds the list of open files on the first page. It shows the worst files; the page Verifications
	// shows all.
	slowestShown = 5

	// slowestWait bounds how long the first page waits for the ledger, so that it shows the receivers even while the
	// ledger hangs. Guess: as long as for nodes.
	slowestWait = 2 * time.Second
)

// slowestView is the list of open files on the first page, in the order of stuckFirst.
type slowestView struct {
	filesView
	More    bool // others are open, too
	Uploads int  // files that wait for their customer's upload, not for us
	Away    bool // the ledger does not answer
}

// receiversPage is the first page: the part that refreshes itself, and the parts read once.
type receiversPage struct {
	receiversView
	Slowest slowestView
}

// readSlowest reads the open files from the ledger. If the ledger does not answer, the page says so and shows its
// other parts.
func (p *Pages) readSlowest(r *request) (v slowestView) {
	ctx, cancel := context.WithTimeout(r.Context(), slowestWait)
	defer cancel()
	found, err := p.service.Open(ctx, openRead)
	if err != nil || len(found) == 0 {
		return slowestView{Away: err != nil}
	}
	names, err := p.names(&request{Request: r.WithContext(ctx)})
	if err != nil {
		return slowestView{Away: true}
	}
	all := len(found)
	found = slices.DeleteFunc(found, func(f ledger.Verification) bool { return f.Status == ledger.Uploading })
	v.Uploads = all - len(found)
	v.More = len(found) > slowestShown
	v.Rows = rowsOf(found, names, p.nodeNames(ctx), p.now(), slowestShown)
	return v
}

func receivers(p *Pages, w http.ResponseWriter, r *request) error {
	v, err := p.readReceivers(r)
	if err != nil {
		return err
	}
	body := refreshing("Receivers", "receivers", receiversPage{v, p.readSlowest(r)})
	return p.show(w, r, http.StatusOK, "receivers", body)
}
