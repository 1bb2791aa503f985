package cluster

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"rollcall/cluster/gossip"
	"rollcall/cluster/wire"
	"rollcall/config/effort"
	"rollcall/ledger"
)

type echo struct{ living *atomic.Int64 }

func (e *echo) Receive(c actor.Context) {
	switch c.Message().(type) {
	case *actor.Started:
		e.living.Add(1)
	case *actor.Stopped:
		e.living.Add(-1)
	case *actor.Touch:
		c.Respond(&actor.Touched{Who: c.Self()})
	case *actor.PoisonPill, *actor.Stopping, *pcluster.ClusterInit:
	case string:
		panic("asked to")
	}
}

func startEcho(t *testing.T) (*Node, *atomic.Int64) {
	t.Helper()
	return startAlone(t, func(*Options) {})
}

// startAlone starts a node without peers whose virtual actors are echoes. It also returns the number of living
// echoes.
func startAlone(t *testing.T, change func(o *Options)) (*Node, *atomic.Int64) {
	t.Helper()
	living := &atomic.Int64{}
	o := Options{Name: "test", Host: "here", Log: slog.New(slog.DiscardHandler), ApplyShares: obey,
		Load: func() Load { return Load{} }, Registerer: prometheus.NewRegistry()}
	change(&o)
	n := New(o)
	kinds := Kinds{"echo": actor.PropsFromProducer(func() actor.Actor { return &echo{living} })}
	effort.OK(t, n.Serve(t.Context(), kinds, nil))
	t.Cleanup(func() { _ = n.Stop(context.Background()) })
	return n, living
}

// resolve finds a virtual actor. It asks again if a slow machine did not answer in time.
func resolve(n *Node, identity string) *actor.PID {
	for deadline := time.Now().Add(linkWait); time.Now().Before(deadline); {
		if pid := n.Resolve("echo", identity); pid != nil {
			return pid
		}
	}
	return nil
}

func TestOneIdentityIsOneActor(t *testing.T) {
	n, living := startEcho(t)
	pids := make(chan string, 64)
	for range 64 {
		go func() { pids <- resolve(n, "example.net").String() }()
	}
	first := <-pids
	for range 63 {
		effort.MustBe(t, <-pids, first, "the pid of example.net")
	}
	other := resolve(n, "example.org").String()
	effort.FatalIf(t, other == first, "two identities share %s", other)
	for deadline := time.Now().Add(linkWait); living.Load() != 2; { // they start beside us
		effort.FatalIf(t, time.Now().After(deadline), "%d actors live, want 2", living.Load())
		runtime.Gosched()
	}
	effort.OK(t, n.Stop(t.Context()))
	effort.MustBe(t, living.Load(), 0, "actors live after Stop")
}

// TestNodeAloneEndsItsSessions: a node without peers has no shares to give up, but it must end its sessions with
// QUIT.
func TestNodeAloneEndsItsSessions(t *testing.T) {
	ended := 0
	n, _ := startAlone(t, func(o *Options) {
		o.ApplyShares = func(_ context.Context, of func(string) (int, int)) error {
			if k, _ := of("example.net"); k == 0 {
				ended++
			}
			return nil
		}
	})
	if err := errors.Join(n.Stop(t.Context()), n.Stop(t.Context())); err != nil || ended != 1 {
		t.Errorf("sessions were ended %d times, %v", ended, err)
	}
}

func TestUnknownKindResolvesToNothing(t *testing.T) {
	n, _ := startEcho(t)
	pid := n.Resolve("nobody", "example.net")
	effort.FatalIf(t, pid != nil, "an unknown kind resolved to %s", pid)
}

func TestActorThatPanicsIsStoppedAndResolvedAnew(t *testing.T) {
	n, _ := startEcho(t)
	first := resolve(n, "example.net")
	ended := make(chan struct{})
	watcher := n.System().Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch c.Message().(type) {
		case *actor.Started:
			c.Watch(first)
		case *actor.Terminated:
			close(ended)
		}
	}))
	defer n.System().Root.Stop(watcher)
	n.System().Root.Send(first, "panic")
	select {
	case <-ended:
	case <-time.After(linkWait):
		t.Fatal("watchers of an actor that panicked are not told")
	}
	var second *actor.PID
	// Watchers may hear of the death before the node has forgotten the dead actor.
	for deadline := time.Now().Add(linkWait); time.Now().Before(deadline); {
		if second = n.Resolve("echo", "example.net"); second != nil && !second.Equal(first) {
			break
		}
	}
	effort.FatalIf(t, second == nil || second.Equal(first),
		"resolved to %v after %v panicked, want a new actor", second, first)
}

func TestRemotePortOfALonelyNodeRefusesStreamsAndCalls(t *testing.T) {
	n, _ := startEcho(t)
	conn := effort.Must(grpc.NewClient(n.System().Address(), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), linkWait)
	defer cancel()
	client := remote.NewRemotingClient(conn)
	_, err := client.ListProcesses(ctx, &remote.ListProcessesRequest{})
	effort.ErrorIf(t, status.Code(err) != codes.Unimplemented, "ListProcesses: got %v, want Unimplemented", err)
	stream := effort.Must(client.Receive(ctx))(t)
	_, err = stream.Recv()
	effort.ErrorIf(t, status.Code(err) != codes.PermissionDenied, "Receive: got %v, want PermissionDenied", err)
}

// TestTheTimesOfTheProductAreInOrder: the guarantees of a cluster rely on it.
func TestTheTimesOfTheProductAreInOrder(t *testing.T) {
	d := DefaultTimes()
	for text, fits := range map[string]bool{
		"soon is longer than a heartbeat":            d.Soon <= d.Heartbeat,
		"one heartbeat that fails puts the fence up": 2*d.Heartbeat+d.Soon <= d.Fence,
		"no heartbeat fits before the last RCPT":     d.Heartbeat+d.Soon <= d.Fence-d.Unacknowledged,
		"a heartbeat may take as long as the fence":  d.HeartbeatWithin < d.Fence && d.ApplyWithin < d.Fence,
		"lost is not long enough after fence":        d.Lost-d.Fence >= d.Lost/6,
		"rest is shorter than lost":                  d.Lost <= d.Linger,
		"an answer expires before the next question": d.LinkEvery < d.LinkLife,
	} {
		effort.ErrorIf(t, !fits, "%v", text)
	}
}

// TestTheTimesOfTheProduct: docs/operators/cluster.md states these times.
func TestTheTimesOfTheProduct(t *testing.T) {
	want := Times{Heartbeat: 3 * time.Second, Soon: 250 * time.Millisecond, HeartbeatWithin: 5 * time.Second,
		ApplyWithin: 5 * time.Second, Fence: 8 * time.Second, Lost: 10 * time.Second, Unacknowledged: 4 * time.Second,
		Linger: 5*time.Minute + 10*time.Second, LinkEvery: time.Second, LinkLife: 5 * time.Second, Ask: time.Second,
		Meet: 3 * time.Second}
	effort.Is(t, DefaultTimes(), want, "the times")
	fifth := reflect.ValueOf(effort.Scaled(DefaultTimes(), 0.2))
	for i := range fifth.NumField() {
		whole := reflect.ValueOf(want).Field(i).Int()
		effort.Is(t, fifth.Field(i).Int(), whole/5, "a fifth of", fifth.Type().Field(i).Name)
	}
}

// TestLogsCarryNoMessages logs a message at every level in the forms that the actor library uses. The content of the
// message must not be in the log.
func TestLogsCarryNoMessages(t *testing.T) {
	const canary = "canary.person@private.example"
	var out effort.Log
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	message := &wire.KeysAsk{Fingerprint: canary}
	l := quiet(log)
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		l.Log(t.Context(), level, "[DeadLetter]", slog.Any("message", message), slog.String("sender", canary),
			slog.Any("pid", actor.NewPID(canary, canary)), slog.String("address", "127.0.0.1:7947"))
		l.With("message", message).WithGroup("g").Log(t.Context(), level, "serialize failed", "body", message)
	}
	said := out.String()
	effort.Lacks(t, said, canary, "the log holds what a message held")
	effort.ErrorIf(t, strings.Count(said, "127.0.0.1:7947") != 2 || strings.Contains(said, "level=ERROR"),
		"want the address of the two that are warnings or worse, as warnings: %s", said)
}

// TestDeadLettersAreNotShown sends a message to an actor that doesn't exist, through a whole node.
func TestDeadLettersAreNotShown(t *testing.T) {
	const canary = "canary.person@private.example"
	var out effort.Log
	n, _ := startAlone(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	nobody := actor.NewPID(n.System().Address(), "nobody")
	ask := &wire.KeysAsk{Fingerprint: canary}
	if _, err := n.System().Root.RequestFuture(nobody, ask, linkWait).Result(); err == nil {
		t.Fatal("nobody answered")
	}
	effort.OK(t, n.Stop(t.Context()))
	effort.Lacks(t, out.String(), canary, "the log holds what a message held")
}

func TestWhoIsLostIsNamed(t *testing.T) {
	seen := []gossip.NodeMeta{{Session: uuid.UUID{1}, Node: uuid.UUID{1}, Name: "here"}}
	row := func(session, node byte, standing ledger.NodeStatus, dead bool) ledger.NodeRow {
		return ledger.NodeRow{Status: standing, Dead: dead, Heartbeat: ledger.Heartbeat{Name: string('a' + rune(node)),
			Incarnation: ledger.Incarnation{Session: uuid.UUID{session}, Node: uuid.UUID{node}}}}
	}
	rows := []ledger.NodeRow{row(1, 1, ledger.NodeIn, false), row(11, 1, ledger.NodeLost, false),
		row(2, 2, ledger.NodeIn, false), row(3, 3, ledger.NodeLost, false), row(13, 3, ledger.NodeLost, false),
		row(4, 4, ledger.NodeLost, true), row(5, 5, ledger.NodeLeft, false)}
	var names []string
	for _, r := range lostOf(&ledger.NodeSnapshot{Nodes: rows}, seen) {
		names = append(names, r.Name)
		effort.ErrorIf(t, r.Err != ErrLost || r.Node == uuid.Nil || r.Body != nil, "%+v", r)
	}
	effort.Is(t, strings.Join(names, " "), "c d", "lost are want those in and lost that nobody sees: c d")
}
