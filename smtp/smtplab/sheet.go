package smtplab

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// ServeHTTP shows the lab to a referee in another process, as JSON:
//
//	GET /sheet            the manners sheet as it is now (Sheet)
//	GET /events?after=N   the log of events without its first N, one per line (Event)
//
// Both need nothing of the reader: whoever may connect may read, so the socket
// belongs on loopback or a network of tests.
func (l *Lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case "/sheet":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(l.Manners()) // fails when the reader has gone
	case "/events":
		after, err := strconv.Atoi(r.URL.Query().Get("after"))
		if r.URL.Query().Get("after") == "" {
			after, err = 0, nil
		}
		if err != nil || after < 0 {
			http.Error(w, "after is not a number of events", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines := json.NewEncoder(w)
		for _, e := range l.eventsAfter(after) {
			if lines.Encode(e) != nil {
				return
			}
		}
	default:
		http.NotFound(w, r)
	}
}
