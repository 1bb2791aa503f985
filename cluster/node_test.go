package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
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
	living := &atomic.Int64{}
	n, err := New(Options{Name: "test", Host: "here", Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Comply: func(context.Context, func(string) (int, int)) error { return nil },
		Load:   func() Load { return Load{} }, Registerer: prometheus.NewRegistry()})
	if err == nil {
		err = n.Serve(t.Context(), Kinds{"echo": actor.PropsFromProducer(func() actor.Actor { return &echo{living} })}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Stop(context.Background()) })
	return n, living
}

// resolve finds a virtual actor, and asks again when a slow machine did not answer in time.
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
		if next := <-pids; next != first {
			t.Fatalf("example.net lives as %s and as %s", first, next)
		}
	}
	if other := resolve(n, "example.org").String(); other == first {
		t.Fatalf("two identities share %s", other)
	}
	for deadline := time.Now().Add(linkWait); living.Load() != 2; { // they start beside us
		if time.Now().After(deadline) {
			t.Fatalf("%d actors live, want 2", living.Load())
		}
		runtime.Gosched()
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := living.Load(); got != 0 {
		t.Fatalf("%d actors live after Stop, want 0", got)
	}
}

// TestNodeAloneEndsItsSessions: it has no shares to give up, but sessions that want to say QUIT.
func TestNodeAloneEndsItsSessions(t *testing.T) {
	ended := 0
	n, err := New(Options{Name: "test", Host: "here", Log: slog.New(slog.DiscardHandler),
		Comply: func(_ context.Context, of func(string) (int, int)) error {
			if k, _ := of("example.net"); k == 0 {
				ended++
			}
			return nil
		},
		Load: func() Load { return Load{} }, Registerer: prometheus.NewRegistry()})
	if err == nil {
		err = n.Serve(t.Context(), Kinds{"echo": actor.PropsFromProducer(func() actor.Actor { return &echo{&atomic.Int64{}} })}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Stop(t.Context()), n.Stop(t.Context())); err != nil || ended != 1 {
		t.Errorf("sessions were ended %d times, %v", ended, err)
	}
}

func TestUnknownKindResolvesToNothing(t *testing.T) {
	n, _ := startEcho(t)
	if pid := n.Resolve("nobody", "example.net"); pid != nil {
		t.Fatalf("an unknown kind resolved to %s", pid)
	}
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
	// Those who watch may be told before the node has forgotten the dead one.
	for deadline := time.Now().Add(linkWait); time.Now().Before(deadline); {
		if second = n.Resolve("echo", "example.net"); second != nil && !second.Equal(first) {
			break
		}
	}
	if second == nil || second.Equal(first) {
		t.Fatalf("resolved to %v after %v panicked, want a new actor", second, first)
	}
}

func TestRemotePortOfALonelyNodeRefusesStreamsAndCalls(t *testing.T) {
	n, _ := startEcho(t)
	conn, err := grpc.NewClient(n.System().Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), linkWait)
	defer cancel()
	client := remote.NewRemotingClient(conn)
	if _, err := client.ListProcesses(ctx, &remote.ListProcessesRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("ListProcesses: got %v, want Unimplemented", err)
	}
	stream, err := client.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("Receive: got %v, want PermissionDenied", err)
	}
}
