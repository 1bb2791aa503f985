package gossip

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/cluster/gossip/gossiptest"
	"rollcall/config/effort"
)

func TestOnlyAGoodFileOfKeysIsTaken(t *testing.T) {
	one, two := NewKey(), NewKey()
	many := make([]string, keysMax+1)
	for i := range many {
		many[i] = NewKey()
	}
	short := base64.StdEncoding.EncodeToString(make([]byte, 16))
	for _, c := range []struct {
		name, text string
		mode       fs.FileMode
		want       string // in the error; "" is none
	}{
		{"one key", one + "\n", 0o600, ""},
		{"two keys, comments, blanks", "# old\r\n\n  " + one + "  \n# new\n" + two, 0o400, ""},
		{"group may read", one, 0o640, ""},
		{"others may read", one, 0o644, "chmod 600"},
		{"others may write", one, 0o602, "chmod 600"},
		{"group may write", one, 0o660, "chmod 600"},
		{"empty", "", 0o600, "rollcall cluster keys new FILE"},
		{"only comments", "# nothing\n", 0o600, "rollcall cluster keys new FILE"},
		{"no base64", "secret!\n", 0o600, "line 1: not a gossip key"},
		{"a short key", one + "\n" + short, 0o600, "line 2: not a gossip key"},
		{"a key twice", one + "\n\n" + one, 0o600, "line 3: this key is on an earlier line"},
		{"too many", strings.Join(many, "\n"), 0o600, "too many"},
		{"too long", one + "\n#" + strings.Repeat("x", keyFileMax), 0o600, "not a file of keys"},
	} {
		path := filepath.Join(t.TempDir(), "keys")
		effort.OK(t, os.WriteFile(path, []byte(c.text), 0o600))
		effort.OK(t, os.Chmod(path, c.mode))
		k, err := LoadKeyring(path)
		if c.want == "" {
			effort.ErrorIf(t, err != nil || k.Fingerprints()[0] != fingerprintOf(rawKey(t, one)),
				"%s: got %v", c.name, err)
			continue
		}
		effort.ErrorIf(t, !errors.Is(err, ErrKeyFile) || !strings.Contains(err.Error(), c.want),
			"%s: got %v, want %q", c.name, err, c.want)
		if err != nil && (strings.Contains(err.Error(), one) || strings.Contains(err.Error(), "secret!")) {
			t.Errorf("%s: the error tells the key: %v", c.name, err)
		}
	}
	_, err := LoadKeyring(filepath.Join(t.TempDir(), "none"))
	effort.ErrorIf(t, !errors.Is(err, ErrKeyFile) || !errors.Is(err, fs.ErrNotExist), "no file: got %v", err)
}

func TestAKeyFileIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gossip.keys")
	print := effort.Must(CreateKeyFile(path))(t)
	k := effort.Must(LoadKeyring(path))(t)
	got := k.Fingerprints()
	effort.ErrorIf(t, len(got) != 1 || got[0] != print, "got %v, want %s", got, print)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v; want 0600", info.Mode(), err)
	}
	effort.Denied(CreateKeyFile(path))(t, fs.ErrExist, "again")
}

func TestARingIsChangedInSteps(t *testing.T) {
	one, two := NewKey(), NewKey()
	first, second := fingerprintOf(rawKey(t, one)), fingerprintOf(rawKey(t, two))
	path := writeKeys(t, one)
	link := filepath.Join(t.TempDir(), "link")
	effort.OK(t, os.Symlink(path, link))
	k := effort.Must(LoadKeyring(link))(t)
	for _, step := range []struct {
		name string
		do   func() error
		err  error
		want string // fingerprints, the primary first
	}{
		{"remove the only one", func() error { return k.Remove(first) }, ErrKeyInUse, first},
		{"add no key", func() error { return k.Add("x") }, ErrNotAKey, first},
		{"use one that is not there", func() error { return k.Use(second) }, ErrNoSuchKey, first},
		{"add", func() error { return k.Add(" " + two + "\n") }, nil, first + second},
		{"add again", func() error { return k.Add(two) }, nil, first + second},
		{"remove the primary", func() error { return k.Remove(one) }, ErrKeyInUse, first + second},
		{"use by fingerprint", func() error { return k.Use(strings.ToUpper(second)) }, nil, second + first},
		{"use again", func() error { return k.Use(second) }, nil, second + first},
		{"remove by key", func() error { return k.Remove(one) }, nil, second},
		{"remove again", func() error { return k.Remove(one) }, ErrNoSuchKey, second},
		{"add the old one back", func() error { return k.Add(one) }, nil, second + first},
	} {
		effort.ErrIs(t, step.do(), step.err, step.name, "got error")
		again, err := LoadKeyring(path)
		effort.OK(t, err, step.name)
		for where, ring := range map[string]*Keyring{"memory": k, "file": again} {
			got := strings.Join(ring.Fingerprints(), "")
			effort.Is(t, got, step.want, fmt.Sprintf("%s: %s has", step.name, where))
		}
		effort.Is(t, string(k.library.GetPrimaryKey()), string(again.library.GetPrimaryKey()), step.name,
			"the library seals with another key")
	}
	effort.Not(t, effort.Must(os.Lstat(link))(t).Mode()&fs.ModeSymlink, 0, "the link to the file was replaced")
}

func TestARingThatCannotBeWrittenStaysAsItIs(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "keys", "gossip")
	effort.OK(t, os.Mkdir(filepath.Dir(path), 0o700))
	effort.Must(CreateKeyFile(path))(t)
	k := effort.Must(LoadKeyring(path))(t)
	before := k.Fingerprints()
	effort.OK(t, os.RemoveAll(filepath.Dir(path)))
	effort.ErrIs(t, k.Add(NewKey()), ErrKeyFile)
	got := k.Fingerprints()
	effort.ErrorIf(t, len(got) != 1 || got[0] != before[0], "got %v, want %v", got, before)
}

// TestKeysRotateUnderTraffic: keys change step by step on three nodes that gossip all the time. No message is dropped
// until the end, and then only messages under the old key.
func TestKeysRotateUnderTraffic(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	t.Parallel()
	old, new := NewKey(), NewKey()
	network := gossiptest.New()
	nodes := cluster(t, network, 3, func(o *Options) {
		o.Keys = ring(t, old)
		o.Timing.PushPullInterval = 20 * time.Millisecond // streams all the time too
	})
	for _, step := range []func(*Keyring) error{
		func(k *Keyring) error { return k.Add(new) },
		func(k *Keyring) error { return k.Use(new) },
		func(k *Keyring) error { return k.Remove(old) },
	} {
		for _, n := range nodes {
			effort.OK(t, step(n.options.Keys))
			exchange(t, nodes) // messages flow in each state of the rotation
		}
	}
	for _, n := range nodes {
		n.awaitNames(t, "node-a", "node-b", "node-c")
		effort.Is(t, n.counter(t, "rollcall_gossip_dropped_total"), 0, fmt.Sprintf("%s dropped", n.options.Self.Name))
	}
	o := options(t, "stranger")
	o.Transport, o.Keys, o.Join = network.Transport(), ring(t, old), []string{nodes[0].Address()}
	effort.Denied(begin(t, o))(t, ErrRefused, "with the old key")
	effort.Is(t, nodes[0].counter(t, "rollcall_gossip_dropped_total", "reason=key", "unit=stream"), 1,
		"streams with the old key were dropped")
}

// exchange waits until every node has received packets and streams from the others.
func exchange(t *testing.T, nodes []*node) {
	t.Helper()
	counts := func() (counts []float64) {
		for _, n := range nodes {
			for _, unit := range []string{"unit=packet", "unit=stream"} {
				counts = append(counts, n.counter(t, "rollcall_gossip_units_total", "direction=in", unit))
			}
		}
		return counts
	}
	before := counts()
	effort.Within(t, "traffic", func() bool {
		for i, count := range counts() {
			if count < before[i]+2 {
				return false
			}
		}
		return true
	})
}
