package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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

// changeKeys does a command about gossip keys on all members. Before it uses or
// removes a key it asks all of them, since a key that one lacks would split them.
func (d clusterOps) changeKeys(ctx context.Context, c KeyCommand) (KeyAnswer, error) {
	ctx, cancel, err := d.clustered(ctx)
	defer cancel()
	if err != nil {
		return KeyAnswer{}, err
	}
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
			result.Error = "" // it was removed before: the command may be run again for other nodes
		}
		if result.Keys == nil {
			result.Keys = []string{}
		}
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

// keyCommand reads {"op","key","fingerprint"}. Nothing of the body is in a
// refusal: it may hold a key, also in a wrong place.
func keyCommand(r *http.Request) (c KeyCommand, err error) {
	var in struct {
		Op          KeyOp  `json:"op"`
		Key         string `json:"key"`
		Fingerprint string `json:"fingerprint"`
	}
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
		message = "add takes a key, 32 bytes in base64, and no fingerprint"
	case byName && (in.Key != "" || !fingerprintForm.MatchString(in.Fingerprint)):
		message = "use and remove take a fingerprint, 8 hex digits as of GET /v1/cluster/keys, and no key"
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
