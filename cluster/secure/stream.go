package secure

import (
	"strings"

	"github.com/asynkron/protoactor-go/actor"
	pcluster "github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// houseTypes is where the names of the house's own messages begin.
const houseTypes = "rollcall."

// nowhere is the address that the library gives to actors of its own process.
const nowhere = "nonhost"

// errMalformed ends a stream on which the library would have panicked.
var errMalformed = status.Error(codes.InvalidArgument, "malformed message")

// guarded is a stream of a member: what the library reads from it was looked at.
// Used by the one goroutine that reads the stream.
type guarded struct {
	grpc.ServerStream
	guard   *Guard
	name    string // of the member
	address string // of the member's actor traffic; "" until it has said so
	warned  bool   // of a dropped message
}

// RecvMsg implements grpc.ServerStream. A batch comes without the envelopes that
// its sender may not send; an error ends the stream.
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

// connect binds the stream to the address at which membership knows its member.
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

// member reports whether membership still knows the member at its address. Without
// TLS there is only the address.
func (s *guarded) member() bool {
	name, ok := s.guard.NameOf(s.address)
	return ok && (s.name == "" || name == s.name) && s.guard.Admit(s.name)
}

func (s *guarded) malformed() error {
	s.guard.Metrics.refused.WithLabelValues(refusedMalformed).Inc()
	s.guard.Log.Warn("malformed actor traffic ended a stream", "peer", s.name, "address", s.address)
	return errMalformed
}

// sift leaves in a batch what its sender may send.
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

// drop counts a message that no actor will see. The first of a stream is told:
// between honest nodes it means that one runs a version that the other is too old for.
func (s *guarded) drop(reason, typeName string) {
	s.guard.Metrics.dropped.WithLabelValues(reason).Inc()
	if !s.warned {
		s.warned = true
		s.guard.Log.Warn("message from a member was dropped, further ones of its stream are only counted",
			"peer", s.name, "address", s.address, "type", clip(typeName), "reason", reason)
	}
}

// watches reports whether a message about watching is about an actor of the peer: the
// library answers, or believes, whomever it names. In all three of them that actor
// is field 1.
func (s *guarded) watches(data []byte) bool {
	var m actor.Watch
	return proto.Unmarshal(data, &m) == nil && m.GetWatcher().GetAddress() == s.address
}

// verdict is what becomes of messages of a type.
type verdict uint8

const (
	typeForbidden verdict = iota // known here, and nothing that a member has to send
	typeUnknown                  // not known here; the library would panic
	typeAllowed
	typeWatching // allowed about actors of the sender
)

// libraryTypes are the messages of the actor library that members send each other.
// Among the rest are those that stop an actor, start one of any kind, and publish.
var libraryTypes = map[protoreflect.FullName]verdict{
	proto.MessageName(&actor.Watch{}):                 typeWatching,
	proto.MessageName(&actor.Unwatch{}):               typeWatching,
	proto.MessageName(&actor.Terminated{}):            typeWatching,
	proto.MessageName(&actor.DeadLetterResponse{}):    typeAllowed,
	proto.MessageName(&pcluster.ActivationRequest{}):  typeAllowed,
	proto.MessageName(&pcluster.ActivationResponse{}): typeAllowed,
}

// judge says what becomes of messages of a type.
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
