package operate

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	waiting "rollcall/actors/inspect"
	"rollcall/http/web"
)

const (
	// rowsShown bounds the table of receivers, and with it the page.
	rowsShown = 200

	// receiversEvery is how often the table is asked for again.
	receiversEvery = "2s"

	findMax = 253 // bytes of a name
)

// states are what a receiver may be, as view.Receiver has them.
var states = []string{"asking", "waiting", "resting", "draining", "paused", "idle"}

// stateOf gives the mark of a state.
func stateOf(word string) web.State {
	switch word {
	case "asking", "used", "serving", "ok":
		return web.StateOf(word, "▸", "done", "")
	case "waiting", "on trial", "spent", "draining", "warn":
		return web.StateOf(word, "…", "warn", "")
	case "resting", "lost", "unfit", "suspect", "unseen", "unlinked", "fail":
		return web.StateOf(word, "!", "invalid", "")
	}
	return web.StateOf(word, "·", "off", "")
}

// receiversView is the table of receivers.
type receiversView struct {
	At       time.Time
	Rows     []waiting.Receiver
	More     int // that fit and are left out
	Silent   []waiting.UnreachableNode
	Asking   int // that are asked now
	HeldBack int // that something keeps from being asked more
	Idle     int // that fit, have nothing to do and are left out
	Nodes    int // where receivers live

	State, Cause, Find string
	States, Causes     []string
	Query              string // the filters
	Every              string
	Any                bool // there is a receiver, whatever the filters say
	Say                string
}

// fits reports whether a row passes the filters.
func (v *receiversView) fits(r waiting.Receiver) bool {
	return (v.State == "" || r.State == v.State) && (v.Cause == "" || r.Cause == v.Cause) && strings.Contains(r.Key, v.Find)
}

// readReceivers asks for the table with the filters of a request.
func (p *Pages) readReceivers(r *request) (receiversView, error) {
	q := r.URL.Query()
	v := receiversView{State: q.Get("state"), Cause: q.Get("cause"), Find: strings.ToLower(strings.TrimSpace(q.Get("find"))),
		States: states, Causes: waiting.Causes[:], Every: receiversEvery}
	v.Find = v.Find[:min(len(v.Find), findMax)]
	v.Query = url.Values{"state": {v.State}, "cause": {v.Cause}, "find": {v.Find}}.Encode()
	found, err := p.desk.Receivers(r.Context())
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

// receiverPath is the page of a receiver.
func receiverPath(key string) string { return "/receivers/" + url.PathEscape(key) }

// longest orders queues, the longest first.
func longest(list []waiting.Queue) {
	slices.SortStableFunc(list, func(a, b waiting.Queue) int { return cmp.Compare(b.Queued, a.Queued) })
}
