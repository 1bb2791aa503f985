package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
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
	mux.HandleFunc("GET /v1/sources", s.ofSurvey(s.sources))
	mux.HandleFunc("GET /v1/verifications/{id}/waits", s.ofSurvey(s.waits))
	mux.HandleFunc("GET /v1/throttle/explain", s.ofSurvey(s.explain))
	mux.HandleFunc("GET /v1/throttle/record", s.ofSurvey(s.record))
}

// ofSurvey refuses a call where nobody asks the nodes, and bounds it elsewhere.
func (s *Server) ofSurvey(call http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.options.Survey == nil {
			answer(w, nil, errNoSurvey)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), surveyTimeout)
		defer cancel()
		call(w, r.WithContext(ctx))
	}
}

func (s *Server) receivers(w http.ResponseWriter, r *http.Request) {
	found, err := s.desk.Receivers(r.Context())
	answer(w, found, err)
}

// receiverDetails answers for one receiver: one of it for each node.
type receiverDetails struct {
	Receivers []view.ReceiverDetail `json:"receivers"`
}

func (s *Server) receiver(w http.ResponseWriter, r *http.Request) {
	found, err := s.desk.Receiver(r.Context(), r.URL.Query().Get("key"))
	answer(w, receiverDetails{found}, err)
}

// closeSession ends one session; its addresses are asked in another.
func (s *Server) closeSession(w http.ResponseWriter, r *http.Request) {
	var in CloseCall
	if read(w, r, &in) {
		answer(w, in, s.desk.CloseSession(r.Context(), in))
	}
}

func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if _, err := keyOf("key", q.Get("key")); err != nil {
		answer(w, nil, err)
		return
	}
	after, err := parseAfter(q.Get("after"))
	if err != nil || len(q.Get("source")) > nodeTextMax {
		refuse(w, http.StatusBadRequest, "invalid_request",
			"after must be the after of an answer, as it is, and source one of our addresses")
		return
	}
	found, err := s.desk.Trace(r.Context(), q.Get("key"), q.Get("source"), after)
	answer(w, found, err)
}

func (s *Server) sources(w http.ResponseWriter, r *http.Request) {
	found, silent, err := s.desk.Sources(r.Context())
	answer(w, map[string]any{"sources": found, "silent": silent}, err)
}

// failSurvey answers for an error of the survey.
func (s *Server) failSurvey(w http.ResponseWriter, step string, err error) {
	answer(w, nil, s.desk.ofSurvey(step, err))
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
