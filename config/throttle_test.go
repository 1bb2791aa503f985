package config

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// throttleBase is the default throttle with a file of the given text.
func throttleBase(t *testing.T, text string) Throttle {
	t.Helper()
	base := Default().Throttle
	base.File = filepath.Join(t.TempDir(), "throttle.toml")
	if text != "" {
		rewrite(t, base.File, text)
	}
	return base
}

// rewrite replaces a file as editors do: another file takes its name.
func rewrite(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func TestThrottleFileGoesOnTopOfTheConfiguration(t *testing.T) {
	base := throttleBase(t, "[default]\nconnections = 7\n[receivers.\"a.test\"]\nrcpt_rate = \"9/s\"\n")
	three, yes := 3, true
	base.Receivers = map[string]Allowance{"a.test": {Connections: &three}, "b.test": {Pipelining: &yes}}
	got, err := LoadThrottle(base)
	if err != nil {
		t.Fatal(err)
	}
	if d, _ := got.Layers(); d.Connections != 7 || d.RcptsPerConnection != 50 {
		t.Errorf("default: got %+v, want 7 connections and the other defaults", d)
	}
	if a := got.Receivers["a.test"]; *a.Connections != 3 || a.RcptRate.String() != "9/s" {
		t.Errorf("a.test: got %+v, want 3 connections and 9/s", a)
	}
	if b := got.Receivers["b.test"]; b.Pipelining == nil || !*b.Pipelining {
		t.Errorf("b.test: got %+v, want pipelining", b)
	}
	if len(base.Receivers) != 2 || base.Receivers["a.test"].RcptRate != nil {
		t.Error("the configuration was changed")
	}
}

func TestMissingThrottleFileChangesNothing(t *testing.T) {
	base := throttleBase(t, "")
	got, err := LoadThrottle(base)
	gotDefault, _ := got.Layers()
	baseDefault, _ := base.Layers()
	if err != nil || gotDefault != baseDefault {
		t.Errorf("got %+v and %v", got, err)
	}
}

func TestTableKnowsDefaultAndExceptions(t *testing.T) {
	base := throttleBase(t, "[receivers.\"a.test\"]\nconnections = 9\n")
	loaded, err := LoadThrottle(base)
	if err != nil {
		t.Fatal(err)
	}
	table, err := loaded.Table()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"a.test": 9, "b.test": 2} {
		if got := table.For(key).Connections; got != want {
			t.Errorf("%s: got %d connections, want %d", key, got, want)
		}
	}
}

func TestFaultsOfTheThrottleFile(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"misspelled key", "[default]\nconections = 3\n",
			`:2:1: unknown key "default.conections": did you mean "default.connections"?`},
		{"misspelled table", "[recievers.\"a.test\"]\nconnections = 3\n",
			`:1:2: unknown key "recievers.\"a.test\"": did you mean "receivers"?`},
		{"out of range", "[receivers.\"a.test\"]\n\nconnections = -1\n", `:3:1: receivers."a.test".connections: `},
		{"no host name", "[receivers.\"a b\"]\nconnections = 1\n", `:1:2: receivers."a b": `},
		{"no rate", "[default]\nconnection_rate = \"fast\"\n",
			`:2:19: default.connection_rate: "fast" is not a rate`},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := throttleBase(t, c.text)
			_, err := LoadThrottle(base)
			if !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), base.File+c.want) {
				t.Errorf("%q:\n got %v\nwant %s...", c.text, err, base.File+c.want)
			}
		})
	}
}

func TestAFaultyThrottleFileIsLoggedAndChangesNothing(t *testing.T) {
	base := throttleBase(t, "[default]\nconnections = 3\n")
	applied, logged := make(chan int, 10), make(chan string, 10)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		log := slog.New(slog.NewTextHandler(lines(logged), nil))
		watchThrottle(ctx, base, log, func(t Throttle) { applied <- *t.Default.Connections }, time.Millisecond)
	})
	defer done.Wait()
	defer cancel()

	if got := receive(t, applied); got != 3 {
		t.Errorf("got %d connections at first, want 3", got)
	}
	rewrite(t, base.File, "[default]\nconections = 44\n")
	receive(t, logged) // the first file is loaded
	if line := receive(t, logged); !strings.Contains(line, "throttle.toml:2:1") {
		t.Errorf("got %q, want file, line and column", line)
	}
	rewrite(t, base.File, "[default]\nconnections = 555\n")
	if got := receive(t, applied); got != 555 {
		t.Errorf("got %d connections, want 555: the faulty file was applied", got)
	}
}

// lines is a writer that sends each write to a channel.
type lines chan<- string

func (l lines) Write(p []byte) (int, error) {
	l <- string(bytes.Clone(p))
	return len(p), nil
}

// receive waits for a value, for at most ten seconds.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came within 10 s")
		panic("not reached")
	}
}
