package secure_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"rollcall/cluster/secure"
	"rollcall/cluster/wire"
	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
)

const (
	// rigWait bounds what must happen; a slow machine may take a while.
	rigWait = 3 * time.Minute

	// refuseAfter is how long node-1 waits for gossip to name a peer. node-2 waits for rigWait. Both allow handshakes
	// as much time as the machine needs: a dial that times out loses a message, and the test would wait for it in
	// vain.
	refuseAfter = 50 * time.Millisecond
)

// secretText is in the messages of these tests, and never in a log.
const secretText = "jane@secret.example"

// rig is a cluster without gossip: a table in the rig says who is where. All tests share one rig, because starting
// the library's port sets the process-wide logger of the transport. That is a data race as soon as another port of
// the process is in use.
type rig struct {
	ca     *secure.Authority
	folder string

	first, second *node // with TLS: node-1 and node-2
	bare, naked   *node // without TLS: node-3 and node-4

	mu    sync.Mutex
	at    map[string]string // name of the member by address
	asked map[string]int    // number of look-ups by address
}

var theRig = sync.OnceValues(startRig)

func TestMain(m *testing.M) {
	code := m.Run()
	if r, err := theRig(); err == nil {
		os.RemoveAll(r.folder)
	}
	os.Exit(code)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return effort.Must(theRig())(t)
}

func startRig() (*rig, error) {
	r := &rig{at: map[string]string{}, asked: map[string]int{}}
	var err error
	if r.folder, err = os.MkdirTemp("", "rollcall-secure-"); err != nil {
		return nil, err
	}
	if r.ca, err = secure.NewAuthority("test", time.Now(), secure.AuthorityValidity); err != nil {
		return nil, err
	}
	var touched []net.Conn
	for _, n := range []struct {
		node **node
		name string
		tls  bool
	}{{&r.first, "node-1", true}, {&r.second, "node-2", true}, {&r.bare, "node-3", false},
		{&r.naked, "node-4", false}} {
		if *n.node, err = r.start(n.name, n.tls); err != nil {
			return nil, err
		}
		conn, err := r.touch(*n.node)
		if err != nil {
			return nil, err
		}
		touched = append(touched, conn)
	}
	for _, conn := range touched {
		if _, err := conn.Write([]byte("enough")); err != nil {
			return nil, err
		}
		conn.Close()
	}
	return r, nil
}

// touch reads the first frame from a node's port and keeps the connection. So what the port's goroutine did before is
// certainly done before the next port is started.
func (r *rig) touch(n *node) (conn net.Conn, err error) {
	if n.identity == nil {
		conn, err = net.Dial("tcp", n.system.Address())
	} else {
		var cert tls.Certificate
		cert, err = tls.LoadX509KeyPair(filepath.Join(n.folder, "cert"), filepath.Join(n.folder, "key"))
		if err != nil {
			return nil, err
		}
		conn, err = tls.Dial("tcp", n.system.Address(), &tls.Config{InsecureSkipVerify: true,
			Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	}
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(conn, make([]byte, 9)) // the head of an HTTP/2 frame
	return conn, err
}

func newCA(t *testing.T) *secure.Authority {
	t.Helper()
	return effort.Must(secure.NewAuthority("test", time.Now(), secure.AuthorityValidity))(t)
}

func (r *rig) nameOf(address string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[address]++
	name, ok := r.at[address]
	return name, ok
}

// awaitAsked waits until a node has looked up an address twice from now on.
func (r *rig) awaitAsked(t *testing.T, address string) {
	t.Helper()
	r.mu.Lock()
	before := r.asked[address]
	r.mu.Unlock()
	effort.Within(t, "who is at "+address+" to be asked", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.asked[address] >= before+2
	})
}

// admit reports whether a name is a member's. Without TLS there is no name, and everybody is admitted.
func (r *rig) admit(name string) bool {
	if name == "" {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.at {
		if n == name {
			return true
		}
	}
	return false
}

// meet makes a name the member at an address, until the test ends.
func (r *rig) meet(t *testing.T, address, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[address] = name
	t.Cleanup(func() { r.part(address) })
}

// part makes sure that no member is at an address.
func (r *rig) part(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, address)
}

// identity makes the files of a node in a folder and loads them.
func (r *rig) identity(folder, name string) (*secure.Identity, error) {
	pair, err := r.ca.Issue(name, time.Now(), 24*time.Hour)
	if err != nil {
		return nil, err
	}
	if err := r.put(folder, pair); err != nil {
		return nil, err
	}
	return secure.Load(filepath.Join(folder, "ca"), filepath.Join(folder, "cert"), filepath.Join(folder, "key"),
		slog.New(slog.DiscardHandler))
}

// mustIdentity is identity in a folder of the test.
func (r *rig) mustIdentity(t *testing.T, name string) (*secure.Identity, string) {
	t.Helper()
	folder := t.TempDir()
	i := effort.Must(r.identity(folder, name))(t)
	return i, folder
}

// put replaces the files of a node.
func (r *rig) put(folder string, pair secure.Pair) error {
	for name, text := range map[string][]byte{"ca": r.ca.Pair().Cert, "cert": pair.Cert, "key": pair.Key} {
		part := filepath.Join(folder, name+".part")
		if err := os.WriteFile(part, text, 0o600); err != nil {
			return err
		}
		if err := os.Rename(part, filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// node is a real actor system with its port open on loopback.
type node struct {
	system   *actor.ActorSystem
	metrics  *prometheus.Registry
	log      effort.Log
	identity *secure.Identity
	folder   string
}

// times are those of a node of the rig.
func times(name string) secure.Times {
	t := secure.Times{Connect: rigWait, Handshake: rigWait, Admit: rigWait}
	if name == "node-1" {
		t.Admit = refuseAfter
	}
	return t
}

// start opens the port of a node and makes it a member.
func (r *rig) start(name string, withTLS bool) (*node, error) {
	n := &node{metrics: prometheus.NewRegistry(), folder: filepath.Join(r.folder, name)}
	log := slog.New(slog.NewTextHandler(&n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if withTLS {
		if err = os.Mkdir(n.folder, 0o700); err != nil {
			return nil, err
		}
		if n.identity, err = r.identity(n.folder, name); err != nil {
			return nil, err
		}
	}
	n.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	}))
	config, err := secure.Remote("127.0.0.1", 0, secure.RemoteOptions{Identity: n.identity, Guard: &secure.Guard{
		Admit: r.admit, NameOf: r.nameOf, Local: func() string { return n.system.Address() },
		Metrics: secure.NewMetrics(n.metrics), Log: log, Times: times(name)}})
	if err != nil {
		return nil, err
	}
	remote.NewRemote(n.system, config).Start()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[n.system.Address()] = name
	return n, nil
}

// probe is an actor of a node that tells what it sees.
type probe struct {
	t    *testing.T
	node *node
	pid  *actor.PID
	got  chan any
}

// watchIt asks a probe to watch an actor.
type watchIt struct{ pid *actor.PID }

// spawn makes an actor for a test. At the end it checks that neither the actor nor the log has seen a secret.
func (n *node) spawn(t *testing.T) *probe {
	t.Helper()
	p := &probe{t: t, node: n, got: make(chan any, 1000)}
	p.pid = n.system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
		case *wire.Ask:
			c.Respond(&wire.State{Suspended: true})
		case watchIt:
			c.Watch(m.pid)
		default:
			p.got <- m
		}
	}))
	t.Cleanup(func() {
		n.system.Root.Stop(p.pid)
		effort.ErrorIf(t, n.log.Has(secretText), "the log has the content of a message")
	})
	return p
}

// seen waits for the next thing that the actor sees.
func (p *probe) seen() any {
	p.t.Helper()
	select {
	case m := <-p.got:
		return m
	case <-time.After(rigWait):
		p.t.Fatal("the actor saw nothing")
		return nil
	}
}

// want expects this message as the next thing that the actor sees.
func (p *probe) want(mark string) {
	p.t.Helper()
	got := p.seen()
	m, ok := got.(*wire.Keys)
	effort.FatalIf(p.t, !ok || m.Fingerprints[0] != mark, "the actor saw %T %v, want the message %q", got, got, mark)
}

// count returns the value of a counter with at most one label.
func (n *node) count(t *testing.T, metric string, label ...string) float64 {
	t.Helper()
	return nettest.Metric(t, n.metrics, metric, label...)
}

// peer is a client that can send anything to a node's port.
type peer struct {
	t       *testing.T
	address string // where it claims to be
	to      *probe
	client  remote.RemotingClient
	stream  remote.Remoting_ReceiveClient
}

// peerAddress is the address that the peers of these tests claim; nobody listens there.
const peerAddress = "127.0.0.1:1"

// dial opens a stream to the node of a probe.
func dial(t *testing.T, to *probe, c credentials.TransportCredentials) (*peer, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+to.node.system.Address(), grpc.WithTransportCredentials(c))
	effort.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), rigWait)
	t.Cleanup(cancel)
	p := &peer{t: t, address: peerAddress, to: to, client: remote.NewRemotingClient(conn)}
	p.stream, err = p.client.Receive(ctx)
	return p, err
}

// memberName is the name of the peers of these tests.
const memberName = "node-9"

// member dials as a member.
func (r *rig) member(t *testing.T, to *probe) *peer {
	t.Helper()
	r.meet(t, peerAddress, memberName)
	i, _ := r.mustIdentity(t, memberName)
	return effort.Must(dial(t, to, i.Client(r.nameOf)))(t)
}

// connected dials as a member and sends its connect request.
func (r *rig) connected(t *testing.T, to *probe) *peer {
	t.Helper()
	p := r.member(t, to)
	effort.OK(t, p.connect())
	return p
}

// connect claims the peer's address and waits until the node has read that.
func (p *peer) connect() error {
	if err := p.send(connectRequest(p.address)); err != nil {
		return err
	}
	_, err := p.stream.Recv()
	return err
}

// send sends a message. Instead of io.EOF it returns the stream's own error, which has the reason.
func (p *peer) send(m *remote.RemoteMessage) error {
	if err := p.stream.Send(m); err != nil {
		_, why := p.stream.Recv()
		return why
	}
	return nil
}

// end waits for the stream's end.
func (p *peer) end() error {
	for {
		if _, err := p.stream.Recv(); err != nil {
			return err
		}
	}
}

func connectRequest(address string) *remote.RemoteMessage {
	return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_ConnectRequest{
		ConnectRequest: &remote.ConnectRequest{ConnectionType: &remote.ConnectRequest_ServerConnection{
			ServerConnection: &remote.ServerConnection{SystemId: "x", Address: address}}}}}
}

// tell sends one message to the actor.
func (p *peer) tell(m proto.Message, change func(*remote.MessageBatch)) {
	p.t.Helper()
	effort.OK(p.t, p.send(p.batch(m, change)))
}

// batch returns one message to the actor, as the library sends it; change spoils it.
func (p *peer) batch(m proto.Message, change func(*remote.MessageBatch)) *remote.RemoteMessage {
	p.t.Helper()
	data := effort.Must(proto.Marshal(m))(p.t)
	b := &remote.MessageBatch{
		TypeNames: []string{string(proto.MessageName(m))},
		Targets:   []*actor.PID{actor.NewPID(p.to.node.system.Address(), p.to.pid.Id)},
		Senders:   []*actor.PID{actor.NewPID(p.address, "peer")},
		Envelopes: []*remote.MessageEnvelope{{MessageData: data}},
	}
	if change != nil {
		change(b)
	}
	return &remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: b}}
}

// keys returns an honest message that the test recognizes by mark.
func keys(mark string) *wire.Keys {
	return &wire.Keys{Fingerprints: []string{mark}, Refused: secretText}
}

// listen opens a plain port of loopback.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	return l
}
