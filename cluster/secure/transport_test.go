package secure_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"rollcall/cluster/secure"
	"rollcall/cluster/wire"
	"rollcall/config/effort"
)

func TestStrangersDeliverNothing(t *testing.T) {
	r := newRig(t)
	a := r.first.spawn(t)
	const place = "127.0.0.1:2"
	r.meet(t, place, memberName)
	at := func(string) (string, bool) { return "node-1", true }
	stranger, _ := r.mustIdentity(t, "stranger")
	member, _ := r.mustIdentity(t, memberName)
	pair := effort.Must(newCA(t).Issue(memberName, time.Now(), time.Hour))(t)
	foreign := effort.Must(tls.X509KeyPair(pair.Cert, pair.Key))(t)
	t.Run("all", func(t *testing.T) {
		for _, c := range []struct {
			name    string
			creds   credentials.TransportCredentials
			address string // that it claims
			want    codes.Code
		}{
			{"in the clear", insecure.NewCredentials(), place, codes.Unavailable},
			{"without a certificate", credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}), place, codes.Unavailable},
			{"with a certificate of another CA", credentials.NewTLS(&tls.Config{InsecureSkipVerify: true,
				Certificates: []tls.Certificate{foreign}}), place, codes.Unavailable},
			{"with a name that no member has", stranger.Client(at), place, codes.PermissionDenied},
			{"with a member's name, at the address of another", member.Client(at), r.second.system.Address(),
				codes.PermissionDenied},
			{"with a member's name, at an address of nobody", member.Client(at), "127.0.0.1:3", codes.PermissionDenied},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				p, err := dial(t, a, c.creds)
				p.address = c.address
				if err == nil {
					err = p.send(connectRequest(p.address))
				}
				if err == nil {
					err = p.send(p.batch(keys("strange"), nil))
				}
				if err == nil {
					err = p.end()
				}
				effort.Is(t, status.Code(err), c.want, err)
			})
		}
	})
	r.connected(t, a).tell(keys("first"), nil)
	a.want("first") // and nothing before it
}

func TestMembersSpeakAndWatch(t *testing.T) {
	r := newRig(t)
	near, far := r.first.spawn(t), r.second.spawn(t)
	root := r.first.system.Root
	away := actor.NewPID(r.second.system.Address(), far.pid.Id)
	answer, err := root.RequestFuture(away, &wire.Ask{}, rigWait).Result()
	if state, ok := answer.(*wire.State); err != nil || !ok || !state.Suspended {
		t.Fatalf("got %v, %v", answer, err)
	}
	root.Send(near.pid, watchIt{away})
	root.Send(near.pid, watchIt{actor.NewPID(r.second.system.Address(), "nobody")})
	if m, ok := near.seen().(*actor.Terminated); !ok || m.Who.Id != "nobody" {
		t.Errorf("watching nobody: %v", m)
	}
	r.second.system.Root.Stop(far.pid)
	m, ok := near.seen().(*actor.Terminated)
	effort.ErrorIf(t, !ok || m.Who.Id != far.pid.Id || m.Why != actor.TerminatedReason_Stopped,
		"watching one that stopped: %v", m)
	effort.ErrorIf(t, r.second.log.Has("dropped"), "a message between honest members was dropped")
}

func TestWithoutTLSMembersOfLoopbackSpeak(t *testing.T) {
	r := newRig(t)
	far := r.naked.spawn(t)
	away := actor.NewPID(r.naked.system.Address(), far.pid.Id)
	effort.Must(r.bare.system.Root.RequestFuture(away, &wire.Ask{}, rigWait).Result())(t)
}

func TestOnlyLoopbackGoesWithoutTLS(t *testing.T) {
	r := newRig(t)
	guard := &secure.Guard{Admit: r.admit, NameOf: r.nameOf, Local: r.first.system.Address,
		Metrics: secure.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
	_, err := secure.Remote("0.0.0.0", 0, secure.RemoteOptions{Guard: guard})
	effort.ErrIs(t, err, secure.ErrNoIdentity, "off loopback without TLS")
	_, err = secure.Remote("0.0.0.0", 0, secure.RemoteOptions{Guard: guard, Identity: r.first.identity})
	effort.ErrIs(t, err, nil, "off loopback with TLS")
	for host, want := range map[string]bool{"127.0.0.1": true, "127.8.9.1": true, "::1": true, "localhost": true,
		"::ffff:127.0.0.1": true, "": false, "0.0.0.0": false, "::": false, "10.0.0.1": false,
		"localhost.example": false, "node-1": false} {
		effort.Is(t, secure.Loopback(host), want, fmt.Sprintf("Loopback(%q)", host))
	}
}

// handshake lets an identity dial a listener, and returns what the other side received.
func handshake(t *testing.T, creds credentials.TransportCredentials,
	serve func(net.Conn) []byte) (came []byte, err error) {
	t.Helper()
	l := listen(t)
	got := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- []byte(err.Error())
			return
		}
		defer conn.Close()
		got <- serve(conn)
	}()
	conn := effort.Must(net.Dial("tcp", l.Addr().String()))(t)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), rigWait)
	defer cancel()
	_, _, err = creds.ClientHandshake(ctx, l.Addr().String(), conn)
	conn.Close()
	return <-got, err
}

// certificate returns one that Issue would not make.
func certificate(t *testing.T, ca *secure.Authority, names []string) tls.Certificate {
	t.Helper()
	signer := effort.Must(tls.X509KeyPair(ca.Pair().Cert, ca.Pair().Key))(t)
	key := effort.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{DNSNames: names, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der := effort.Must(x509.CreateCertificate(rand.Reader, template, signer.Leaf, key.Public(), signer.PrivateKey))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestNothingIsSentToTheWrongPeer(t *testing.T) {
	r := newRig(t)
	self, _ := r.mustIdentity(t, "node-1")
	nobody := func(string) (string, bool) { return "", false }
	second := func(string) (string, bool) { return "node-2", true }

	came, err := handshake(t, self.Client(nobody), func(c net.Conn) []byte {
		text, _ := io.ReadAll(c)
		return text
	})
	effort.ErrIs(t, err, secure.ErrUnknownAddress, "an address of nobody")
	effort.Is(t, len(came), 0, "an address of nobody")

	for _, c := range []struct {
		name  string
		ca    *secure.Authority
		names []string // in the certificate
		ok    bool
	}{
		{"the right one", r.ca, []string{"node-2"}, true},
		{"in capitals", r.ca, []string{"NODE-2"}, true},
		{"with another name behind it", r.ca, []string{"node-2", "node-2.example"}, true},
		{"another name", r.ca, []string{"node-3"}, false},
		{"a name below", r.ca, []string{"a.node-2"}, false},
		{"ours as the second name", r.ca, []string{"node-3", "node-2"}, false},
		{"no name", r.ca, nil, false},
		{"another CA", newCA(t), []string{"node-2"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cert := certificate(t, c.ca, c.names)
			came, err := handshake(t, self.Client(second), func(c net.Conn) []byte {
				server := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"},
					ClientAuth: tls.RequireAnyClientCert})
				if server.HandshakeContext(t.Context()) != nil {
					return []byte("no handshake")
				}
				if len(server.ConnectionState().PeerCertificates) == 1 {
					return []byte("our certificate")
				}
				return nil
			})
			want := "no handshake"
			if c.ok {
				want = "our certificate"
			}
			effort.Is(t, err == nil, c.ok, "handshake", err, "the peer", came)
			effort.Is(t, string(came), want, "handshake", err, "the peer", came)
		})
	}
}

func TestASilentStrangerIsNotKept(t *testing.T) {
	r := newRig(t)
	stranger, _ := r.mustIdentity(t, "stranger")
	p, err := dial(t, r.first.spawn(t), stranger.Client(func(string) (string, bool) { return "node-1", true }))
	if err == nil {
		err = p.end()
	}
	effort.Is(t, status.Code(err), codes.PermissionDenied, "the stream ended with", err)
}

func TestRenewalNeedsNoRestart(t *testing.T) {
	r := newRig(t)
	a := r.first.spawn(t)
	p := r.connected(t, a)
	old := r.first.identity.Expires()
	pair := effort.Must(r.ca.Issue("node-1", time.Now(), 48*time.Hour))(t)
	effort.OK(t, r.put(r.first.folder, pair))
	r.first.identity.LookAgain()
	conn := effort.Must(tls.Dial("tcp", r.first.system.Address(), &tls.Config{InsecureSkipVerify: true,
		NextProtos: []string{"h2"}}))(t)
	defer conn.Close()
	shown := conn.ConnectionState().PeerCertificates[0].NotAfter
	effort.ErrorIf(t, !shown.After(old), "the certificate that is shown ends on %s, as the old one: %s", shown, old)
	p.tell(keys("after"), nil) // the open stream stays open
	a.want("after")
}
