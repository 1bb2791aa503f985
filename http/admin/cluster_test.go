package admin_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/http/dashboard/pagetest"
	"rollcall/ledger"
)

// member makes a member whose id begins with eight hex digits.
func member(id, name string, state admin.State) admin.Member {
	return admin.Member{Node: uuid.MustParse(id + "-0000-4000-8000-000000000000"), Session: uuid.New(),
		Name: name, State: state, Since: api.Time(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))}
}

// five is a cluster of five members; two nodes share a name, and one was started again.
func five() []admin.Member {
	one := member("5f2c91aa", "node-1", admin.StateServing)
	one.This = true
	return []admin.Member{
		one,
		member("5f2c0000", "node-2", admin.StateDraining),
		member("a0000000", "node-3", admin.StateLost),
		member("a0000000", "node-3", admin.StateServing),
		member("b0000000", "pod", admin.StateLost),
		member("c0000000", "pod", admin.StateServing),
		member("d0000000", "pad", admin.StateLeft),
	}
}

func withCluster(f *pagetest.Cluster) func(*admin.Options) {
	return func(o *admin.Options) { o.Cluster = f }
}

// TestMembersAreToldWithAllTheirFields: a list without members is [], not null.
func TestMembersAreToldWithAllTheirFields(t *testing.T) {
	age, offset := 1.5, int64(-20)
	m := five()[0]
	m.Version, m.Actors, m.Gossip, m.HeartbeatAge, m.ClockOffset = "1.4.0", "h:7947", "h:7946", &age, &offset
	m.Leases, m.Addresses, m.Receivers, m.Agreed = 4, 12044, 31, true
	f := &pagetest.Cluster{Frames: []admin.Membership{{Cluster: "rollcall", LedgerAge: 0.5, Members: []admin.Member{m}}}}
	r := newRig(t, withCluster(f))
	status, text := r.ask("GET", "/v1/cluster/members", "")
	want := fmt.Sprintf(`{"cluster":"rollcall","members":[{"node":"%s","session":"%s","name":"node-1",`+
		`"state":"serving","this":true,"version":"1.4.0","actor_address":"h:7947","gossip_address":"h:7946",`+
		`"since":"2030-01-02T03:04:05.000Z","last_heartbeat_seconds_ago":1.5,"leases":4,"addresses":12044,`+
		`"receivers":31,"view_agreed":true,"clock_offset_ms":-20}],"ledger_read_seconds_ago":0.5}`+"\n",
		m.Node, m.Session)
	effort.Is(t, status, 200)
	effort.Is(t, text, want)
	f.Set(func() { f.Frames = []admin.Membership{{Cluster: "rollcall"}} })
	if _, text := r.ask("GET", "/v1/cluster/members", ""); !strings.Contains(text, `"members":[]`) {
		t.Errorf("no members: %s", text)
	}
}

func TestANodeIsFoundByWhatPeopleCallIt(t *testing.T) {
	alive := func(m admin.Member) bool { return !m.State.Ended() }
	ended := func(m admin.Member) bool { return m.State.Ended() }
	for _, c := range []struct {
		name, text string
		likely     func(admin.Member) bool
		want       string // id and state, or the error
	}{
		{"nothing is the node itself", "", alive, "5f2c91aa serving"},
		{"id", "5f2c0000-0000-4000-8000-000000000000", alive, "5f2c0000 draining"},
		{"id in capitals", "5F2C0000-0000-4000-8000-000000000000", alive, "5f2c0000 draining"},
		{"name", "Node-2", alive, "5f2c0000 draining"},
		{"unique beginning", "5f2c9", alive, "5f2c91aa serving"},
		{"beginning of two", "5f2c", alive, "several nodes fit"},
		{"beginning of two, neither likely", "5f2c", ended, "several nodes fit"},
		{"an older session does not hide a younger one", "node-3", alive, "a0000000 serving"},
		{"the lost session of a node that is back is not meant", "a", ended, "a0000000 serving"},
		{"of two of a name the living", "pod", alive, "c0000000 serving"},
		{"of two of a name the dead", "pod", ended, "b0000000 lost"},
		{"one that has ended is found", "pad", alive, "d0000000 left"},
		{"a part of a name is no name", "po", alive, "no node has the name or the id"},
		{"unknown", "node-9", alive, "no node has the name or the id"},
	} {
		m, err := admin.FindNode(five(), c.text, c.likely)
		got := fmt.Sprintf("%.8s %s", m.Node, m.State)
		if err != nil {
			got = err.Error()
		}
		effort.ErrorIf(t, !strings.HasPrefix(got, c.want), "%s: %q: got %s, want %s", c.name, c.text, got, c.want)
	}
	_, err := admin.FindNode(five(), "5f2c", alive)
	const want = "node-1 (5f2c91aa-0000-4000-8000-000000000000), node-2 (5f2c0000-0000-4000-8000-000000000000)"
	effort.ErrorIf(t, !errors.Is(err, admin.ErrNodeAmbiguous) || !strings.HasSuffix(err.Error(), want),
		"got %v, want %s", err, want)
	var many []admin.Member
	for i := range 50 {
		many = append(many, member(fmt.Sprintf("%08x", i), fmt.Sprint("n", i), admin.StateServing))
	}
	if _, err := admin.FindNode(many, "x", alive); !errors.Is(err, admin.ErrNodeUnknown) ||
		!strings.HasSuffix(err.Error(), ", and 40 more") {
		t.Errorf("of fifty: %v", err)
	}
}

// TestDrainAndForget: each call names one node, and calls that make no sense are refused.
func TestDrainAndForget(t *testing.T) {
	f := &pagetest.Cluster{Frames: []admin.Membership{{Members: five()}}}
	r := newRig(t, withCluster(f))
	down := errors.New("connection refused")
	for _, c := range []struct {
		name, call, body string
		fails            error
		status           int
		code, asked      string
	}{
		{"this one", "drain", `{}`, nil, 200, "", "drain 5f2c91aa"},
		{"another one", "drain", `{"node":"node-3"}`, nil, 200, "", "drain a0000000"},
		{"again", "drain", `{"node":"node-2"}`, nil, 200, "", "drain 5f2c0000"},
		{"one that left", "drain", `{"node":"pad"}`, nil, 409, "node_ended", ""},
		{"unknown", "drain", `{"node":"x"}`, nil, 404, "node_not_found", ""},
		{"ambiguous", "drain", `{"node":"5f2c"}`, nil, 409, "node_ambiguous", ""},
		{"gone meanwhile", "drain", `{}`, fmt.Errorf("drain: %w", ledger.ErrNoSuchNode), 404, "node_not_found",
			"drain 5f2c91aa"},
		{"no ledger", "drain", `{}`, down, 503, "unavailable", "drain 5f2c91aa"},
		{"not JSON", "drain", `node-1`, nil, 400, "invalid_request", ""},
		{"another field", "drain", `{"name":"x"}`, nil, 400, "invalid_request", ""},
		{"too long a name", "drain", `{"node":"` + strings.Repeat("a", 256) + `"}`, nil, 400, "invalid_request", ""},
		{"too long a body", "drain", `{"node":"` + strings.Repeat("a", 70000) + `"}`, nil, 400, "invalid_request", ""},
		{"this one", "undrain", `{}`, nil, 200, "", "undrain 5f2c91aa"},
		{"another one", "undrain", `{"node":"node-2"}`, nil, 200, "", "undrain 5f2c0000"},
		{"one that left", "undrain", `{"node":"pad"}`, nil, 409, "node_ended", ""},
		{"a lost one", "forget", `{"node":"pod"}`, nil, 200, "", "forget b0000000"},
		{"this one", "forget", `{"node":"node-1"}`, nil, 409, "node_alive", ""},
		{"none", "forget", `{}`, nil, 409, "node_alive", ""},
		{"a living one", "forget", `{"node":"node-2"}`, fmt.Errorf("forget: %w", ledger.ErrNodeAlive), 409,
			"node_alive", "forget 5f2c0000"},
		{"unknown", "forget", `{"node":"x"}`, nil, 404, "node_not_found", ""},
		{"no ledger", "forget", `{"node":"pod"}`, down, 503, "unavailable", "forget b0000000"},
	} {
		f.Set(func() { f.Fails = c.fails })
		status, out := r.call("POST", "/v1/cluster/"+c.call, c.body)
		e, _ := out["error"].(map[string]any)
		code, _ := e["code"].(string)
		message, _ := e["message"].(string)
		asked := f.Calls()
		effort.ErrorIf(t, status != c.status || code != c.code || asked != c.asked || code != "" && message == "",
			"%s %s: got %d %v and %q, want %d %q and %q", c.call, c.name, status, out, asked, c.status, c.code, c.asked)
		effort.ErrorIf(t, status == 200 && (out["name"] == nil || out["session"] == nil),
			"%s %s: answered %v, want a member", c.call, c.name, out)
	}
}

// canary is a key that must appear nowhere.
const canary = "Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5MTI="

// rings makes the keyrings of three nodes: lists of fingerprints, the primary key's first.
func rings(of ...string) (results []admin.KeyResult) {
	for i, text := range of {
		m := five()[i]
		r := admin.KeyResult{Node: m.Node, Name: m.Name}
		if text == "silent" {
			r.Error = "it does not answer"
		} else {
			r.Keys = strings.Fields(text)
			r.Primary = r.Keys[0]
		}
		results = append(results, r)
	}
	return results
}

func TestKeysAreChangedOnlyWhereNoNodeIsCutOff(t *testing.T) {
	f := &pagetest.Cluster{}
	r := newRig(t, withCluster(f))
	use, remove := `{"op":"use","fingerprint":"00000002"}`, `{"op":"remove","fingerprint":"00000002"}`
	for _, c := range []struct {
		name, body string
		rings      []admin.KeyResult
		status     int
		code       string
		asked      string
	}{
		{"use what all have", use, rings("00000001 00000002", "00000002 00000001"), 200, "", "list  0; use 00000002 0"},
		{"use what one lacks", use, rings("00000001 00000002", "00000001"), 409, "key_missing", "list  0"},
		{"use what none has", use, rings("00000001", "00000001"), 409, "key_unknown", "list  0"},
		{"use while one is silent", use, rings("00000001 00000002", "silent"), 409, "node_silent", "list  0"},
		{"remove what none uses", remove, rings("00000001 00000002", "00000001"), 200, "", "list  0; remove 00000002 0"},
		{"remove what one uses", remove, rings("00000001 00000002", "00000002 00000001"), 409, "key_in_use", "list  0"},
		{"remove what none has", remove, rings("00000001", "00000001"), 409, "key_unknown", "list  0"},
		{"remove while one is silent", remove, rings("00000001 00000002", "silent"), 409, "node_silent", "list  0"},
		{"add while one is silent", `{"op":"add","key":"` + canary + `"}`, rings("00000001", "silent"), 200, "",
			"add e298bc69 32"},
	} {
		f.Set(func() { f.Rings = c.rings })
		status, out := r.call("POST", "/v1/cluster/keys", c.body)
		code := codeOf(out)
		if asked := f.Calls(); status != c.status || code != c.code || asked != c.asked {
			t.Errorf("%s: got %d %v and %q, want %d %q and %q", c.name, status, out, asked, c.status, c.code, c.asked)
		}
	}
	f.Set(func() {
		f.Rings = rings("00000001 00000002", "00000001", "silent")
		slices.Reverse(f.Rings)
		f.Rings[1].Error = pagetest.NoSuchKey
	})
	status, out := r.call("POST", "/v1/cluster/keys", `{"op":"add","key":"`+canary+`"}`)
	if got := told(out); status != 200 || got != "node-1 ; node-2 no such key; node-3 it does not answer" {
		t.Errorf("results of an add: %d %s", status, got)
	}
	f.Set(func() { f.Rings = f.Rings[1:] })
	if status, out := r.call("POST", "/v1/cluster/keys", remove); status != 200 || told(out) != "node-1 ; node-2 " {
		t.Errorf("removed again: %d %v", status, out)
	}
	f.Set(func() { f.Rings, f.Fails = nil, admin.ErrNoKeyring })
	for _, body := range []string{"", use} {
		method := map[bool]string{true: "GET", false: "POST"}[body == ""]
		status, out := r.call(method, "/v1/cluster/keys", body)
		effort.ErrorIf(t, status != 409 || codeOf(out) != "no_keyring", "%s without keys: %d %v", method, status, out)
	}
	f.Set(func() { f.Fails = errors.New("stopped") })
	sent(r.ask("POST", "/v1/cluster/keys", use)).Is(t, 503, "of a cluster that does not answer")
}

// told returns each name and error of an answer about keys.
func told(out map[string]any) string {
	var texts []string
	results, _ := out["results"].([]any)
	for _, r := range results {
		r, _ := r.(map[string]any)
		texts = append(texts, fmt.Sprint(r["name"], " ", r["error"]))
	}
	return strings.Join(texts, "; ")
}

// TestAKeyIsSeenByTheClusterOnly: wherever in the body a key stands, it is in no answer, refusal or log.
func TestAKeyIsSeenByTheClusterOnly(t *testing.T) {
	var log effort.Log
	f := &pagetest.Cluster{Rings: rings("00000001")}
	r := newRig(t, withCluster(f), func(o *admin.Options) {
		o.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	status, text := r.ask("POST", "/v1/cluster/keys", `{"op":"add","key":"`+canary+`"}`)
	effort.FatalIf(t, f.Calls() == "" || base64.StdEncoding.EncodeToString(f.Added) != canary || status != 200,
		"add: got %d %s, and the cluster has %d bytes", status, text, len(f.Added))
	seen := text
	for _, body := range []string{
		canary, `"` + canary + `"`, `{"` + canary + `":1}`, `{"op":"` + canary + `"}`, `{"key":"` + canary + `"}`,
		`{"op":"add","key":"` + canary[:43] + `"}`, `{"op":"add","key":"` + canary + canary + `"}`,
		`{"op":"add","key":["` + canary + `"]}`, `{"op":"use","fingerprint":"` + canary + `"}`,
		`{"op":"add","key":"` + canary + `","fingerprint":"00000001"}`, `{"op":"use","key":"` + canary + `"}`,
		`{"op":"remove","fingerprint":"00000001","key":"` + canary + `"}`, `{"op":"list","key":"` + canary + `"}`,
		`{"op":"add","fingerprint":"00000001"}`, `{"op":"use"}`, `{}`, ``, `{"op":"use","fingerprint":"0000000G"}`,
		`{"op":"add","key":"` + strings.Repeat(canary, 2000) + `"}`,
	} {
		status, text := r.ask("POST", "/v1/cluster/keys", body)
		effort.Is(t, status, 400, body)
		effort.Has(t, text, "invalid_request", body)
		seen += text
	}
	effort.Is(t, f.Calls(), "", "the cluster was asked")
	raw := effort.Must(base64.StdEncoding.DecodeString(canary))(t)
	secret := admin.KeyCommand{Op: admin.KeyAdd, Key: raw}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		seen += fmt.Sprintf(verb, secret) + fmt.Sprintf(verb, &secret) + fmt.Sprintf(verb, secret.Key)
	}
	seen += fmt.Sprintf("%q %x %d", secret.Key, secret.Key, secret.Key)
	asJSON, err := json.Marshal(secret)
	effort.ErrIs(t, err, nil)
	slog.New(slog.NewTextHandler(&log, nil)).Info("command", "command", secret, "key", secret.Key)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("command", "command", secret, "key", secret.Key)
	seen += string(asJSON) + log.String()
	for _, form := range []string{canary[:40], string(raw), fmt.Sprintf("%x", raw), fmt.Sprint(raw)} {
		effort.Lacks(t, seen, form, "the key is shown")
	}
	effort.Has(t, log.String(), `"gossip keys changed","op":"add","fingerprint":"`, "the change is not in the log")
}
