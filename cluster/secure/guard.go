package secure

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// admitEvery is how often membership is checked while a peer is not known yet.
const admitEvery = 50 * time.Millisecond

// Times bound how long a peer may take. DefaultTimes are those of production.
type Times struct {
	// Connect bounds one dial with its handshake. Members are near. An unreachable address is noticed two seconds
	// after this time.
	Connect time.Duration

	// Handshake bounds how long a stranger may hold a connection without having shown a certificate.
	Handshake time.Duration

	// Admit is how long a peer with a good certificate waits until gossip has announced it to this node. Without the
	// wait it would be refused, and its library would sleep for two seconds before the next try.
	Admit time.Duration
}

// DefaultTimes are those of a cluster in production. Guesses.
func DefaultTimes() Times {
	return Times{Connect: 2 * time.Second, Handshake: 5 * time.Second, Admit: 2 * time.Second}
}

// Guard stands between the wire and the actor library's server. All fields but Times are required; the functions are
// called from many goroutines and for every batch, so they must be quick.
type Guard struct {
	// Admit reports whether a present member has this name. The name is "" without TLS.
	Admit func(name string) bool
	// NameOf returns the member with an address of actor traffic; ok is false if there is none.
	NameOf func(address string) (name string, ok bool)
	// Local is this node's own address of actor traffic.
	Local   func() string
	Metrics *Metrics
	Log     *slog.Logger
	Times   Times // the zero Times: DefaultTimes
}

// Unary refuses every call: this program makes none, and the library's handlers panic.
func (g *Guard) Unary(_ context.Context, _ any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
	g.Metrics.refused.WithLabelValues(refusedCall).Inc()
	return nil, status.Errorf(codes.Unimplemented, "%s is not offered", info.FullMethod)
}

// Stream admits members only, inspects what they send, and turns a panic of the library into the end of the stream.
func (g *Guard) Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handle grpc.StreamHandler) (err error) {
	name, err := peerName(stream.Context())
	if err != nil {
		g.Metrics.refused.WithLabelValues(refusedName).Inc()
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			// The panic's value may hold a message; the stack does not.
			g.Metrics.panics.Inc()
			g.Log.Error("actor library panicked on a stream", "peer", name, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "the stream could not be read")
		}
	}()
	if !g.await(stream.Context(), func() bool { return g.Admit(name) }) {
		return g.refuse(name, "")
	}
	return handle(server, &guarded{ServerStream: stream, guard: g, name: name})
}

// times returns Times, or the defaults.
func (g *Guard) times() Times {
	if g.Times == (Times{}) {
		return DefaultTimes()
	}
	return g.Times
}

// await waits until ok returns true, for Times.Admit at most.
func (g *Guard) await(ctx context.Context, yes func() bool) bool {
	if yes() {
		return true
	}
	end, tick := time.After(g.times().Admit), time.Tick(admitEvery)
	for {
		select {
		case <-tick:
			if yes() {
				return true
			}
		case <-end:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// refuse counts and logs that a peer is no member, or not at this address.
func (g *Guard) refuse(name, address string) error {
	g.Metrics.refused.WithLabelValues(refusedName).Inc()
	g.Log.Warn("refused a peer that is no member", "peer", name, "address", clip(address))
	if address == "" {
		return status.Errorf(codes.PermissionDenied, "no member is called %q here", name)
	}
	return status.Errorf(codes.PermissionDenied, "%q is not the address of member %q here", clip(address), name)
}

// peerName returns the name in the peer's certificate, or "" without TLS.
func peerName(ctx context.Context) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "no peer")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return "", nil
	}
	if len(info.State.PeerCertificates) == 0 {
		return "", status.Error(codes.Unauthenticated, "no certificate")
	}
	name, err := nameIn(info.State.PeerCertificates[0])
	if err != nil {
		return "", status.Error(codes.Unauthenticated, err.Error())
	}
	return name, nil
}

// clip shortens a peer's text for a log line.
func clip(text string) string { return text[:min(len(text), clipAt)] }

// clipAt is the longest possible address: a host name (RFC 1035 §2.3.4) and a port.
const clipAt = 255 + len(":65535")

// houseTypes is the prefix of the names of this program's messages.
const houseTypes = "rollcall."

// nowhere is the library's address for actors of its own process.
const nowhere = "nonhost"

// errMalformed ends a stream on which the library would have panicked.
var errMalformed = status.Error(codes.InvalidArgument, "malformed message")

// guarded is a stream of a member, inspected before the library reads it. Used by the one goroutine that reads the
// stream.
type guarded struct {
	grpc.ServerStream
	guard   *Guard
	name    string // of the member
	address string // of the member's actor traffic; "" until it is known
	warned  bool   // of a dropped message
}

// RecvMsg implements grpc.ServerStream. It removes from a batch the envelopes that the sender may not send. An error
// ends the stream.
func (s *guarded) RecvMsg(into any) error {
	if err := s.ServerStream.RecvMsg(into); err != nil {
		return err
	}
	m, ok := into.(*remote.RemoteMessage)
	if !ok {
		return s.malformed()
	}
	switch t := m.MessageType.(type) {
	case *remote.RemoteMessage_ConnectRequest:
		return s.connect(t.ConnectRequest.GetServerConnection().GetAddress())
	case *remote.RemoteMessage_MessageBatch:
		if s.address == "" {
			return s.malformed()
		}
		if !s.member() {
			return s.guard.refuse(s.name, s.address)
		}
		return s.sift(t.MessageBatch)
	}
	return s.malformed()
}

// connect binds the stream to its member's address, as membership knows it.
func (s *guarded) connect(address string) error {
	if address == "" || s.address != "" {
		return s.malformed()
	}
	s.address = address
	if !s.guard.await(s.Context(), s.member) {
		return s.guard.refuse(s.name, address)
	}
	return nil
}

// member reports whether membership still knows the member at its address. Without TLS there is only the address.
func (s *guarded) member() bool {
	name, ok := s.guard.NameOf(s.address)
	return ok && (s.name == "" || name == s.name) && s.guard.Admit(s.name)
}

func (s *guarded) malformed() error {
	s.guard.Metrics.refused.WithLabelValues(refusedMalformed).Inc()
	s.guard.Log.Warn("malformed actor traffic ended a stream", "peer", s.name, "address", s.address)
	return errMalformed
}

// sift removes from a batch all messages that its sender may not send.
func (s *guarded) sift(b *remote.MessageBatch) error {
	senderOk := make([]bool, len(b.Senders))
	for i, pid := range b.Senders {
		senderOk[i] = pid.GetAddress() == s.address
	}
	targetOk := make([]bool, len(b.Targets))
	local := s.guard.Local()
	for i, pid := range b.Targets {
		targetOk[i] = pid.GetAddress() == local || pid.GetAddress() == nowhere
	}
	types := make([]verdict, len(b.TypeNames))
	for i, name := range b.TypeNames {
		types[i] = judge(name)
	}
	kept := b.Envelopes[:0]
	for _, e := range b.Envelopes {
		if e == nil || !within(e.TypeId, len(types)) || !within(e.Target, len(targetOk)) ||
			e.Sender != 0 && !within(e.Sender-1, len(senderOk)) || e.SerializerId != 0 {
			return s.malformed()
		}
		switch v := types[e.TypeId]; {
		case v == typeUnknown:
			s.drop(droppedUnknown, b.TypeNames[e.TypeId])
		case v == typeForbidden:
			s.drop(droppedForbidden, b.TypeNames[e.TypeId])
		case !targetOk[e.Target] || e.Sender != 0 && !senderOk[e.Sender-1]:
			s.drop(droppedAddress, b.TypeNames[e.TypeId])
		case v == typeWatching && !s.watches(e.MessageData):
			s.drop(droppedAddress, b.TypeNames[e.TypeId])
		default:
			kept = append(kept, e)
		}
	}
	b.Envelopes = kept
	return nil
}

func within(index int32, length int) bool { return index >= 0 && int(index) < length }

// drop counts a message that no actor will see, and logs the first one of a stream. Between honest nodes it means
// that one of them runs too old a version.
func (s *guarded) drop(reason, typeName string) {
	s.guard.Metrics.dropped.WithLabelValues(reason).Inc()
	if !s.warned {
		s.warned = true
		s.guard.Log.Warn("dropped a message from a member; further ones of its stream are only counted",
			"peer", s.name, "address", s.address, "type", clip(typeName), "reason", reason)
	}
}

// watches reports whether a message about watching names an actor of the peer in field 1, because the library trusts
// that name unchecked. All three kinds of such messages have the field.
func (s *guarded) watches(data []byte) bool {
	var m actor.Watch
	return proto.Unmarshal(data, &m) == nil && m.GetWatcher().GetAddress() == s.address
}

// verdict is what to do with messages of a type.
type verdict uint8

const (
	typeForbidden verdict = iota // known here, but no member needs to send it
	typeUnknown                  // unknown here: the library would panic
	typeAllowed
	typeWatching // allowed about actors of the sender
)

// libraryTypes are the messages of the actor library that members send each other. Other messages of the library
// could stop an actor, start one of any kind, or publish.
var libraryTypes = map[protoreflect.FullName]verdict{
	proto.MessageName(&actor.Watch{}):                 typeWatching,
	proto.MessageName(&actor.Unwatch{}):               typeWatching,
	proto.MessageName(&actor.Terminated{}):            typeWatching,
	proto.MessageName(&actor.DeadLetterResponse{}):    typeAllowed,
	proto.MessageName(&pcluster.ActivationRequest{}):  typeAllowed,
	proto.MessageName(&pcluster.ActivationResponse{}): typeAllowed,
}

func judge(name string) verdict {
	if v, ok := libraryTypes[protoreflect.FullName(name)]; ok {
		return v
	}
	if _, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name)); err != nil {
		return typeUnknown
	}
	if strings.HasPrefix(name, houseTypes) {
		return typeAllowed
	}
	return typeForbidden
}
