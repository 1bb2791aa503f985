package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"rollcall/ledger"
)

// clusterTimeout bounds a call that asks other nodes. Guess: twice what a slow
// ledger takes, and less than the 30 s for which an operator's command waits.
const clusterTimeout = 20 * time.Second

// addRoutes adds the calls about the cluster. A call about a node is about the one that answers when none is named.
func (d clusterOps) addRoutes(add addCall) {
	add = add.unless(d.noCluster)
	type about struct {
		Node string `json:"node"`
	}
	node := func(do func(context.Context, string) (Member, error)) http.HandlerFunc {
		return handle(body[about], func(ctx context.Context, in about) (Member, error) { return do(ctx, in.Node) })
	}
	add("GET /v1/cluster/members", handle(nothing, func(ctx context.Context, _ struct{}) (Membership, error) {
		return d.Members(ctx)
	}))
	add("POST /v1/cluster/drain", node(d.Drain))
	add("POST /v1/cluster/undrain", node(d.Undrain))
	add("POST /v1/cluster/forget", node(d.ForgetNode))
	add("GET /v1/cluster/keys", handle(nothing, func(ctx context.Context, _ struct{}) (KeyAnswer, error) {
		return d.changeKeys(ctx, KeyCommand{Op: KeyList})
	}))
	add("POST /v1/cluster/keys", handle(keyCommand, d.changeKeys))
}

// noCluster is why no cluster can be asked; nil: one can.
func (d clusterOps) noCluster() error {
	if d.options.Cluster == nil {
		return errNoCluster
	}
	return nil
}

// clustered bounds a question to the cluster; an error when there is none.
func (d clusterOps) clustered(ctx context.Context) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	return ctx, cancel, d.noCluster()
}

// Members gives the members of the cluster.
func (d clusterOps) Members(ctx context.Context) (Membership, error) {
	ctx, cancel, err := d.clustered(ctx)
	defer cancel()
	if err != nil {
		return Membership{}, err
	}
	found, err := d.options.Cluster.Members(ctx)
	if err != nil {
		return found, d.ofCluster("list members", err)
	}
	found.Members = full(found.Members)
	return found, nil
}

// Drain drains a node, named as FindNode takes it.
func (d clusterOps) Drain(ctx context.Context, node string) (Member, error) {
	return d.wish(ctx, node, true)
}

// Undrain has a node take work again, named as FindNode takes it.
func (d clusterOps) Undrain(ctx context.Context, node string) (Member, error) {
	return d.wish(ctx, node, false)
}

// wish says to a node whether an operator wants it to drain.
func (d clusterOps) wish(ctx context.Context, node string, drain bool) (Member, error) {
	ctx, cancel, err := d.clustered(ctx)
	defer cancel()
	if err != nil {
		return Member{}, err
	}
	what, becomes, ended, do := "undrain", "taking work", "it takes work when it is started", d.options.Cluster.Undrain
	if drain {
		what, becomes, ended, do = "drain", "draining", "it has nothing that could be given away", d.options.Cluster.Drain
	}
	m, err := d.node(ctx, node, func(m Member) bool { return !m.State.Ended() })
	if err != nil {
		return Member{}, err
	}
	if m.State.Ended() {
		return Member{}, refusal(http.StatusConflict, "node_ended", fmt.Sprintf("%s is %s: %s", title(m), m.State, ended))
	}
	if err := do(ctx, m.Node); err != nil {
		return Member{}, d.ofCluster(what+" node", err)
	}
	d.options.Log.Info(what+" asked", "node", m.Node, "name", m.Name)
	d.note(ctx, line("cluster "+what, title(m), becomes))
	return m, nil
}

// ForgetNode takes an operator's word that a node is dead, named as FindNode takes it.
func (d clusterOps) ForgetNode(ctx context.Context, node string) (Member, error) {
	ctx, cancel, err := d.clustered(ctx)
	defer cancel()
	if err != nil {
		return Member{}, err
	}
	m, err := d.node(ctx, node, func(m Member) bool { return m.State.Ended() })
	if err != nil {
		return Member{}, err
	}
	if m.This {
		return Member{}, refusal(http.StatusConflict, "node_alive", title(m)+" is the node that answers: it is not dead")
	}
	if err := d.options.Cluster.Forget(ctx, m.Node); err != nil {
		return Member{}, d.ofCluster("forget node", err)
	}
	d.options.Log.Info("node forgotten", "node", m.Node, "name", m.Name)
	d.note(ctx, line("cluster forget", title(m), "forgotten"))
	return m, nil
}

// node finds a member. Where the text fits several nodes, those that are likely come first.
func (d clusterOps) node(ctx context.Context, text string, likely func(Member) bool) (Member, error) {
	if len(text) > nodeTextMax {
		return Member{}, refusal(http.StatusBadRequest, "invalid_request",
			fmt.Sprintf("node must have at most %d characters", nodeTextMax))
	}
	known, err := d.options.Cluster.Members(ctx)
	if err != nil {
		return Member{}, d.ofCluster("list members", err)
	}
	m, err := FindNode(known.Members, text, likely)
	switch {
	case errors.Is(err, ErrNodeUnknown):
		return Member{}, refusal(http.StatusNotFound, "node_not_found", err.Error())
	case err != nil:
		return Member{}, refusal(http.StatusConflict, "node_ambiguous", err.Error())
	}
	return m, nil
}

// ofCluster is the refusal for an error of the cluster.
func (d clusterOps) ofCluster(step string, err error) error {
	switch {
	case errors.Is(err, ErrNoKeyring):
		return refusal(http.StatusConflict, "no_keyring", "the gossip of this node is not encrypted, so there are no "+
			"keys: make one with `rollcall cluster keys new FILE`, set cluster.gossip_key_file on all nodes and "+
			"start them again")
	case errors.Is(err, ledger.ErrNoSuchNode):
		return refusal(http.StatusNotFound, "node_not_found",
			"the ledger has no such node any more; see GET /v1/cluster/members")
	case errors.Is(err, ledger.ErrNodeAlive):
		return refusal(http.StatusConflict, "node_alive", "the node wrote to the ledger a moment ago, so it is alive: "+
			"drain and stop it. One that has died can be forgotten 10 seconds after its last beat")
	}
	d.options.Log.Warn("cluster did not answer", "stage", step, "err", err)
	return refusal(http.StatusServiceUnavailable, "unavailable",
		"the cluster or its ledger did not answer; send the same call again")
}
