package secure

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/asynkron/protoactor-go/remote"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// batchMax is how many messages the library packs into one. Its default, 1,000, times the largest message would be
	// more than batchBytesMax.
	batchMax = 256
	// batchBytesMax bounds one batch: twice batchMax messages of 64 KB.
	batchBytesMax = 32 << 20
	// replyBytesMax bounds what the dialled side sends: an acknowledgement, or a notice that it leaves.
	replyBytesMax = 4 << 10
	// queueStart is the initial size of a peer's queue, which grows without a bound. The library's default costs 15 MB
	// for every peer.
	queueStart = 1024
	// connectTries is how often the library dials before it gives up. One is enough, because the next message dials
	// again, and a failed try costs two seconds and leaks a connection.
	connectTries = 1
	// silentAfter is how long a connection may be quiet before it is pinged; the transport allows no less than 10 s.
	// silenceMax is how long the answer may take.
	silentAfter = 10 * time.Second
	silenceMax  = 3 * time.Second
	// askedAtMost is the shortest time between two pings of a peer.
	askedAtMost = 5 * time.Second
	// streamsMax bounds the streams of one connection; a member opens one.
	streamsMax = 4
)

// RemoteOptions are the options of Remote. All fields but Identity and Advertise are required.
type RemoteOptions struct {
	Identity  *Identity // nil: no TLS, on loopback only
	Advertise string    // host:port that members dial; empty: the listening address
	Guard     *Guard
}

// Remote returns the configuration of the actor library's transport, the same for every node. Without an Identity and
// for a host that other machines can reach it returns ErrNoIdentity.
func Remote(host string, port int, o RemoteOptions) (*remote.Config, error) {
	client, server, err := o.credentials(host)
	if err != nil {
		return nil, err
	}
	times := o.Guard.times()
	c := remote.Configure(host, port, remote.WithServerOptions(grpc.Creds(server),
		grpc.ForceServerCodecV2(counting{encoding.GetCodecV2(grpcproto.Name), o.Guard.Metrics}),
		grpc.MaxRecvMsgSize(batchBytesMax), grpc.MaxConcurrentStreams(streamsMax), grpc.ConnectionTimeout(times.Handshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silentAfter, Timeout: silenceMax}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: askedAtMost, PermitWithoutStream: true}), grpc.ChainUnaryInterceptor(o.Guard.Unary),
		grpc.ChainStreamInterceptor(o.Guard.Stream)), remote.WithDialOptions(grpc.WithTransportCredentials(client),
		grpc.WithNoProxy(), grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: silentAfter, Timeout: silenceMax, PermitWithoutStream: true}), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.DefaultConfig, MinConnectTimeout: times.Connect})),
		remote.WithCallOptions(grpc.MaxCallSendMsgSize(batchBytesMax), grpc.MaxCallRecvMsgSize(replyBytesMax)),
		remote.WithEndpointWriterBatchSize(batchMax), remote.WithEndpointWriterQueueSize(queueStart),
		remote.WithAdvertisedHost(o.Advertise))
	c.MaxRetryCount = connectTries // no option function exists
	return c, nil
}

// credentials returns the credentials of the dialling and of the listening side.
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

// partsMax bounds the envelopes, senders, targets and type names in one batch. The library packs at most batchMax
// messages, and each adds at most one of these.
const partsMax = batchMax

// batchField is the field of remote.RemoteMessage that holds a batch.
var batchField = (&remote.RemoteMessage{}).ProtoReflect().Descriptor().Fields().
	ByName("message_batch").Number()

// counting is the server's codec. It counts the parts before it decodes: an empty envelope has two bytes on the wire
// and a hundred in memory.
type counting struct {
	encoding.CodecV2
	metrics *Metrics
}

func (c counting) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*remote.RemoteMessage)
	if !ok {
		return c.CodecV2.Unmarshal(data, v) // of a call, which Unary refuses
	}
	text := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer text.Free()
	if !countable(text.ReadOnlyData()) {
		c.metrics.refused.WithLabelValues(refusedMalformed).Inc()
		return errMalformed
	}
	return proto.Unmarshal(text.ReadOnlyData(), m)
}

// countable reports whether a remote.RemoteMessage has no more parts than an honest one can have.
func countable(text []byte) bool {
	counts := map[protowire.Number]int{}
	return each(text, func(field protowire.Number, value []byte) bool {
		if field != batchField {
			return true
		}
		// A repeated field is merged with the first one, so the counts continue.
		return each(value, func(field protowire.Number, _ []byte) bool {
			counts[field]++
			return counts[field] <= partsMax
		})
	})
}

// each calls f for the fields of a message until f returns false. It returns false if f did, or if the message is cut
// off.
func each(text []byte, f func(field protowire.Number, value []byte) bool) bool {
	for len(text) > 0 {
		field, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return false
		}
		text = text[n:]
		if n = protowire.ConsumeFieldValue(field, kind, text); n < 0 {
			return false
		}
		value := text[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if !f(field, value) {
			return false
		}
		text = text[n:]
	}
	return true
}

// Reasons why a connection, a call or a stream was refused or ended, or a message dropped.
const (
	refusedUnfinished  = "unfinished"  // ended or became silent during the handshake: a port scan, a cut network
	refusedPlaintext   = "plaintext"   // no TLS
	refusedCertificate = "certificate" // no certificate, or not one of this CA, or the peer refused ours
	refusedHandshake   = "handshake"   // another failure, such as an older TLS

	refusedCall      = "call"      // not a stream
	refusedName      = "name"      // no member, or not at this address
	refusedMalformed = "malformed" // would have crashed the library

	droppedUnknown   = "unknown_type"
	droppedForbidden = "forbidden_type"
	droppedAddress   = "address" // not to an actor here, or in another's name
)

// Metrics counts refused connections and dropped messages.
type Metrics struct {
	refused *prometheus.CounterVec
	dropped *prometheus.CounterVec
	panics  prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_cluster_peers_refused_total",
			Help: "Connections, calls and streams of actor traffic that were refused or ended, by reason."}, []string{"reason"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_cluster_envelopes_dropped_total",
			Help: "Messages from members that were dropped before an actor saw them, by reason."}, []string{"reason"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_cluster_stream_panics_total",
			Help: "Streams of actor traffic that ended with a panic of the actor library."}),
	}
	for _, reason := range []string{refusedUnfinished, refusedPlaintext, refusedCertificate, refusedHandshake,
		refusedCall, refusedName, refusedMalformed} {
		m.refused.WithLabelValues(reason)
	}
	for _, reason := range []string{droppedUnknown, droppedForbidden, droppedAddress} {
		m.dropped.WithLabelValues(reason)
	}
	r.MustRegister(m.refused, m.dropped, m.panics)
	return m
}

var (
	// ErrName is in every error about a name that cannot be a member's.
	ErrName = errors.New("not a node name")
	// ErrCertificate is in every error about a certificate or key that cannot be used.
	ErrCertificate = errors.New("certificate cannot be used")
	// ErrKeyReadable is in the error about a private key that others may read.
	ErrKeyReadable = errors.New("private key can be read by others")
	// ErrUnknownAddress: no member is known at the dialled address.
	ErrUnknownAddress = errors.New("no member has this address")
	// ErrOtherName: a peer's certificate has another name than the member.
	ErrOtherName = errors.New("certificate of another name")
	// ErrNoIdentity: other machines could reach this node, but it has no certificate.
	ErrNoIdentity = errors.New("actor traffic off loopback needs tls_ca_file, tls_cert_file and tls_key_file")
)
