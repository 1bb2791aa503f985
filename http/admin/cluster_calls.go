package admin

import (
	"context"
	"net/http"
	"time"
)

// clusterTimeout bounds a call that asks other nodes. Guess: twice what a slow
// ledger takes, and less than the 30 s for which an operator's command waits.
const clusterTimeout = 20 * time.Second

// clusterRoutes adds the calls about the cluster.
func (s *Server) clusterRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/cluster/members", s.ofCluster(s.members))
	mux.HandleFunc("POST /v1/cluster/drain", s.ofCluster(s.drainNode))
	mux.HandleFunc("POST /v1/cluster/undrain", s.ofCluster(s.undrainNode))
	mux.HandleFunc("POST /v1/cluster/forget", s.ofCluster(s.forgetNode))
	mux.HandleFunc("GET /v1/cluster/keys", s.ofCluster(s.gossipKeys))
	mux.HandleFunc("POST /v1/cluster/keys", s.ofCluster(s.changeGossipKeys))
}

// ofCluster refuses a call where there is no cluster, and bounds it elsewhere.
func (s *Server) ofCluster(call http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.options.Cluster == nil {
			answer(w, nil, errNoCluster)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), clusterTimeout)
		defer cancel()
		call(w, r.WithContext(ctx))
	}
}

func (s *Server) members(w http.ResponseWriter, r *http.Request) {
	found, err := s.desk.Members(r.Context())
	answer(w, found, err)
}

// drainNode drains the node of the body, or this one when none is named.
func (s *Server) drainNode(w http.ResponseWriter, r *http.Request) { s.ofNode(w, r, s.desk.Drain) }

// undrainNode has the node of the body, or this one when none is named, take work again.
func (s *Server) undrainNode(w http.ResponseWriter, r *http.Request) { s.ofNode(w, r, s.desk.Undrain) }

// forgetNode takes an operator's word that the node of the body is dead.
func (s *Server) forgetNode(w http.ResponseWriter, r *http.Request) {
	s.ofNode(w, r, s.desk.ForgetNode)
}

// ofNode does something with the node of the body.
func (s *Server) ofNode(w http.ResponseWriter, r *http.Request, do func(context.Context, string) (Member, error)) {
	var in struct {
		Node string `json:"node"`
	}
	if !read(w, r, &in) {
		return
	}
	m, err := do(r.Context(), in.Node)
	answer(w, m, err)
}

// failCluster answers for an error of the cluster.
func (s *Server) failCluster(w http.ResponseWriter, step string, err error) {
	answer(w, nil, s.desk.ofCluster(step, err))
}
