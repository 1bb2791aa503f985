package gossip

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"rollcall/cluster/gossip/gossiptest"
	"rollcall/config/effort"
)

// tap keeps what goes through a transport in plain text, to be changed and sent again.
type tap struct {
	*gossiptest.Transport
	mu      sync.Mutex
	packets [][]byte // guarded by mu
}

func (p *tap) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	p.mu.Lock()
	p.packets = append(p.packets, bytes.Clone(b))
	p.mu.Unlock()
	return p.Transport.WriteToAddress(b, a)
}

// captured gives the plain texts of at least n packets that members sent each other.
func captured(t *testing.T, key string, n int) [][]byte {
	t.Helper()
	network := gossiptest.New()
	taps := make([]*tap, 3)
	cluster := make([]*node, 3)
	for i := range taps {
		taps[i] = &tap{Transport: network.Transport()}
		o := options(t, "node-"+string(rune('a'+i)))
		o.Transport, o.Keys, o.Join = taps[i], ring(t, key), []string{taps[0].Address()}
		o.Timing.ProbeInterval, o.Timing.ProbeTimeout = 20*time.Millisecond, 15*time.Millisecond
		cluster[i] = mustBegin(t, o)
	}
	taps[2].Kill() // so that there are suspicions, deaths and indirect pings
	var plain [][]byte
	effort.Within(t, "packets to learn from", func() bool {
		plain = plain[:0]
		for _, p := range taps {
			p.mu.Lock()
			for _, b := range p.packets {
				_, rest, _ := cutLabel(b)
				text, why := open(cluster[0].options.Keys.ciphers(), rest, []byte("test"))
				effort.MustBe(t, why, passes, "a member sent a packet that is not sealed")
				plain = append(plain, text)
			}
			p.mu.Unlock()
		}
		return len(plain) >= n && len(cluster[0].Members()) == 2
	})
	return plain
}

// change makes another text of one: some bytes other, some less, some more.
func change(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + r.IntN(4) {
		switch at := r.IntN(len(b) + 1); r.IntN(4) {
		case 0:
			b = b[:at]
		case 1:
			b = append(b[:at], append([]byte{byte(r.Uint32())}, b[at:]...)...)
		default:
			if at < len(b) {
				b[at] = byte(r.Uint32())
			}
		}
	}
	return b
}

// Whoever has the key can send anything; none of it ends the process, which is what this test is, and the node goes on.
// Half of the packets is changed from real ones, some is sent as it was (a replay), the rest is noise; each goes as a
// packet, and some as streams.
func TestRandomPacketsAndStreamsDoNotCrashANode(t *testing.T) {
	t.Parallel()
	count := effort.Cases(20_000)
	text := NewKey()
	key := rawKey(t, text)
	real := captured(t, text, 50)
	network := gossiptest.New()
	o := options(t, "node-a")
	o.Transport, o.Keys = network.Transport(), ring(t, text)
	n := mustBegin(t, o)
	attacker := network.Transport()
	taken := func() int {
		return int(n.counter(t, "rollcall_gossip_units_total", "direction=in", "unit=packet"))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range count {
		var plain []byte
		switch r.IntN(8) {
		case 0:
			plain = real[r.IntN(len(real))]
		case 1, 2, 3, 4:
			plain = change(r, real[r.IntN(len(real))])
		default:
			plain = make([]byte, r.IntN(100))
			for j := range plain {
				plain[j] = byte(r.Uint32() >> r.IntN(8)) // small numbers are kinds
			}
		}
		packet := sealedPacket(byte(r.IntN(20)/19), key, plain)
		if r.IntN(10) > 0 {
			packet = sealedPacket(1, key, plain)
		}
		if i%400 == 0 { // the queue has room for what was not taken yet
			effort.Within(t, "what was sent is taken", func() bool { return taken() >= i })
		}
		_, _ = attacker.WriteTo(packet, n.Address())
		if i%100 == 0 {
			write(attacker, n.Address(), sealedStream(1, key, state([]byte{byte(r.IntN(8))}, []byte{0}, plain)))
		}
	}
	effort.Within(t, "all are taken", func() bool { return taken() >= count })
	o = options(t, "node-b")
	o.Transport, o.Keys, o.Join = network.Transport(), ring(t, text), []string{n.Address()}
	mustBegin(t, o)
	effort.Within(t, "it takes a new member", func() bool { return n.sees()["node-b"] })
}

// write opens a stream, writes b and reads to the end or for a moment.
func write(from *gossiptest.Transport, to string, b []byte) {
	c, err := from.DialTimeout(to, 100*time.Millisecond)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write(b)
	_, _ = io.Copy(io.Discard, c)
}

// FuzzInspector checks that any bytes are judged without a crash, and that of what passes no byte is changed.
func FuzzInspector(f *testing.F) {
	f.Add([]byte{kindLabel, 1, 't', kindPing, 0x80}, true)
	f.Add(labelled("t", state([]byte{1}, []byte{0}, nil)), true)
	f.Add(state([]byte{1}, []byte{0}, nil), false)
	f.Add(labelled("t", append([]byte{kindEncrypted, 0, 0, 0, 40}, make([]byte, 40)...)), true)
	path := f.TempDir() + "/keys"
	effort.Must(CreateKeyFile(path))(f)
	keys := effort.Must(LoadKeyring(path))(f)
	f.Fuzz(func(t *testing.T, b []byte, incoming bool) {
		for _, k := range []*Keyring{keys, nil} {
			i := inspector{label: "t", keys: k}
			if why, _ := i.packet(b); why == passes && (k != nil || len(b) < 5) {
				t.Errorf("%x passes as a packet, with keys: %v", b, k != nil)
			}
			from, why, _, err := i.stream(bytes.NewReader(b), incoming)
			if why != passes || err != nil {
				continue
			}
			effort.ErrorIf(t, k != nil, "%x passes without the key", b)
			if all, err := io.ReadAll(from); err != nil || !bytes.Equal(all, b) {
				t.Errorf("%x became %x", b, all)
			}
		}
		c, err := decodeNodeMeta(b)
		effort.ErrorIf(t, err == nil && len(c.encode()) > memberlist.MetaMaxSize, "%x is a card that has no room", b)
	})
}

var _ net.Conn = (*stream)(nil)
