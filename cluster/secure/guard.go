package secure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// admitEvery is how often membership is asked while a peer is awaited.
const admitEvery = 50 * time.Millisecond

// Times bound what a peer may take. DefaultTimes are those of production.
type Times struct {
	// Connect bounds one dial with its handshake. Members are near; a black hole is
	// known after this and two seconds more.
	Connect time.Duration

	// Handshake bounds how long a stranger may hold a connection without having
	// shown a certificate.
	Handshake time.Duration

	// Admit is how long a peer with a good certificate may be ahead of what gossip
	// has told this node of it. A refusal would cost the peer the two seconds that its
	// library sleeps after one.
	Admit time.Duration
}

// DefaultTimes are those of a cluster in production. Guesses.
func DefaultTimes() Times {
	return Times{Connect: 2 * time.Second, Handshake: 5 * time.Second, Admit: 2 * time.Second}
}

// Guard stands between the wire and the actor library's server. All fields but Times
// are required; the functions are called from many goroutines and for every batch, so
// they must be quick.
type Guard struct {
	// Admit reports whether a member has this name at present. The name is "" without TLS.
	Admit func(name string) bool
	// NameOf says which member has an address of actor traffic; ok is false for none.
	NameOf func(address string) (name string, ok bool)
	// Local is this node's own address of actor traffic.
	Local   func() string
	Metrics *Metrics
	Log     *slog.Logger
	Times   Times // the zero Times: DefaultTimes
}

// Validate says that a field is missing, or a time too short.
func (g *Guard) Validate() error {
	if g.Admit == nil || g.NameOf == nil || g.Local == nil || g.Metrics == nil || g.Log == nil {
		return errors.New("guard: all fields are needed")
	}
	if t := g.times(); min(t.Connect, t.Handshake, t.Admit) < time.Millisecond {
		return fmt.Errorf("guard: a time is below 1ms: %+v", t)
	}
	return nil
}

// Unary refuses every call: the house makes none, and the library's panic.
func (g *Guard) Unary(_ context.Context, _ any, info *grpc.UnaryServerInfo,
	_ grpc.UnaryHandler) (any, error) {
	g.Metrics.refused.WithLabelValues(refusedCall).Inc()
	return nil, status.Errorf(codes.Unimplemented, "%s is not offered", info.FullMethod)
}

// Stream hears members only, looks at what they send, and turns a panic of the
// library into the end of the stream.
func (g *Guard) Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
	handle grpc.StreamHandler) (err error) {
	name, err := peerName(stream.Context())
	if err != nil {
		g.Metrics.refused.WithLabelValues(refusedName).Inc()
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			// What was panicked with may hold a message; where it was may not.
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

// times returns Times, or those that stand for none.
func (g *Guard) times() Times {
	if g.Times == (Times{}) {
		return DefaultTimes()
	}
	return g.Times
}

// await waits until membership says yes, for Times.Admit at most.
func (g *Guard) await(ctx context.Context, yes func() bool) bool {
	if yes() {
		return true
	}
	end, tick := time.NewTimer(g.times().Admit), time.NewTicker(admitEvery)
	defer end.Stop()
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if yes() {
				return true
			}
		case <-end.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// refuse counts and tells that a peer is no member, or not at this address.
func (g *Guard) refuse(name, address string) error {
	g.Metrics.refused.WithLabelValues(refusedName).Inc()
	g.Log.Warn("peer that is no member was refused", "peer", name, "address", clip(address))
	if address == "" {
		return status.Errorf(codes.PermissionDenied, "no member is called %q here", name)
	}
	return status.Errorf(codes.PermissionDenied, "%q is not the address of member %q here", clip(address), name)
}

// peerName is the name in the peer's certificate, "" without TLS.
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

// clip keeps what a peer says short enough for a log line.
func clip(text string) string { return text[:min(len(text), clipAt)] }

// clipAt is the length of the longest address: a host name (RFC 1035 §2.3.4) and a port.
const clipAt = 255 + len(":65535")
