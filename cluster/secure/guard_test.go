package secure_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"rollcall/cluster/secure"
	"rollcall/cluster/wire"
	"rollcall/config/effort"
)

const elsewhere = "127.0.0.1:9"

// typeName replaces a batch's only type name.
func typeName(name string) func(*remote.MessageBatch) {
	return func(b *remote.MessageBatch) { b.TypeNames[0] = name }
}

// envelope changes a batch's only envelope.
func envelope(change func(*remote.MessageEnvelope)) func(*remote.MessageBatch) {
	return func(b *remote.MessageBatch) { change(b.Envelopes[0]) }
}

func TestWhatAMemberMayNotSendIsDropped(t *testing.T) {
	r := newRig(t)
	a := r.first.spawn(t)
	p := r.connected(t, a)
	sender := envelope(func(e *remote.MessageEnvelope) { e.Sender = 1 })
	there := &actor.PID{Address: elsewhere, Id: "x"}
	for _, c := range []struct {
		name    string
		message proto.Message
		change  func(*remote.MessageBatch)
		reason  string // "": the message is not dropped
	}{
		{"a type of nobody", keys("x"), typeName("rollcall.cluster.Nothing"), "unknown_type"},
		{"no type", keys("x"), typeName(""), "unknown_type"},
		{"a type that is no name", keys("x"), typeName("../\x00"), "unknown_type"},
		{"the name of an enum", keys("x"), typeName("rollcall.cluster.KeysAsk.Operation"), "unknown_type"},
		{"stop an actor", &actor.Stop{}, nil, "forbidden_type"},
		{"poison an actor", &actor.PoisonPill{}, nil, "forbidden_type"},
		{"touch an actor", &actor.Touch{}, nil, "forbidden_type"},
		{"start an actor", &remote.ActorPidRequest{Kind: "x"}, nil, "forbidden_type"},
		{"publish", &pcluster.PubSubBatchTransport{}, nil, "forbidden_type"},
		{"the library's gossip", &pcluster.GossipRequest{}, nil, "forbidden_type"},
		{"a type of others", &emptypb.Empty{}, nil, "forbidden_type"},
		{"to an actor of another node", keys("x"),
			func(b *remote.MessageBatch) { b.Targets[0].Address = elsewhere }, "address"},
		{"in the name of another node", keys("x"), func(b *remote.MessageBatch) {
			sender(b)
			b.Senders[0].Address = elsewhere
		}, "address"},
		{"in our own name", keys("x"), func(b *remote.MessageBatch) {
			sender(b)
			b.Senders[0].Address = r.first.system.Address()
		}, "address"},
		{"watch for another node", &actor.Watch{Watcher: there}, nil, "address"},
		{"watch for nobody", &actor.Watch{}, nil, "address"},
		{"unwatch for another node", &actor.Unwatch{Watcher: there}, nil, "address"},
		{"unwatch for nobody", &actor.Unwatch{}, nil, "address"},
		{"the end of another node's actor", &actor.Terminated{Who: there}, nil, "address"},
		{"the end of one of ours", &actor.Terminated{Who: a.pid}, nil, "address"},
		{"the end of nobody", &actor.Terminated{}, nil, "address"},
		{"watching that cannot be read", &actor.Watch{Watcher: there},
			envelope(func(e *remote.MessageEnvelope) { e.MessageData = []byte{0xff} }), "address"},
		{"with a sender", keys("sender"), sender, ""},
		{"by the name of this process", keys("nonhost"),
			func(b *remote.MessageBatch) { b.Targets[0].Address = "nonhost" }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := 0.0
			if c.reason != "" {
				before = r.first.count(t, "rollcall_cluster_envelopes_dropped_total", "reason="+c.reason)
			}
			p.tell(c.message, c.change)
			if c.reason == "" {
				a.want(c.message.(*wire.Keys).Fingerprints[0])
				return
			}
			p.tell(keys(c.name), nil)
			a.want(c.name) // on the same stream, for the same actor, with nothing before it
			effort.Is(t, r.first.count(t, "rollcall_cluster_envelopes_dropped_total", "reason="+c.reason), before+1,
				"messages were dropped as", c.reason)
		})
	}
}

func TestOfABatchOnlyTheBadIsDropped(t *testing.T) {
	r := newRig(t)
	a := r.first.spawn(t)
	p := r.connected(t, a)
	all := p.batch(keys("1"), nil)
	b := all.GetMessageBatch()
	for i, m := range []proto.Message{keys("sooner"), keys("2"), keys("later"), keys("3"), &actor.Stop{}} {
		one := p.batch(m, nil).GetMessageBatch()
		b.TypeNames = append(b.TypeNames, one.TypeNames[0])
		one.Envelopes[0].TypeId = int32(i + 1)
		b.Envelopes = append(b.Envelopes, one.Envelopes[0])
	}
	b.TypeNames[1], b.TypeNames[3] = "rollcall.cluster.Sooner", "rollcall.cluster.Later"
	effort.OK(t, p.send(all))
	for _, mark := range []string{"1", "2", "3"} {
		a.want(mark)
	}
	effort.ErrorIf(t, !r.first.log.Has("type=rollcall.cluster.Sooner"), "the first dropped message is not told")
	effort.ErrorIf(t, r.first.log.Has("rollcall.cluster.Later"), "the second dropped message of a stream is told too")
}

func TestWhatWouldCrashTheLibraryEndsTheStream(t *testing.T) {
	r := newRig(t)
	a := r.first.spawn(t)
	many := func(add func(b *remote.MessageBatch)) func(*remote.MessageBatch) {
		return func(b *remote.MessageBatch) {
			for range 256 {
				add(b)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*remote.MessageBatch)
		want   codes.Code
	}{
		{"type index too high", envelope(func(e *remote.MessageEnvelope) { e.TypeId = 1 }), codes.InvalidArgument},
		{"type index below zero", envelope(func(e *remote.MessageEnvelope) { e.TypeId = -1 }), codes.InvalidArgument},
		{"target index too high", envelope(func(e *remote.MessageEnvelope) { e.Target = 1 }), codes.InvalidArgument},
		{"target index below zero", envelope(func(e *remote.MessageEnvelope) { e.Target = -1 }), codes.InvalidArgument},
		{"sender index too high", envelope(func(e *remote.MessageEnvelope) { e.Sender = 2 }), codes.InvalidArgument},
		{"sender index below zero", envelope(func(e *remote.MessageEnvelope) { e.Sender = -1 }), codes.InvalidArgument},
		{"lowest sender index", envelope(func(e *remote.MessageEnvelope) { e.Sender = -1 << 31 }), codes.InvalidArgument},
		{"serializer of nobody", envelope(func(e *remote.MessageEnvelope) { e.SerializerId = 7 }), codes.InvalidArgument},
		{"the JSON serializer", envelope(func(e *remote.MessageEnvelope) { e.SerializerId = 1 }), codes.InvalidArgument},
		{"no targets", func(b *remote.MessageBatch) { b.Targets = nil }, codes.InvalidArgument},
		{"data that cannot be read", envelope(func(e *remote.MessageEnvelope) { e.MessageData = []byte{0xff} }),
			codes.Unknown},
		{"too many envelopes", many(func(b *remote.MessageBatch) {
			b.Envelopes = append(b.Envelopes, &remote.MessageEnvelope{})
		}), codes.Internal},
		{"too many type names", many(func(b *remote.MessageBatch) { b.TypeNames = append(b.TypeNames, "") }), codes.Internal},
		{"too many targets", many(func(b *remote.MessageBatch) { b.Targets = append(b.Targets, &actor.PID{}) }),
			codes.Internal},
		{"too many senders", many(func(b *remote.MessageBatch) { b.Senders = append(b.Senders, &actor.PID{}) }),
			codes.Internal},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := r.connected(t, a)
			p.tell(keys("bad"), c.change)
			effort.Is(t, status.Code(p.end()), c.want, "the stream ended with")
			p = r.connected(t, a)
			p.tell(keys("good"), nil)
			a.want("good")
		})
	}
	got := r.first.count(t, "rollcall_cluster_stream_panics_total")
	effort.ErrorIf(t, got != 0, "the library panicked %v times, although it was shielded", got)
}

func TestAFullBatchPasses(t *testing.T) {
	r := newRig(t)
	a := r.first.spawn(t)
	p := r.connected(t, a)
	large := &wire.Keys{Fingerprints: []string{"large"}, Refused: strings.Repeat("x", 64<<10)}
	effort.OK(t, p.send(p.batch(large, func(b *remote.MessageBatch) {
		for range 255 {
			b.Envelopes = append(b.Envelopes, b.Envelopes[0])
			b.Targets = append(b.Targets, b.Targets[0])
			b.Senders = append(b.Senders, b.Senders[0])
			b.TypeNames = append(b.TypeNames, b.TypeNames[0])
		}
	})))
	for range 256 {
		a.want("large")
	}
}

func TestAStreamBeginsWithWhoSpeaks(t *testing.T) {
	r := newRig(t)
	a := r.first.spawn(t)
	for name, first := range map[string]func(*peer) *remote.RemoteMessage{
		"a batch": func(p *peer) *remote.RemoteMessage { return p.batch(keys("x"), nil) },
		"nothing": func(*peer) *remote.RemoteMessage { return &remote.RemoteMessage{} },
		"an answer": func(*peer) *remote.RemoteMessage {
			return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectResponse{}}
		},
		"no address": func(*peer) *remote.RemoteMessage { return connectRequest("") },
		"a client": func(*peer) *remote.RemoteMessage {
			return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{
				ConnectRequest: &remote.ConnectRequest{ConnectionType: &remote.ConnectRequest_ClientConnection{}}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := r.member(t, a)
			effort.OK(t, p.send(first(p)))
			effort.Is(t, status.Code(p.end()), codes.InvalidArgument, "the stream ended with")
		})
	}
	p := r.connected(t, a)
	effort.OK(t, p.send(connectRequest(p.address)))
	effort.Is(t, status.Code(p.end()), codes.InvalidArgument, "a second beginning: the stream ended with")
}

func TestCallsAreRefused(t *testing.T) {
	r := newRig(t)
	a := r.first.spawn(t)
	p := r.member(t, a)
	before := r.first.count(t, "rollcall_cluster_peers_refused_total", "reason=call")
	_, err := p.client.ListProcesses(t.Context(), &remote.ListProcessesRequest{})
	effort.Is(t, status.Code(err), codes.Unimplemented, "ListProcesses", err)
	_, err = p.client.GetProcessDiagnostics(t.Context(), &remote.GetProcessDiagnosticsRequest{})
	effort.Is(t, status.Code(err), codes.Unimplemented, "GetProcessDiagnostics", err)
	effort.Is(t, r.first.count(t, "rollcall_cluster_peers_refused_total", "reason=call")-before, 2)
}

func TestAMemberNoMoreIsHeardNoMore(t *testing.T) {
	r := newRig(t)
	a := r.first.spawn(t)
	p := r.connected(t, a)
	r.part(p.address)
	p.tell(keys("late"), nil)
	effort.Is(t, status.Code(p.end()), codes.PermissionDenied, "the stream ended with")
	p = r.connected(t, a)
	p.tell(keys("again"), nil)
	a.want("again")
}

// TestAMemberThatGossipIsAboutToNameIsAwaited: a member may know this node before gossip has announced the member
// here.
func TestAMemberThatGossipIsAboutToNameIsAwaited(t *testing.T) {
	r := newRig(t)
	a := r.second.spawn(t)
	p := r.member(t, a)
	r.part(p.address)
	r.meet(t, elsewhere, memberName)
	effort.OK(t, p.send(connectRequest(p.address)))
	r.awaitAsked(t, p.address)
	r.meet(t, p.address, memberName)
	effort.Must(p.stream.Recv())(t)
	p.tell(keys("here"), nil)
	a.want("here")
}

// fakeStream is a stream of a peer without TLS.
type fakeStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s fakeStream) Context() context.Context { return s.ctx }

func TestAPanicOfTheLibraryEndsOnlyTheStream(t *testing.T) {
	registry := prometheus.NewRegistry()
	n := &node{metrics: registry}
	guard := &secure.Guard{Admit: func(string) bool { return true }, Metrics: secure.NewMetrics(registry),
		Log: slog.New(slog.NewTextHandler(&n.log, nil))}
	stream := fakeStream{ctx: grpcpeer.NewContext(t.Context(), &grpcpeer.Peer{})}
	err := guard.Stream(nil, stream, nil, func(any, grpc.ServerStream) error { panic(secretText) })
	effort.ErrorIf(t, status.Code(err) != codes.Internal || n.log.Has(secretText),
		"got %v; the log tells the message: %v", err, n.log.Has(secretText))
	effort.Is(t, n.count(t, "rollcall_cluster_stream_panics_total"), 1, "panics were counted")
}
