package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/http/api"
	"rollcall/ledger"
)

// Cluster is the whole cluster as the answering node knows it. Every node can answer for all nodes. Methods are safe
// for concurrent use and end with ctx.
type Cluster interface {
	// Members returns the present members and those that ended a short while ago. It works while the ledger does not
	// answer.
	Members(ctx context.Context) (Membership, error)

	// Drain asks a node to give its work away and to take none. Errors: ledger.ErrNoSuchNode; any other error means
	// that the ledger did not answer.
	Drain(ctx context.Context, node uuid.UUID) error

	// Undrain makes a drained node take work again. Errors as Drain.
	Undrain(ctx context.Context, node uuid.UUID) error

	// Forget records an operator's statement that a node is dead. Errors: ledger.ErrNoSuchNode, ledger.ErrNodeAlive;
	// any other error means that the ledger did not answer.
	Forget(ctx context.Context, node uuid.UUID) error

	// Keys runs a command about the gossip keys on each member that gossip sees, this one included. It returns the
	// result of each member; a member that did not answer has an Error. ErrNoKeyring: this node's gossip has no keys.
	Keys(ctx context.Context, c KeyCommand) ([]KeyResult, error)
}

// Membership is what one node knows of the cluster.
type Membership struct {
	Cluster string   `json:"cluster"`
	Members []Member `json:"members"` // by name, then by id
	// LedgerAge is how many seconds ago this node last read the nodes' rows in the ledger: heartbeats, loads and ended
	// members are that old. 0 for a node alone.
	LedgerAge float64 `json:"ledger_read_seconds_ago"`
}

// Member is one process of a node. A restarted node is shown with its newest session. An older session is shown too
// while it still counts in the shares of receivers.
type Member struct {
	Node    uuid.UUID `json:"node"`
	Session uuid.UUID `json:"session"`
	Name    string    `json:"name"` // of its certificate, or of its host
	State   State     `json:"state"`
	This    bool      `json:"this"` // the node that answers
	Version string    `json:"version"`
	Actors  string    `json:"actor_address"`  // host:port
	Gossip  string    `json:"gossip_address"` // host:port; "" when gossip does not see it
	Since   api.Time  `json:"since"`          // it is in this state
	// HeartbeatAge is how many seconds ago it last wrote its row in the ledger, by the ledger's clock; null for a single
	// node, or when there is no row.
	HeartbeatAge *float64 `json:"last_heartbeat_seconds_ago"`
	Leases       int      `json:"leases"`    // verifications it works on
	Addresses    int64    `json:"addresses"` // their addresses that are not settled yet
	Receivers    int      `json:"receivers"` // that live there
	Agreed       bool     `json:"view_agreed"`
	// ClockOffset is its clock minus the ledger's, in milliseconds; null when unknown, as for all nodes but the
	// answering one.
	ClockOffset *int64 `json:"clock_offset_ms"`
}

// State is the state of a member.
type State string

// The states of a member. A member has the first one that applies.
const (
	StateLeft       State = "left"       // it left by itself and no longer uses anything
	StateLost       State = "lost"       // it was counted out: no heartbeat for too long
	StateUnseen     State = "unseen"     // it writes heartbeats, but gossip does not see it
	StateSuspect    State = "suspect"    // gossip got no answer from it and asks others
	StateUnlinked   State = "unlinked"   // gossip sees it, but actor traffic gets no answer
	StateDraining   State = "draining"   // it takes no new work
	StateIneligible State = "ineligible" // its identity fails a check: it does not probe
	StateServing    State = "serving"    // all is well
)

// Ended reports whether the member has left the cluster.
func (s State) Ended() bool { return s == StateLeft || s == StateLost }

// KeyOp is an operation on the keyrings of gossip.
type KeyOp string

// The commands about gossip keys.
const (
	KeyList   KeyOp = "list"   // change nothing
	KeyAdd    KeyOp = "add"    // accept a key for decryption
	KeyUse    KeyOp = "use"    // encrypt with this key from now on
	KeyRemove KeyOp = "remove" // forget a key
)

// KeyCommand is one command about gossip keys.
type KeyCommand struct {
	Op          KeyOp
	Key         Secret // 32 bytes; only with KeyAdd
	Fingerprint string // the first 8 hex digits of the key's SHA-256; "" only with KeyList
}

// KeyResult is the keyring of one member after a command.
type KeyResult struct {
	Node    uuid.UUID `json:"node"`
	Name    string    `json:"name"`
	Keys    []string  `json:"keys"`    // fingerprints, the primary's first
	Primary string    `json:"primary"` // the fingerprint of the key that it encrypts with; "" when unknown
	Error   string    `json:"error"`   // why it failed; "" after success. Never holds a key
}

// Secret is the bytes of a gossip key. fmt, logs and JSON never show it.
type Secret []byte

const secretShown = "[secret]"

// Format implements fmt.Formatter for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, secretShown) }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(secretShown), nil }

// clusterTimeout bounds a call that asks other nodes. Guess: twice the time of a slow ledger, and less than the 30 s
// that an operator's command waits.
const clusterTimeout = 20 * time.Second

// NodeCall is a call about one node; "" is the answering one.
type NodeCall struct {
	Node string `json:"node"`
}

// KeyCall is the body of a call about gossip keys: a key in base64, or the fingerprint of one.
type KeyCall struct {
	Op          KeyOp  `json:"op"`
	Key         string `json:"key,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// addRoutes adds the calls about the cluster. A call without a node is about the answering one.
func (d clusterOps) addRoutes(add addCall) {
	node := func(do func(context.Context, string) (Member, error)) http.HandlerFunc {
		return handle(body[NodeCall], func(ctx context.Context, in NodeCall) (Member, error) { return do(ctx, in.Node) })
	}
	add("GET /v1/cluster/members", plainCall(d.Members))
	add("POST /v1/cluster/drain", node(d.Drain))
	add("POST /v1/cluster/undrain", node(d.Undrain))
	add("POST /v1/cluster/forget", node(d.ForgetNode))
	add("GET /v1/cluster/keys", plainCall(func(ctx context.Context) (KeyAnswer, error) {
		return d.changeKeys(ctx, KeyCommand{Op: KeyList})
	}))
	add("POST /v1/cluster/keys", handle(keyCommand, d.changeKeys))
}

// Members returns the members of the cluster.
func (d clusterOps) Members(ctx context.Context) (Membership, error) {
	found, err := ask(ctx, clusterTimeout, d.options.Cluster.Members,
		func(err error) error { return d.ofCluster("list members", err) })
	found.Members = full(found.Members)
	return found, err
}

// Drain drains a node, found by FindNode.
func (d clusterOps) Drain(ctx context.Context, node string) (Member, error) {
	return d.changeNode(ctx, node, nodeChange{name: "drain", done: "drain asked", becomes: "draining",
		ended: "it has no work to give away", do: Cluster.Drain})
}

// Undrain makes a node take work again, found by FindNode.
func (d clusterOps) Undrain(ctx context.Context, node string) (Member, error) {
	return d.changeNode(ctx, node, nodeChange{name: "undrain", done: "undrain asked", becomes: "taking work",
		ended: "it takes work when it is started", do: Cluster.Undrain})
}

// ForgetNode records an operator's statement that a node, found by FindNode, is dead.
func (d clusterOps) ForgetNode(ctx context.Context, node string) (Member, error) {
	return d.changeNode(ctx, node, nodeChange{name: "forget", done: "node forgotten", becomes: "forgotten",
		do: Cluster.Forget})
}

type nodeChange struct {
	name    string // of the command
	done    string // for the node's log
	becomes string // for the operator log
	ended   string // why this change is impossible for a node that has ended; "": it is possible only for such a node
	do      func(Cluster, context.Context, uuid.UUID) error
}

func (d clusterOps) changeNode(ctx context.Context, node string, change nodeChange) (Member, error) {
	return ask(ctx, clusterTimeout, func(ctx context.Context) (Member, error) {
		m, err := d.node(ctx, node, func(m Member) bool { return m.State.Ended() == (change.ended == "") })
		switch {
		case err != nil:
			return Member{}, err
		case change.ended != "" && m.State.Ended():
			return Member{}, refusal(http.StatusConflict, "node_ended",
				fmt.Sprintf("%s is %s: %s", title(m), m.State, change.ended))
		case change.ended == "" && m.This:
			return Member{}, refusal(http.StatusConflict, "node_alive", title(m)+" is the answering node, so it is not dead")
		}
		if err := change.do(d.options.Cluster, ctx, m.Node); err != nil {
			return Member{}, err
		}
		d.options.Log.Info(change.done, "node", m.Node, "name", m.Name)
		d.note(ctx, line("cluster "+change.name, title(m), change.becomes))
		return m, nil
	}, func(err error) error { return d.ofCluster(change.name+" node", err) })
}

// node finds a member. If the text fits several nodes, it prefers those for which likely is true.
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

func (d clusterOps) ofCluster(step string, err error) error {
	switch {
	case errors.Is(err, ErrNoKeyring):
		return refusal(http.StatusConflict, "no_keyring", "the gossip of this node is not encrypted, so there are no "+
			"keys: make one with `rollcall cluster keys new FILE`, set cluster.gossip_key_file on all nodes and "+
			"start them again")
	case errors.Is(err, ledger.ErrNoSuchNode):
		return refusal(http.StatusNotFound, "node_not_found",
			"the ledger no longer has this node; see GET /v1/cluster/members")
	case errors.Is(err, ledger.ErrNodeAlive):
		return refusal(http.StatusConflict, "node_alive", "the node wrote to the ledger a moment ago, so it is alive: "+
			"drain and stop it. A dead one can be forgotten 10 seconds after its last heartbeat")
	}
	d.options.Log.Warn("cluster did not answer", "stage", step, "err", err)
	return refusal(http.StatusServiceUnavailable, "unavailable",
		"the cluster or its ledger did not answer; send the same call again")
}

// nodeTextMax bounds a text that names a node: the longest name of a host (RFC 1035 §2.3.4).
const nodeTextMax = 255

// titlesMax bounds how many nodes a refusal names: as many as a person reads.
const titlesMax = 10

// FindNode returns the member that text means: the one with this id, else with this name in any case, else with an id
// that begins so. An empty text means the answering node. If several nodes fit, it prefers those for which likely is
// true; of a node's sessions it prefers one that has not ended. Errors: ErrNodeUnknown and ErrNodeAmbiguous, which
// name the possible nodes.
func FindNode(members []Member, text string, likely func(Member) bool) (Member, error) {
	fits := fitting(members, strings.ToLower(text), likely)
	switch len(fits) {
	case 1:
		return fits[0], nil
	case 0:
		return Member{}, fmt.Errorf("%w %q; the nodes are: %s", ErrNodeUnknown, text, titles(members))
	}
	return Member{}, fmt.Errorf("%w %q, so give more of the id: %s", ErrNodeAmbiguous, text, titles(fits))
}

// fitting returns one member for each node that a text in lower case may mean.
func fitting(members []Member, text string, likely func(Member) bool) []Member {
	if text == "" {
		return where(members, func(m Member) bool { return m.This })
	}
	for _, fits := range []func(m Member) bool{
		func(m Member) bool { return m.Node.String() == text },
		func(m Member) bool { return strings.ToLower(m.Name) == text },
		func(m Member) bool { return strings.HasPrefix(m.Node.String(), text) },
	} {
		found := where(members, fits)
		if preferred := where(found, likely); len(preferred) > 0 {
			found = preferred
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// where returns the members for which fits is true. If a node has several sessions, it returns the one that has not
// ended.
func where(members []Member, fits func(Member) bool) (found []Member) {
	at := map[uuid.UUID]int{}
	for _, m := range members {
		if !fits(m) {
			continue
		}
		i, there := at[m.Node]
		switch {
		case !there:
			at[m.Node], found = len(found), append(found, m)
		case found[i].State.Ended():
			found[i] = m
		}
	}
	return found
}

func title(m Member) string { return fmt.Sprintf("%s (%s)", m.Name, m.Node) }

func titles(members []Member) string {
	var texts []string
	for _, m := range members {
		if t := title(m); !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
	}
	if more := len(texts) - titlesMax; more > 0 {
		texts = append(texts[:titlesMax], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// keyBytes is the length of a gossip key: that of AES-256.
const keyBytes = 32

// fingerprintBytes is how many bytes of a key's SHA-256 name the key: enough for the few keys of a ring.
const fingerprintBytes = 4

// fingerprintForm is the form of a fingerprint: see KeyCommand.
var fingerprintForm = regexp.MustCompile(`^[0-9a-f]{8}$`)

// KeyAnswer answers the calls about gossip keys.
type KeyAnswer struct {
	Fingerprint string      `json:"fingerprint"` // of the key that the command was about; "" for none
	Results     []KeyResult `json:"results"`     // of every member, by name
}

// changeKeys runs a command about gossip keys on all members. Before it uses or removes a key it asks all of them,
// because a member that lacks the new key could no longer talk to the others.
func (d clusterOps) changeKeys(ctx context.Context, c KeyCommand) (KeyAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	if c.Op == KeyUse || c.Op == KeyRemove {
		before, err := d.options.Cluster.Keys(ctx, KeyCommand{Op: KeyList})
		if err != nil {
			return KeyAnswer{}, d.ofCluster("list gossip keys", err)
		}
		if code, message := unsafe(c, before); code != "" {
			return KeyAnswer{}, refusal(http.StatusConflict, code, message)
		}
	}
	results, err := d.options.Cluster.Keys(ctx, c)
	if err != nil {
		return KeyAnswer{}, d.ofCluster(string(c.Op)+" gossip keys", err)
	}
	answer := KeyAnswer{Fingerprint: c.Fingerprint, Results: make([]KeyResult, len(results))}
	for i, result := range results {
		if c.Op == KeyRemove && len(result.Keys) > 0 && !slices.Contains(result.Keys, c.Fingerprint) {
			result.Error = "" // removed earlier: the command may be repeated for other nodes
		}
		result.Keys = full(result.Keys)
		answer.Results[i] = result
		switch {
		case c.Op == KeyList:
		case result.Error == "":
			d.options.Log.Info("gossip keys changed", "op", c.Op, "fingerprint", c.Fingerprint, "node", result.Node)
		default:
			d.options.Log.Warn("gossip keys not changed", "op", c.Op, "fingerprint", c.Fingerprint,
				"node", result.Node, "err", result.Error)
		}
	}
	if c.Op != KeyList {
		done := len(slices.DeleteFunc(slices.Clone(answer.Results), func(r KeyResult) bool { return r.Error != "" }))
		d.note(ctx, line("cluster keys "+string(c.Op), c.Fingerprint,
			fmt.Sprintf("done on %d of %d nodes", done, len(answer.Results))))
	}
	slices.SortFunc(answer.Results, func(a, b KeyResult) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), bytes.Compare(a.Node[:], b.Node[:]))
	})
	return answer, nil
}

// keyCommand reads {"op","key","fingerprint"}. Refusals never quote the body: it may hold a key, even in a wrong
// place.
func keyCommand(r *http.Request) (c KeyCommand, err error) {
	var in KeyCall
	message := ""
	if readBody(r, &in, bodyMax) != nil {
		message = `the body must be {"op":"add","key":…} or {"op":"use" or "remove","fingerprint":…}`
	}
	key, err := base64.StdEncoding.Strict().DecodeString(in.Key)
	byName := in.Op == KeyUse || in.Op == KeyRemove
	switch {
	case message != "":
	case in.Op != KeyAdd && !byName:
		message = "op must be add, use or remove"
	case in.Op == KeyAdd && (err != nil || len(key) != keyBytes || in.Fingerprint != ""):
		message = "add requires a key, 32 bytes in base64, and no fingerprint"
	case byName && (in.Key != "" || !fingerprintForm.MatchString(in.Fingerprint)):
		message = "use and remove require a fingerprint, 8 hex digits as in GET /v1/cluster/keys, and no key"
	}
	if message != "" {
		return c, invalid(message)
	}
	if in.Op == KeyAdd {
		sum := sha256.Sum256(key)
		in.Fingerprint = hex.EncodeToString(sum[:fingerprintBytes])
	}
	return KeyCommand{Op: in.Op, Key: key, Fingerprint: in.Fingerprint}, nil
}

// unsafe returns why a command would separate members from each other, or "".
func unsafe(c KeyCommand, before []KeyResult) (code, message string) {
	var silent, lacking, using []string
	known := false
	for _, r := range before {
		has := slices.Contains(r.Keys, c.Fingerprint)
		known = known || has
		switch {
		case r.Error != "":
			silent = append(silent, r.Name)
		case !has:
			lacking = append(lacking, r.Name)
		case r.Primary == c.Fingerprint:
			using = append(using, r.Name)
		}
	}
	switch {
	case len(silent) > 0:
		return "node_silent", "some nodes did not report their keys, so nothing was changed; repair or stop these: " +
			strings.Join(silent, ", ")
	case !known:
		return "key_unknown", "no node has a key with this fingerprint; see GET /v1/cluster/keys"
	case c.Op == KeyUse && len(lacking) > 0:
		return "key_missing", "not every node has this key, so nothing was changed: add it first; it is missing on: " +
			strings.Join(lacking, ", ")
	case c.Op == KeyRemove && len(using) > 0:
		return "key_in_use", "nodes still use this key, so nothing was changed: use another one first; used by: " +
			strings.Join(using, ", ")
	}
	return "", ""
}
