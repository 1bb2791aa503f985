package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
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
			refuse(w, http.StatusConflict, "no_cluster", "this process is no node of a cluster: ask another one")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), clusterTimeout)
		defer cancel()
		call(w, r.WithContext(ctx))
	}
}

func (s *Server) members(w http.ResponseWriter, r *http.Request) {
	found, err := s.options.Cluster.Members(r.Context())
	if err != nil {
		s.failCluster(w, "list members", err)
		return
	}
	if found.Members == nil {
		found.Members = []Member{}
	}
	writeJSON(w, http.StatusOK, found)
}

// drainNode drains the node of the body, or this one when none is named.
func (s *Server) drainNode(w http.ResponseWriter, r *http.Request) {
	s.wishNode(w, r, "drain", "draining", "it has nothing that could be given away", s.options.Cluster.Drain)
}

// undrainNode has the node of the body, or this one when none is named, take work again.
func (s *Server) undrainNode(w http.ResponseWriter, r *http.Request) {
	s.wishNode(w, r, "undrain", "taking work", "it takes work when it is started", s.options.Cluster.Undrain)
}

// wishNode says to a node whether an operator wants it to drain.
func (s *Server) wishNode(w http.ResponseWriter, r *http.Request, what, becomes, ended string,
	do func(ctx context.Context, node uuid.UUID) error) {
	m, ok := s.nodeOfBody(w, r, func(m Member) bool { return !m.State.Ended() })
	if !ok {
		return
	}
	if m.State.Ended() {
		refuse(w, http.StatusConflict, "node_ended",
			fmt.Sprintf("%s is %s: %s", title(m), m.State, ended))
		return
	}
	if err := do(r.Context(), m.Node); err != nil {
		s.failCluster(w, what+" node", err)
		return
	}
	s.options.Log.Info(what+" asked", "node", m.Node, "name", m.Name)
	s.note(r.Context(), line("cluster "+what, title(m), becomes))
	writeJSON(w, http.StatusOK, m)
}

// forgetNode takes an operator's word that the node of the body is dead.
func (s *Server) forgetNode(w http.ResponseWriter, r *http.Request) {
	m, ok := s.nodeOfBody(w, r, func(m Member) bool { return m.State.Ended() })
	if !ok {
		return
	}
	if m.This {
		refuse(w, http.StatusConflict, "node_alive", title(m)+" is the node that answers: it is not dead")
		return
	}
	if err := s.options.Cluster.Forget(r.Context(), m.Node); err != nil {
		s.failCluster(w, "forget node", err)
		return
	}
	s.options.Log.Info("node forgotten", "node", m.Node, "name", m.Name)
	s.note(r.Context(), line("cluster forget", title(m), "forgotten"))
	writeJSON(w, http.StatusOK, m)
}

// failCluster answers for an error of the cluster.
func (s *Server) failCluster(w http.ResponseWriter, step string, err error) {
	switch {
	case errors.Is(err, ErrNoKeyring):
		refuse(w, http.StatusConflict, "no_keyring", "the gossip of this node is not encrypted, so there are no "+
			"keys: make one with `rollcall cluster keys new FILE`, set cluster.gossip_key_file on all nodes and "+
			"start them again")
	case errors.Is(err, ledger.ErrNoSuchNode):
		refuse(w, http.StatusNotFound, "node_not_found",
			"the ledger has no such node any more; see GET /v1/cluster/members")
	case errors.Is(err, ledger.ErrNodeAlive):
		refuse(w, http.StatusConflict, "node_alive", "the node wrote to the ledger a moment ago, so it is alive: "+
			"drain and stop it. One that has died can be forgotten 10 seconds after its last beat")
	default:
		s.options.Log.Warn("cluster did not answer", "stage", step, "err", err)
		refuse(w, http.StatusServiceUnavailable, "unavailable",
			"the cluster or its ledger did not answer; send the same call again")
	}
}
