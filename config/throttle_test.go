package config

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp/throttle"
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

// rewrite replaces a file as editors do: a new file takes its name.
func rewrite(t *testing.T, name, text string) {
	t.Helper()
	effort.OK(t, os.WriteFile(name+".new", []byte(text), 0o600))
	effort.OK(t, os.Rename(name+".new", name))
}

// tableOf makes the table from the rules of base and its file.
func tableOf(t *testing.T, base Throttle) *throttle.Table {
	t.Helper()
	rules := effort.Must(LoadThrottle(base))(t)
	return effort.Must(throttle.NewTable(rules))(t)
}

func TestThrottleFileGoesOnTopOfTheConfiguration(t *testing.T) {
	base := throttleBase(t, "[default]\nconnections = 7\n[receivers.\"A.test.\"]\nrcpt_rate = \"9/s\"\n")
	three, yes := 3, true
	base.Receivers = map[string]Allowance{"a.test": {Connections: &three}, "b.test": {Pipelining: &yes}}
	table := tableOf(t, base)
	if d := table.For("c.test"); d.Connections != 7 || d.RcptsPerConnection != 50 {
		t.Errorf("default: got %+v, want 7 connections and the other defaults", d)
	}
	if a := table.For("a.test"); a.Connections != 3 || a.RcptRate.String() != "9/s" {
		t.Errorf("a.test: got %+v, want 3 connections and 9/s", a)
	}
	b := table.For("b.test")
	effort.ErrorIf(t, !b.Pipelining, "b.test: got %+v, want pipelining", b)
	effort.ErrorIf(t, len(base.Receivers) != 2 || base.Receivers["a.test"].RcptRate != nil,
		"the configuration was changed")
}

// everyField is a throttle file in which every field is set, in all ways to write it.
//
//go:embed testdata/every_field.toml
var everyField string

func TestEveryFieldOfTheThrottleFileAndWhereItStands(t *testing.T) {
	base := throttleBase(t, everyField)
	table := tableOf(t, base)
	for _, c := range []struct{ key, field, value, where string }{
		{"c.test", "connections", "1000", ":2"}, {"c.test", "connection_rate", "20/min", ":3"},
		{"c.test", "rcpt_rate", "3/s", ":4"}, {"c.test", "rcpts_per_connection", "10", ":5"},
		{"c.test", "rcpts_per_transaction", "2", ":6"}, {"c.test", "refused_per_session", "3", ":7"},
		{"c.test", "refused_per_hour", "30", ":8"}, {"c.test", "refused_share", "10", ":9"},
		{"c.test", "pipelining", "true", ":10"}, {"c.test", "pipelining_depth", "8", ":11"},
		{"c.test", "session_age", "1m30s", ":12"}, {"c.test", "idle_time", "500ms", ":13"},
		{"c.test", "tls", "required", ":14"}, {"c.test", "address_family", "ipv4", ":15"},
		{"c.test", "retry_waits", "5m,10m", ":16"}, {"c.test", "pause", "drain", ":18"},
		{"a.test", "pause", "no", ":21"}, {"a.test", "retry_waits", "none", ":21"}, {"b.test", "tls", "off", ":22"},
		{"source:2001:db8::1", "pause", "yes", ":25"}, {"source:2001:db8::1", "rcpts_per_day", "500", ":26"},
		{"source:2001:db8::1", "warm_up_from", "2026-11-21", ":27"}, {"source:", "rcpts_per_day", "9", ":30"},
	} {
		explained := table.Explain(c.key)
		i := slices.IndexFunc(explained, func(e throttle.Explained) bool { return e.Field.String() == c.field })
		if i < 0 {
			t.Errorf("%s: nothing is said of %s", c.key, c.field)
			continue
		}
		e := explained[i]
		last := e.Said[len(e.Said)-1]
		effort.ErrorIf(t, e.Text != c.value || last.Layer != throttle.LayerFile || last.Where != base.File+c.where,
			"%s of %s: %s by %s at %s, want %s at %s", c.field, c.key, e.Text, last.Layer, last.Where, c.value, c.where)
	}
}

// TestWhereValuesOfTheConfigurationStand: the file layer contains nothing that nobody wrote.
func TestWhereValuesOfTheConfigurationStand(t *testing.T) {
	file := write(t, "[throttle]\nfile = \"\"\n[throttle.default]\nconnections = 2\n"+
		"[throttle.receivers.\"a.test\"]\npause = \"yes\"\n")
	c := effort.Must(Load(file, []string{"ROLLCALL_THROTTLE_DEFAULT_RCPT_RATE=9/s"}))(t)
	six := 6
	c.Throttle.Default.PipeliningDepth = &six
	var got []string
	for _, r := range c.Throttle.Rules() {
		for _, f := range r.Set.Fields() {
			where, ok := r.Where[f]
			if !ok {
				where = r.Where[0]
			}
			got = append(got, strings.Join([]string{r.Name, f.String(), r.Set.Text(f), filepath.Base(where)}, " "))
		}
	}
	want := []string{" connections 2 rollcall.toml:4", " rcpt_rate 9/s ROLLCALL_THROTTLE_DEFAULT_RCPT_RATE",
		" pipelining_depth 6 set by the program", "a.test pause yes rollcall.toml:6"}
	effort.Equal(t, got, want, strings.Join(got, "\n"), strings.Join(want, "\n"))
}

func TestFaultsOfTheThrottleFile(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"misspelled key", "[default]\nconections = 3\n",
			`:2:1: unknown key "default.conections": did you mean "default.connections"?`},
		{"misspelled table", "[recievers.\"a.test\"]\nconnections = 3\n",
			`:1:2: unknown key "recievers.\"a.test\"": did you mean "receivers"?`},
		{"out of range", "[receivers.\"a.test\"]\n\nconnections = -1\n",
			`:3:1: receivers."a.test".connections: "-1": write a whole number from 1 to 10000`},
		{"no host name", "[receivers.\"a b\"]\nconnections = 1\n",
			`:1:2: receivers."a b": is not a usable name: "a b": only letters`},
		{"a receiver's key", "[receivers.\"suffix:mx.test\"]\nconnections = 1\n",
			`:1:2: receivers."suffix:mx.test": is not a usable name: "suffix:mx.test" is the key of a receiver: write "mx`},
		{"no name", "[receivers.\"\"]\nconnections = 1\n", `:1:2: receivers."": is not a usable name: write a`},
		{"no rate", "[default]\nconnection_rate = \"fast\"\n", `:2:19: default.connection_rate: "fast" is not a rate`},
		{"no word", "[default]\ntls = \"on\"\n", `:2:1: default.tls: "on": write one of required, opportunistic, off`},
		{"too many waits", "[default]\nretry_waits = [" + strings.Repeat(`"5m",`, 9) + "]\n",
			`:2:1: default.retry_waits: "5m,5m,5m,5m,5m,5m,5m,5m,5m": write at most 8 waits`},
		{"a number among the waits", "[default]\nretry_waits = [\"5m\", 7]\n",
			":2:1: default.retry_waits: write a list of times"},
		{"a day", "[sources.default]\nwarm_up_from = \"tomorrow\"\n",
			`:2:1: sources.default.warm_up_from: "tomorrow": write a day such as 2026-11-21`},
		{"a day without quotes", "[sources.default]\nwarm_up_from = 2026-11-21\n",
			":2:1: sources.default.warm_up_from: write a text in quotes"},
		{"a receiver's field of a source", "[sources.default]\nconnections = 1\n",
			`:2:1: unknown key "sources.default.connections"`},
		{"a source's field of a receiver", "[receivers.\"a.test\"]\nrcpts_per_day = 1\n",
			`:2:1: unknown key "receivers.\"a.test\".rcpts_per_day": did you mean "sources.*.rcpts_per_day"?`},
		{"no source", "[sources.eth0]\npause = \"yes\"\n", ":1:2: sources.eth0: is not a source: write one of this"},
		{"a receiver without a table", "[receivers]\n\"a.test\" = 3\n", `:2:1: receivers."a.test": this is a table`},
		{"a list of tables", "[[receivers]]\nconnections = 3\n", ":1:3: receivers: write [receivers] with one"},
		{"inline", "receivers = { \"a.test\" = { tls = \"on\" } }\n", `:1:28: receivers."a.test".tls: "on": write`},
		{"in two spellings", "[receivers.\"A.test\"]\nconnections = 1\n[receivers.\"a.test.\"]\nconnections = 2\n",
			`:3:2: receivers."a.test.": is receivers."A.test" (FILE:1:2) in another spelling: write it once`},
		{"a source in two spellings", "[sources.\"2001:db8::1\"]\npause = \"yes\"\n[sources.\"2001:DB8:0::1\"]\n" +
			"pause = \"no\"\n", `:1:2: sources."2001:db8::1": is sources."2001:DB8:0::1" (FILE:3:2) in another`},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := throttleBase(t, c.text)
			_, err := LoadThrottle(base)
			want := base.File + strings.ReplaceAll(c.want, "FILE", base.File)
			effort.ErrorIf(t, !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), want) ||
				strings.Contains(err.Error(), "\n"), "%q:\n got %v\nwant %s...", c.text, err, want)
		})
	}
}

// TestAllFaultsOfAFileAreToldAtOnce has one fault of each kind.
func TestAllFaultsOfAFileAreToldAtOnce(t *testing.T) {
	base := throttleBase(t, "[default]\nconections = 3\nrcpt_rate = \"fast\"\nconnections = 0\ntls = 5\n"+
		"[receivers.\"a b\"]\npause = \"maybe\"\n[sources.eth0]\n[nonsense]\nx = 1\n")
	rules, found, err := CheckThrottle(base.File, base)
	effort.FatalIf(t, err != nil || rules != nil, "%d rules, %v", len(rules), err)
	var lines []int
	for _, f := range found {
		effort.ErrorIf(t, f.Severity != SeverityError || f.File != base.File || f.Column == 0, "%+v", f)
		lines = append(lines, f.Line)
	}
	effort.Equal(t, lines, []int{2, 3, 4, 5, 6, 7, 8, 9}, "faults in lines", found)
	broken := throttleBase(t, "[default]\nconections = 3\n[default\n")
	if _, found, err := CheckThrottle(broken.File, broken); err != nil || len(found) != 2 || found[1].Line != 3 {
		t.Errorf("a fault and broken syntax: %v, %v", found, err)
	}
}

func TestCheckThrottleWarns(t *testing.T) {
	base := throttleBase(t, "")
	config := write(t, "[throttle.receivers.\"a.test\"]\nconnections = 9\n")
	loaded := effort.Must(Load(config, nil))(t)
	candidate := base.File
	rewrite(t, candidate, "[receivers.\"google.com\"]\nrcpt_rate = \"60/min\"\nconnections = 20\n"+
		"[receivers.\"a.test\"]\nconnections = 3\n[receivers.com]\npause = \"no\"\n")
	rules, found, err := CheckThrottle(candidate, loaded.Throttle)
	effort.ErrorIf(t, err != nil || len(rules) != 4, "%d rules and %v, want 4", len(rules), err)
	var got []string
	for _, f := range found {
		effort.Is(t, f.Severity, SeverityWarning, fmt.Sprintf("%s is an", f))
		got = append(got, strings.TrimPrefix(strings.TrimPrefix(f.String(), filepath.Dir(candidate)), filepath.Dir(config)))
	}
	want := []string{`/rollcall.toml:2:1: receivers."a.test".connections: never holds: ` + candidate + ":5 says",
		`/throttle.toml:3:1: receivers."google.com".connections: 20 is more than 2, the known limit`,
		`/throttle.toml:6:2: receivers.com: com is no receiver's name`}
	for i, w := range want {
		effort.ErrorIf(t, i >= len(got) || !strings.HasPrefix(got[i], w),
			"got  %s\nwant %s", strings.Join(got, "\n"), w)
	}
	effort.Is(t, len(got), len(want), strings.Join(got, "\n"), "warnings")
	if _, _, err := CheckThrottle(filepath.Join(t.TempDir(), "none.toml"), base); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestAFaultyThrottleFileIsLoggedAndChangesNothing(t *testing.T) {
	base := throttleBase(t, "[default]\nconnections = 3\n")
	file := effort.Must(OpenThrottle(base))(t)
	file.watch.every = time.Millisecond
	if s := file.State(); len(s.Rules) != 1 || s.Err != nil || !s.Found || s.At.IsZero() || s.Changes != nil {
		t.Errorf("at first: %+v", s)
	}
	applied, logged := make(chan ThrottleState, 10), make(chan string, 10)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		file.Watch(ctx, slog.New(slog.NewTextHandler(lines(logged), nil)), func(s ThrottleState) { applied <- s })
	})
	defer done.Wait()
	defer cancel()

	rewrite(t, base.File, "[default]\nconections = 44\n")
	effort.Has(t, receive(t, logged), "throttle.toml:2:1")
	s := receive(t, applied)
	effort.ErrorIf(t, !errors.Is(s.Err, ErrInvalid) || len(s.Rules) != 1 ||
		s.Rules[0].Set.Text(throttle.FieldConnections) != "3", "with a fault: %+v, want the rules as they were", s)
	effort.Not(t, file.State().Err, nil, "the node does not know of the fault")
	rewrite(t, base.File, "[default]\nconnections = 555\n")
	if s := receive(t, applied); s.Err != nil || s.Rules[0].Set.Text(throttle.FieldConnections) != "555" {
		t.Errorf("got %+v, want 555 connections: the faulty file was applied", s)
	}
}

// again checks the file once more, and loads it if it has changed.
func (f *ThrottleFile) again() (ThrottleState, bool) {
	if !f.watch.Changed() {
		return ThrottleState{}, false
	}
	return f.load(), true
}

// TestEachVersionOfAThrottleFileIsLoadedOnce: each load also returns the changes.
func TestEachVersionOfAThrottleFileIsLoadedOnce(t *testing.T) {
	base := throttleBase(t, "")
	file := effort.Must(OpenThrottle(base))(t)
	change := func(old, now string) []throttle.Change {
		return []throttle.Change{{Field: throttle.FieldConnections, Old: old, New: now, Where: base.File + ":2"}}
	}
	for _, c := range []struct {
		text    string // "": no file
		found   bool
		fault   bool
		changes []throttle.Change
	}{
		{"[default]\nconnections = 3\n", true, false, change("", "3")},
		{"[default]\nconnections = 30000\n", true, true, nil},
		{"[default]\nconnections = 555\n", true, false, change("3", "555")},
		{"", false, false, change("555", "")},
	} {
		if c.text == "" {
			effort.OK(t, os.Remove(base.File))
		} else {
			rewrite(t, base.File, c.text)
		}
		s, changed := file.again()
		effort.ErrorIf(t, !changed || (s.Err != nil) != c.fault || s.Found != c.found ||
			!slices.Equal(s.Changes, c.changes), "%q: %t, %+v", c.text, changed, s)
		if _, changed := file.again(); changed {
			t.Errorf("%q: loaded twice", c.text)
		}
	}
}

// TestAThrottleFileIsComparedByItsContent: a file with the same size and time but other content is loaded; one with
// the same content is not loaded again.
func TestAThrottleFileIsComparedByItsContent(t *testing.T) {
	base := throttleBase(t, "[default]\nconnections = 3\n")
	file := effort.Must(OpenThrottle(base))(t)
	at := effort.Must(os.Stat(base.File))(t).ModTime()
	write := func(text string, when time.Time) {
		t.Helper()
		err := os.WriteFile(base.File, []byte(text), 0o600) // written in place: the inode stays the same
		if err == nil {
			err = os.Chtimes(base.File, when, when)
		}
		effort.OK(t, err)
	}
	write("[default]\nconnections = 5\n", at)
	if s, changed := file.again(); !changed || len(s.Changes) != 1 || s.Changes[0].New != "5" {
		t.Errorf("of the same size and time: %v %+v", changed, s)
	}
	write("[default]\nconnections = 5\n", at.Add(time.Hour))
	_, changed := file.again()
	effort.ErrorIf(t, changed, "a file that says the same was loaded again")
}

// lines is a writer that sends each write to a channel.
type lines chan<- string

func (l lines) Write(p []byte) (int, error) {
	l <- string(bytes.Clone(p))
	return len(p), nil
}

// receive waits for a value, for at most half a minute.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came within 30 s")
		panic("not reached")
	}
}
