package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/http/dashboard/pagetest"
	"rollcall/ledger/sqlstore"
)

// These tests call the commands in this process, against a real admin listener of a cluster that gives prepared
// answers.

// clusterRig is an admin listener and the commands that ask it.
type clusterRig struct {
	console
	cluster *pagetest.Cluster
	log     effort.Log
}

func newClusterRig(t *testing.T, frames ...admin.Membership) *clusterRig {
	t.Helper()
	r := &clusterRig{console: console{t: t, toFile: true}, cluster: &pagetest.Cluster{Frames: frames}}
	book := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	url, token := serveAdmin(t, book, admin.Options{Cluster: r.cluster,
		Log: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	r.environ = []string{"ROLLCALL_ADMIN=" + url, "ROLLCALL_ADMIN_TOKEN=" + token}
	return r
}

// tableNow is the time at which the tables of these tests are printed.
var tableNow = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// shown makes a healthy member that changed to its state at the time ago before tableNow.
func shown(id, name string, state admin.State, ago time.Duration) admin.Member {
	beat := 1.5
	return admin.Member{Node: uuid.MustParse(id + "-0000-4000-8000-000000000000"),
		Session: uuid.MustParse("00000000-0000-4000-8000-0000" + id), Name: name, State: state, Version: "1.4.0",
		Since: api.Time(tableNow.Add(-ago)), HeartbeatAge: &beat, Agreed: true}
}

// trio is a healthy cluster of three nodes.
func trio() admin.Membership {
	one := shown("5f2c91aa", "node-1", admin.StateServing, 2*time.Hour)
	one.This, one.Leases, one.Addresses, one.Receivers = true, 4, 12044, 31
	two := shown("a1000000", "node-2", admin.StateServing, 50*time.Hour)
	two.Leases, two.Addresses, two.Receivers = 12, 1200000, 1031
	return admin.Membership{Cluster: "rollcall", Members: []admin.Member{one, two,
		shown("b2000000", "node-3", admin.StateServing, 20*time.Second)}}
}

func TestMembersOfAClusterThatIsWell(t *testing.T) {
	const want = `cluster rollcall as node-1 sees it

  NODE      NAME    STATE    VERSION  SINCE  LEASES  ADDRESSES  RECEIVERS
* 5f2c91aa  node-1  serving  1.4.0    2h          4     12,044         31
  a1000000  node-2  serving  1.4.0    2d         12  1,200,000      1,031
  b2000000  node-3  serving  1.4.0    20s         0          0          0
`
	var out bytes.Buffer
	b := term.NewPage(screen{&out})
	membersTable{trio(), tableNow}.print(b)
	err := b.Emit()
	effort.ErrorIf(t, err != nil || out.String() != want, "got %v and\n%s\nwant\n%s", err, out.String(), want)
}

// TestMembersThatAreNotWell shows every possible problem with the longest texts in 80 columns: testdata/members.txt.
func TestMembersThatAreNotWell(t *testing.T) {
	known := trio()
	known.Cluster, known.LedgerAge = "a-cluster-with-a-name-of-more-than-thirty", 40
	late, offset := 12.0, int64(-63_000)
	for i := range known.Members {
		m := &known.Members[i]
		m.Name = "a-rather-long-name-of-a-host.example.com\x1b[2J"
		m.Version = fmt.Sprintf("v0.0.0-2030010203040%d-0123456789ab", i)
		m.Leases, m.Addresses, m.Receivers, m.Agreed = 100_000, 987_654_321_000, 1_234_567, false
		m.State = admin.StateUnlinked
		m.HeartbeatAge = &late
		m.ClockOffset = &offset
	}
	for i := range 6 {
		known.Members = append(known.Members, shown(fmt.Sprintf("e%07d", i), fmt.Sprint("link-", i),
			admin.StateUnlinked, time.Minute))
	}
	for i, state := range []admin.State{admin.StateLost, admin.StateLeft, admin.StateUnseen, admin.StateSuspect,
		admin.StateDraining} {
		known.Members = append(known.Members, shown(fmt.Sprintf("c%07d", i), fmt.Sprint("node-", i), state, 400*24*time.Hour))
	}
	var out bytes.Buffer
	b := term.NewPage(screen{&out})
	membersTable{known, tableNow}.print(b)
	effort.OK(t, b.Emit())
	fits(t, out.String(), term.Columns)
	effort.Is(t, out.String(), string(effort.Must(os.ReadFile("testdata/members.txt"))(t)))
}

// TestMembersAsJSON: --json prints the node's answer unchanged.
func TestMembersAsJSON(t *testing.T) {
	r := newClusterRig(t, trio())
	var got admin.Membership
	r.asks(&got, "cluster", "members")
	effort.ErrorIf(t, len(got.Members) != 3 || got.Members[0].Node != trio().Members[0].Node, "got %+v", got)
	effort.Has(t, r.must("cluster", "members"), "\n* 5f2c91aa  node-1")
}

// TestWatchedMembers: the table is shown again and again, also after a time without an answer, until the watch ends.
func TestWatchedMembers(t *testing.T) {
	for _, c := range []struct {
		name string
		view repeated[admin.Membership]
		want []string // how often each text appears, as "3 text"
	}{
		{"lines", repeated[admin.Membership]{}, []string{"2 cluster rollcall as node-1", "1 did not answer", "0 \x1b"}},
		{"screen", repeated[admin.Membership]{redraw: true}, []string{"2 cluster rollcall as node-1", "1 did not answer",
			"3 " + screenHome}},
		{"JSON", repeated[admin.Membership]{asJSON: true}, []string{`2 {"cluster":"rollcall",`,
			`1 {"error":"the cluster or its`, "3 \n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newClusterRig(t, trio(), admin.Membership{Cluster: "broken"}, trio())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.cluster.OnAsk = func(n int) {
				if n == 4 {
					cancel()
				}
			}
			var out bytes.Buffer
			c.view.out, c.view.every, c.view.ask = &out, time.Millisecond, adminOf(t, r.environ).Members
			c.view.show = func(b *term.Page, known admin.Membership, _ int) { membersTable{known, tableNow}.print(b) }
			effort.ErrIs(t, c.view.run(ctx), nil)
			for _, w := range c.want {
				number, text, _ := strings.Cut(w, " ")
				if got := fmt.Sprint(strings.Count(out.String(), text)); got != number {
					t.Errorf("%q is there %s times, want %s, in\n%s", text, got, number, out.String())
				}
			}
		})
	}
	r := newClusterRig(t, admin.Membership{Cluster: "broken"})
	r.refused("did not answer", "cluster", "members", "--watch")
}

// with returns a copy of a cluster with one changed member.
func with(known admin.Membership, i int, change func(m *admin.Member)) admin.Membership {
	known.Members = slices.Clone(known.Members)
	change(&known.Members[i])
	return known
}

// TestOneNodeIsDrainedUndrainedAndForgotten checks the requests, the output and the waits of the commands. Package
// admin tests what the listener refuses.
func TestOneNodeIsDrainedUndrainedAndForgotten(t *testing.T) {
	t.Parallel()
	second := func(s admin.State) admin.Membership { return with(trio(), 1, func(m *admin.Member) { m.State = s }) }
	well, draining := []admin.Membership{trio()}, second(admin.StateDraining)
	lost := []admin.Membership{with(trio(), 2, func(m *admin.Member) { m.State = admin.StateLost })}
	for _, c := range []struct {
		args                  string
		frames                []admin.Membership
		asked, stdout, stderr string
		err                   string
	}{
		{"drain", well, "", "", "", "give --yes for the node that is asked"},
		{"drain --yes", well, "drain 5f2c91aa", "node-1 (5f2c91aa) is asked to drain", "", ""},
		{"drain node-2", well, "drain a1000000", "node-2 (a1000000) is asked to drain", "", ""},
		{"drain node-2 --json", well, "drain a1000000", `{"node":"a1000000-`, "", ""},
		{"drain --yes", []admin.Membership{{Members: trio().Members[:1]}}, "drain 5f2c91aa",
			"node-1 (5f2c91aa) is asked to drain", "No other node is serving", ""},
		{"drain node-9", well, "", "", "", `no node has the name or the id "node-9"; the nodes are: node-1 (5f2c91aa-`},
		{"undrain", well, "", "", "", "give --yes for the node that is asked"},
		{"undrain --yes", well, "undrain 5f2c91aa", "node-1 (5f2c91aa) is asked to take work again", "", ""},
		{"undrain node-2 --wait", []admin.Membership{draining, draining, trio()}, "undrain a1000000",
			"node-2 (a1000000) takes work.", "draining: ", ""},
		{"undrain node-2 --wait", []admin.Membership{draining, second(admin.StateLeft)}, "undrain a1000000", "", "",
			"takes no work: it has ended (left). Start it"},
		{"undrain node-2 --wait", []admin.Membership{draining, second(admin.StateIneligible)}, "undrain a1000000", "",
			"ineligible: ", "run `rollcall doctor` there"},
		{"forget", lost, "", "", "", "NODE is missing"},
		{"forget node-3", lost, "", "", "", "there is no terminal to ask at: give --yes if you " +
			"know that node-3 (b2000000) is dead"},
		{"forget node-3 --yes", lost, "forget b2000000", "node-3 (b2000000) is forgotten.", "", ""},
		{"forget b2 --yes --json", lost, "forget b2000000", `{"node":"b2000000-`, "", ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel() // some wait for a second
			r := newClusterRig(t, c.frames...)
			r.stdin = "y\n"
			stdout, stderr, err := r.run(append([]string{"cluster"}, strings.Fields(c.args)...)...)
			effort.Is(t, r.cluster.Calls(), c.asked, "asked")
			effort.ErrorIf(t, err != nil != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err),
				"ended with %v, want %q", err, c.err)
			effort.ErrorIf(t, !strings.HasPrefix(stdout, c.stdout) || !strings.HasPrefix(stderr, c.stderr) ||
				(stdout == "") != (c.stdout == "") || (stderr == "") != (c.stderr == ""),
				"got %q and %q, want %q and %q", stdout, stderr, c.stdout, c.stderr)
		})
	}
}

// TestDrainIsWaitedFor: the command waits until that process has no work left, is lost, or is unknown to every node.
func TestDrainIsWaitedFor(t *testing.T) {
	state := func(s admin.State, leases, receivers int) admin.Membership {
		return with(trio(), 1, func(m *admin.Member) { m.State, m.Leases, m.Receivers = s, leases, receivers })
	}
	again := with(trio(), 1, func(m *admin.Member) { m.Session = uuid.New() })
	broken := admin.Membership{Cluster: "broken"}
	for _, c := range []struct {
		name   string
		frames []admin.Membership
		told   []string
		err    error
	}{
		{"given away", []admin.Membership{state(admin.StateServing, 2, 9), state(admin.StateDraining, 2, 9),
			state(admin.StateDraining, 2, 9), state(admin.StateDraining, 0, 4), state(admin.StateDraining, 0, 0)},
			[]string{"serving: leases 2", "draining: leases 2, addresses 1,200,000, receivers 9", "draining: leases 0"}, nil},
		{"has nothing, and does not know it shall drain", []admin.Membership{state(admin.StateServing, 0, 0),
			state(admin.StateSuspect, 0, 0), state(admin.StateDraining, 0, 0)},
			[]string{"serving: ", "suspect: "}, nil},
		{"left", []admin.Membership{state(admin.StateLeft, 0, 0)}, nil, nil},
		{"left and was started again", []admin.Membership{again}, nil, nil},
		{"lost", []admin.Membership{state(admin.StateDraining, 2, 9), state(admin.StateLost, 2, 9)},
			[]string{"draining: "}, errLostDraining},
		{"a ledger that is back", []admin.Membership{broken, broken, state(admin.StateDraining, 0, 0)}, nil, nil},
		{"nobody tells", []admin.Membership{broken}, nil, errDeaf},
		{"undrained meanwhile", []admin.Membership{state(admin.StateServing, 2, 9), state(admin.StateDraining, 2, 9),
			state(admin.StateServing, 0, 9)}, []string{"serving: ", "draining: "}, errUndrained},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newClusterRig(t, c.frames...)
			var told bytes.Buffer
			m, err := watchNode(t.Context(), adminOf(t, r.environ), &told, trio().Members[1], time.Millisecond, "drain",
				untilDrained())
			effort.ErrorIf(t, !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || err == nil &&
				m.Leases+m.Receivers != 0, "got %+v and %v, want %v", m, err, c.err)
			lines := slices.Collect(strings.Lines(told.String()))
			effort.ErrorIf(t, !slices.EqualFunc(lines, c.told, strings.HasPrefix), "told %q, want %q", lines, c.told)
		})
	}
	r := newClusterRig(t, state(admin.StateDraining, 2, 9))
	ctx, cancel := context.WithCancel(t.Context())
	r.cluster.OnAsk = func(n int) {
		if n == 3 {
			cancel()
		}
	}
	effort.Denied(watchNode(ctx, adminOf(t, r.environ), io.Discard, trio().Members[1], time.Millisecond, "drain",
		untilDrained()))(t, context.Canceled, "interrupted")
}

// TestForgetAsksAPerson: only yes or y is a yes.
func TestForgetAsksAPerson(t *testing.T) {
	m := with(trio(), 2, func(m *admin.Member) { m.State = admin.StateLost }).Members[2]
	for answer, want := range map[string]error{"y\n": nil, "YES\n": nil, " yes": nil, "n\n": errNotForgotten,
		"": errNotForgotten, "\n": errNotForgotten, "yesterday\n": errNotForgotten} {
		var asked bytes.Buffer
		effort.ErrIs(t, confirmForget(strings.NewReader(answer), &asked, m), want, answer)
		effort.Has(t, asked.String(), m.Node.String(), "asked")
		effort.Has(t, asked.String(), "I know that its process", "asked")
	}
}
