package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"rollcall/actors/view"
)

// surveyTimeout bounds a call that asks every node: nodes that do not answer within a
// second or two are told of, and DNS may take its time before that.
const surveyTimeout = 15 * time.Second

// keyMax is the longest key of a receiver or name of a rule that is read: a mail domain,
// a suffix and what stands between and before them.
const keyMax = 600

// surveyRoutes adds the calls about what nodes do now.
func (s *Server) surveyRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/receivers", s.ofSurvey(s.receivers))
	mux.HandleFunc("GET /v1/receivers/detail", s.ofSurvey(s.receiver))
	mux.HandleFunc("POST /v1/receivers/close", s.ofSurvey(s.closeSession))
	mux.HandleFunc("POST /v1/receivers/forget", s.ofSurvey(s.forgetReceiver))
	mux.HandleFunc("GET /v1/receivers/trace", s.ofSurvey(s.trace))
	mux.HandleFunc("GET /v1/receivers/trials", s.ofSurvey(s.trials))
	mux.HandleFunc("GET /v1/sources", s.ofSurvey(s.sources))
	mux.HandleFunc("GET /v1/verifications/{id}/waits", s.ofSurvey(s.waits))
	mux.HandleFunc("GET /v1/throttle/explain", s.ofSurvey(s.explain))
	mux.HandleFunc("GET /v1/throttle/record", s.ofSurvey(s.record))
}

// ofSurvey refuses a call where nobody asks the nodes, and bounds it elsewhere.
func (s *Server) ofSurvey(call http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.options.Survey == nil {
			refuse(w, http.StatusConflict, "no_survey", "this process does not probe: ask another node")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), surveyTimeout)
		defer cancel()
		call(w, r.WithContext(ctx))
	}
}

func (s *Server) receivers(w http.ResponseWriter, r *http.Request) {
	found, err := s.options.Survey.Receivers(r.Context())
	if err != nil {
		s.failSurvey(w, "list receivers", err)
		return
	}
	found.Receivers, found.Silent = full(found.Receivers), full(found.Silent)
	for i := range found.Receivers {
		found.Receivers[i].Sources = full(found.Receivers[i].Sources)
	}
	writeJSON(w, http.StatusOK, found)
}

// receiverDetails answers for one receiver: one of it for each node and shard.
type receiverDetails struct {
	Receivers []view.ReceiverDetail `json:"receivers"`
}

func (s *Server) receiver(w http.ResponseWriter, r *http.Request) {
	key, ok := keyOf(w, "key", r.URL.Query().Get("key"))
	if !ok {
		return
	}
	found, err := s.options.Survey.Receiver(r.Context(), key)
	if err != nil {
		s.failReceiver(w, "show receiver", err)
		return
	}
	writeJSON(w, http.StatusOK, receiverDetails{full(found)})
}

// closeSession ends one session; its addresses are asked in another.
func (s *Server) closeSession(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Key     string `json:"key"`
		Node    string `json:"node"`
		Session int    `json:"session"`
	}
	if !read(w, r, &in) {
		return
	}
	key, ok := keyOf(w, "key", in.Key)
	if !ok {
		return
	}
	if len(in.Node) > nodeTextMax || in.Session < 1 {
		refuse(w, http.StatusBadRequest, "invalid_request",
			"session must be the number of a session, and node the name of a node, as `rollcall receivers show` has them")
		return
	}
	session := strings.TrimSpace(fmt.Sprintf("session %d %s", in.Session, in.Node))
	if err := s.options.Survey.CloseSession(r.Context(), key, in.Node, in.Session); err != nil {
		if !errors.Is(err, view.ErrNotThere) {
			// A node that was asked may have closed it although its answer never came.
			s.note(r.Context(), line("session close", key, session+": tried, not known to be closed"))
		}
		s.failReceiver(w, "close session", err)
		return
	}
	s.note(r.Context(), line("session close", key, session))
	s.options.Log.Info("session closed by an operator", "receiver", key, "node", in.Node, "session", in.Session)
	writeJSON(w, http.StatusOK, in)
}

// traced answers with lines of sessions; After is what to ask with for the next ones.
type traced struct {
	Lines []view.TraceLine  `json:"lines"`
	After map[string]uint64 `json:"after"`
}

func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	key, ok := keyOf(w, "key", q.Get("key"))
	if !ok {
		return
	}
	after, err := parseAfter(q.Get("after"))
	if err != nil || len(q.Get("source")) > nodeTextMax {
		refuse(w, http.StatusBadRequest, "invalid_request",
			"after must be the after of an answer, as it is, and source one of our addresses")
		return
	}
	lines, err := s.options.Survey.Trace(r.Context(), key, q.Get("source"), after)
	if err != nil {
		s.failReceiver(w, "trace receiver", err)
		return
	}
	for _, l := range lines {
		after[l.Node] = max(after[l.Node], l.Number)
	}
	writeJSON(w, http.StatusOK, traced{full(lines), after})
}

// trials answers with the logs of trials of a receiver.
func (s *Server) trials(w http.ResponseWriter, r *http.Request) {
	key, ok := keyOf(w, "key", r.URL.Query().Get("key"))
	if !ok {
		return
	}
	lines, silent, err := s.options.Survey.Trials(r.Context(), key)
	if err != nil {
		s.failReceiver(w, "list trials", err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"lines": full(lines), "silent": full(silent)})
}

func (s *Server) sources(w http.ResponseWriter, r *http.Request) {
	found, silent, err := s.options.Survey.Sources(r.Context())
	if err != nil {
		s.failSurvey(w, "list sources", err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"sources": full(found), "silent": full(silent)})
}

// failReceiver is failSurvey for a call about one receiver.
func (s *Server) failReceiver(w http.ResponseWriter, step string, err error) {
	var unheard *view.Unheard
	if errors.As(err, &unheard) {
		refuse(w, http.StatusServiceUnavailable, "node_silent", unheard.Error()+
			": it may live there. Ask again, or see `rollcall cluster members`")
		return
	}
	if errors.Is(err, view.ErrNotThere) {
		refuse(w, http.StatusNotFound, "receiver_not_found",
			"nothing is asked of such a receiver now, or the session "+
				"is over; see GET /v1/receivers for those that live, and GET /v1/throttle/explain for what would hold")
		return
	}
	s.failSurvey(w, step, err)
}

// failSurvey answers for an error of the survey.
func (s *Server) failSurvey(w http.ResponseWriter, step string, err error) {
	s.options.Log.Warn("nodes did not answer", "stage", step, "err", err)
	refuse(w, http.StatusServiceUnavailable, "unavailable",
		"this cannot be answered now: send the same call again; the node's log says why")
}

// keyOf checks the key of a receiver, or the name of a rule or of a source.
func keyOf(w http.ResponseWriter, field, text string) (string, bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" || len(text) > keyMax {
		refuse(w, http.StatusBadRequest, "invalid_request",
			fmt.Sprintf("%s must have 1 to %d characters: a receiver "+
				"as GET /v1/receivers has them, a mail domain, an MX host suffix, or source: and an address", field, keyMax))
		return "", false
	}
	return text, true
}

// full makes an empty list of none, so that programs read [] and not null.
func full[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// nodesMax bounds the nodes that a caller may name. Guess: far more than a cluster has.
const nodesMax = 1000

// parseAfter reads the number of the last line that was seen, by node.
func parseAfter(text string) (after map[string]uint64, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &after)
	}
	if after == nil {
		after = map[string]uint64{}
	}
	if len(after) > nodesMax {
		err = errAfter
	}
	return after, err
}

// errAfter says that somebody asks for more nodes than there can be.
var errAfter = errors.New("admin: too many nodes")
