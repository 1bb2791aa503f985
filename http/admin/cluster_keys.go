package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// keyBytes is the length of a gossip key: that of AES-256.
const keyBytes = 32

// fingerprintBytes of a key's SHA-256 name it: enough for the few keys of a ring.
const fingerprintBytes = 4

// fingerprintForm is what names a key: see KeyCommand.
var fingerprintForm = regexp.MustCompile(`^[0-9a-f]{8}$`)

// KeyAnswer answers the calls about gossip keys.
type KeyAnswer struct {
	Fingerprint string      `json:"fingerprint"` // of the key that the command was about; "" for none
	Results     []KeyResult `json:"results"`     // of every member, by name
}

func (s *Server) gossipKeys(w http.ResponseWriter, r *http.Request) {
	s.doKeys(r.Context(), w, KeyCommand{Op: KeyList})
}

// changeGossipKeys does a command about keys on all members. Before it uses or
// removes a key it asks all of them, since a key that one lacks would split them.
func (s *Server) changeGossipKeys(w http.ResponseWriter, r *http.Request) {
	c, ok := keyCommand(w, r)
	if !ok {
		return
	}
	if c.Op == KeyUse || c.Op == KeyRemove {
		before, err := s.options.Cluster.Keys(r.Context(), KeyCommand{Op: KeyList})
		if err != nil {
			s.failCluster(w, "list gossip keys", err)
			return
		}
		if code, message := unsafe(c, before); code != "" {
			refuse(w, http.StatusConflict, code, message)
			return
		}
	}
	s.doKeys(r.Context(), w, c)
}

// doKeys does c and answers with what came of it on each member.
func (s *Server) doKeys(ctx context.Context, w http.ResponseWriter, c KeyCommand) {
	results, err := s.options.Cluster.Keys(ctx, c)
	if err != nil {
		s.failCluster(w, string(c.Op)+" gossip keys", err)
		return
	}
	answer := KeyAnswer{Fingerprint: c.Fingerprint, Results: make([]KeyResult, len(results))}
	for i, result := range results {
		if c.Op == KeyRemove && len(result.Keys) > 0 && !slices.Contains(result.Keys, c.Fingerprint) {
			result.Error = "" // it was removed before: the command may be run again for other nodes
		}
		if result.Keys == nil {
			result.Keys = []string{}
		}
		answer.Results[i] = result
		switch {
		case c.Op == KeyList:
		case result.Error == "":
			s.options.Log.Info("gossip keys changed", "op", c.Op, "fingerprint", c.Fingerprint, "node", result.Node)
		default:
			s.options.Log.Warn("gossip keys not changed", "op", c.Op, "fingerprint", c.Fingerprint,
				"node", result.Node, "err", result.Error)
		}
	}
	if c.Op != KeyList {
		done := len(slices.DeleteFunc(slices.Clone(answer.Results), func(r KeyResult) bool { return r.Error != "" }))
		s.desk.note(ctx, line("cluster keys "+string(c.Op), c.Fingerprint,
			fmt.Sprintf("done on %d of %d nodes", done, len(answer.Results))))
	}
	slices.SortFunc(answer.Results, func(a, b KeyResult) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), bytes.Compare(a.Node[:], b.Node[:]))
	})
	writeJSON(w, http.StatusOK, answer)
}

// keyCommand reads {"op","key","fingerprint"}. Nothing of the body is in a
// refusal: it may hold a key, also in a wrong place.
func keyCommand(w http.ResponseWriter, r *http.Request) (c KeyCommand, ok bool) {
	var in struct {
		Op          KeyOp  `json:"op"`
		Key         string `json:"key"`
		Fingerprint string `json:"fingerprint"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMax))
	d.DisallowUnknownFields()
	message := ""
	if err := d.Decode(&in); err != nil {
		message = `the body must be {"op":"add","key":…} or {"op":"use" or "remove","fingerprint":…}`
	}
	key, err := base64.StdEncoding.Strict().DecodeString(in.Key)
	byName := in.Op == KeyUse || in.Op == KeyRemove
	switch {
	case message != "":
	case in.Op != KeyAdd && !byName:
		message = "op must be add, use or remove"
	case in.Op == KeyAdd && (err != nil || len(key) != keyBytes || in.Fingerprint != ""):
		message = "add takes a key, 32 bytes in base64, and no fingerprint"
	case byName && (in.Key != "" || !fingerprintForm.MatchString(in.Fingerprint)):
		message = "use and remove take a fingerprint, 8 hex digits as of GET /v1/cluster/keys, and no key"
	}
	if message != "" {
		refuse(w, http.StatusBadRequest, "invalid_request", message)
		return c, false
	}
	if in.Op == KeyAdd {
		sum := sha256.Sum256(key)
		in.Fingerprint = hex.EncodeToString(sum[:fingerprintBytes])
	}
	return KeyCommand{Op: in.Op, Key: key, Fingerprint: in.Fingerprint}, true
}

// unsafe says why a command would part members from each other; "" when it would not.
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
		return "node_silent", "not every node tells its keys, so nothing was changed; bring back or stop: " +
			strings.Join(silent, ", ")
	case !known:
		return "key_unknown", "no node has a key with this fingerprint; see GET /v1/cluster/keys"
	case c.Op == KeyUse && len(lacking) > 0:
		return "key_missing", "not every node has this key, so nothing was changed: add it first; it lacks on: " +
			strings.Join(lacking, ", ")
	case c.Op == KeyRemove && len(using) > 0:
		return "key_in_use", "nodes still use this key, so nothing was changed: use another one first; used by: " +
			strings.Join(using, ", ")
	}
	return "", ""
}
