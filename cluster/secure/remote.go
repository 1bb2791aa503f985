package secure

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
)

const (
	// batchMax is how many messages the library packs into one; its default of
	// 1,000 times the largest message would be more than batchBytesMax.
	batchMax = 256
	// batchBytesMax bounds what is read or sent as one: batchMax messages of 64 KB,
	// twice.
	batchBytesMax = 32 << 20
	// replyBytesMax bounds what the dialled side says: that it heard, or that it leaves.
	replyBytesMax = 4 << 10
	// queueStart is where a peer's queue begins; it grows without a bound. The
	// library's default costs 15 MB for every peer.
	queueStart = 1024
	// connectTries is how often the library dials before it gives up. Each try
	// costs two seconds and leaks a connection, and the next message dials again.
	connectTries = 1
	// silentAfter is when a quiet connection is asked for a sign of life (10 s is
	// the least that the library of the transport allows), and silenceMax how long
	// the peer may take.
	silentAfter = 10 * time.Second
	silenceMax  = 3 * time.Second
	// askedAtMost is how often a peer may ask us for one.
	askedAtMost = 5 * time.Second
	// streamsMax bounds the streams of one connection; a member opens one.
	streamsMax = 4
)

// RemoteOptions is what Remote needs. All fields but Identity and Advertise are required.
type RemoteOptions struct {
	Identity  *Identity // nil: no TLS, on loopback only
	Advertise string    // host:port that members dial; empty: the listening address
	Guard     *Guard
}

// Remote returns the configuration of the actor library's transport that every node
// of the house uses. Without an Identity it is ErrNoIdentity for a host that other
// machines can reach.
func Remote(host string, port int, o RemoteOptions) (*remote.Config, error) {
	if o.Guard == nil {
		return nil, errors.New("remote: no guard")
	}
	if err := o.Guard.Validate(); err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	client, server, err := o.credentials(host)
	if err != nil {
		return nil, err
	}
	times := o.Guard.times()
	c := remote.Configure(host, port,
		remote.WithServerOptions(
			grpc.Creds(server),
			grpc.ForceServerCodecV2(counting{encoding.GetCodecV2(proto.Name), o.Guard.Metrics}),
			grpc.MaxRecvMsgSize(batchBytesMax),
			grpc.MaxConcurrentStreams(streamsMax),
			grpc.ConnectionTimeout(times.Handshake),
			grpc.KeepaliveParams(keepalive.ServerParameters{Time: silentAfter, Timeout: silenceMax}),
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
				MinTime: askedAtMost, PermitWithoutStream: true}),
			grpc.ChainUnaryInterceptor(o.Guard.Unary),
			grpc.ChainStreamInterceptor(o.Guard.Stream)),
		remote.WithDialOptions(
			grpc.WithTransportCredentials(client),
			grpc.WithNoProxy(),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{
				Time: silentAfter, Timeout: silenceMax, PermitWithoutStream: true}),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.DefaultConfig, MinConnectTimeout: times.Connect})),
		remote.WithCallOptions(grpc.MaxCallSendMsgSize(batchBytesMax), grpc.MaxCallRecvMsgSize(replyBytesMax)),
		remote.WithEndpointWriterBatchSize(batchMax),
		remote.WithEndpointWriterQueueSize(queueStart),
		remote.WithAdvertisedHost(o.Advertise))
	c.MaxRetryCount = connectTries // no option function exists
	return c, nil
}

// credentials returns those of the dialling and of the listening side.
func (o RemoteOptions) credentials(host string) (client, server credentials.TransportCredentials, err error) {
	if o.Identity != nil {
		return o.Identity.Client(o.Guard.NameOf), counted{o.Identity.Server(), o.Guard.Metrics, o.Guard.Log}, nil
	}
	if !Loopback(host) {
		return nil, nil, fmt.Errorf("listen on %s: %w", net.JoinHostPort(host, "0"), ErrNoIdentity)
	}
	return insecure.NewCredentials(), insecure.NewCredentials(), nil
}

// Loopback reports whether a host can be reached from this machine only: an address
// of loopback, or "localhost". Other names are not resolved: they might change.
func Loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
