package gossip

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"rollcall/cluster/gossip/gossiptest"
	"rollcall/config/effort"
)

// seal encrypts a text as the library does, but with any version and any text, also such as the library never uses.
func seal(version byte, key, plain, bound []byte) []byte {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	nonce := make([]byte, nonceBytes)
	for i := range nonce {
		nonce[i] = byte(rand.Uint32())
	}
	return gcm.Seal(append([]byte{version}, nonce...), nonce, plain, bound)
}

func labelled(label string, rest []byte) []byte {
	return append(append([]byte{kindLabel, byte(len(label))}, label...), rest...)
}

// sealedPacket is a packet of the cluster "test".
func sealedPacket(version byte, key, plain []byte) []byte {
	return labelled("test", seal(version, key, plain, []byte("test")))
}

// sealedStream is a stream of the cluster "test"; an answer has no label.
func sealedStream(version byte, key, plain []byte) []byte {
	return labelled("test", sealedAnswer(version, key, plain))
}

func sealedAnswer(version byte, key, plain []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{kindEncrypted}, uint32(sealOverhead+len(plain)))
	return append(head, seal(version, key, plain, append(bytes.Clone(head), "test"...))...)
}

// crafted returns messages that crash the library. Only somebody with the key can make them.
func crafted(key []byte) (packets, streams [][]byte) {
	padding := bytes.Repeat([]byte{0xff}, 16) // claims that 255 of 16 bytes are padding
	packets = [][]byte{sealedPacket(0, key, padding)}
	streams = [][]byte{sealedStream(1, key, nil), sealedStream(0, key, padding)}
	return packets, streams
}

const bareKey = "ROLLCALL_TEST_BARE_KEY"

// TestBareLibrary is not a test: TestTheLibraryCrashes runs it as a process of its own and crashes it.
func TestBareLibrary(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString(os.Getenv(bareKey))
	if len(key) == 0 || err != nil {
		t.Skip("runs only in a process of its own")
	}
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label, c.SecretKey = "bare", "test", key
	c.BindAddr, c.BindPort, c.AdvertiseAddr = "127.0.0.1", 0, "127.0.0.1"
	c.Logger = log.New(io.Discard, "", 0)
	list := effort.Must(memberlist.Create(c))(t)
	os.Stdout.WriteString("address " + list.LocalNode().Address() + "\n")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
}

// TestTheLibraryCrashes: each crafted packet and stream ends a process that uses the library alone. If this test
// fails one day, the library is safer and the guard may become simpler.
func TestTheLibraryCrashes(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	text := NewKey()
	packets, streams := crafted(rawKey(t, text))
	for i, b := range append(packets, streams...) {
		output := crashBare(t, text, b, i >= len(packets))
		effort.Has(t, output, "panic: ", "crafted", i, "the library did not panic")
		effort.Has(t, output, "hashicorp/memberlist", "crafted", i, "the library did not panic")
	}
}

// crashBare starts a process without the guard, sends it b and returns what it wrote.
func crashBare(t *testing.T, key string, b []byte, stream bool) string {
	t.Helper()
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBareLibrary$", "-test.v")
	process.Env = append(os.Environ(), bareKey+"="+key)
	var errors bytes.Buffer
	process.Stderr = &errors
	stdin := effort.Must(process.StdinPipe())(t)
	stdout := effort.Must(process.StdoutPipe())(t)
	effort.OK(t, process.Start())
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "address "); ok {
			send(t, address, b, stream)
			break
		}
	}
	timer := time.AfterFunc(patience, func() { _ = stdin.Close() }) // it did not crash
	defer timer.Stop()
	rest, _ := io.ReadAll(stdout)
	effort.Not(t, process.Wait(), nil, "the process ended well")
	return string(rest) + errors.String()
}

// send sends b to an address on loopback. For a stream it reads the answer to its end.
func send(t *testing.T, address string, b []byte, stream bool) {
	t.Helper()
	network := "udp"
	if stream {
		network = "tcp"
	}
	c := effort.Must(net.Dial(network, address))(t)
	defer c.Close()
	_, err := c.Write(b)
	effort.FatalIf(t, err != nil && !stream, "%v", err)
	if stream {
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.Copy(io.Discard, c)
	}
}

func TestAGuardedNodeLivesOn(t *testing.T) {
	t.Parallel()
	text := NewKey()
	o := options(t, "node-a")
	o.Listen, o.Networks, o.Keys = "127.0.0.1:0", loopback, ring(t, text)
	n := mustBegin(t, o)
	packets, streams := crafted(rawKey(t, text))
	for _, b := range packets {
		send(t, n.Address(), b, false)
	}
	for _, b := range streams {
		send(t, n.Address(), b, true)
	}
	effort.Within(t, "all are counted", func() bool {
		dropped := func(unit string) int {
			return int(n.counter(t, "rollcall_gossip_dropped_total", "reason=seal", unit))
		}
		return dropped("unit=packet") == len(packets) && dropped("unit=stream") == len(streams)
	})
	o = options(t, "node-b")
	o.Listen, o.Networks, o.Keys, o.Join = "127.0.0.1:0", loopback, ring(t, text), []string{n.Address()}
	mustBegin(t, o).awaitNames(t, "node-a", "node-b")
	n.awaitNames(t, "node-a", "node-b")
}

// TestACraftedAnswerDoesNotCrashWhoAsks: the guard also inspects answers to a join, because a member with the key
// could crash the node that joins.
func TestACraftedAnswerDoesNotCrashWhoAsks(t *testing.T) {
	t.Parallel()
	text := NewKey()
	network := gossiptest.New()
	evil := network.Transport()
	for name, answer := range map[string][]byte{
		"empty":   sealedAnswer(1, rawKey(t, text), nil),
		"padding": sealedAnswer(0, rawKey(t, text), bytes.Repeat([]byte{0xff}, 16)),
		"ping":    sealedAnswer(1, rawKey(t, text), []byte{kindPing, 0x80}),
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			c := <-evil.StreamCh()
			defer c.Close()
			buffer := make([]byte, 64<<10)
			_, _ = c.Read(buffer) // the label, then the whole state
			_, _ = c.Read(buffer)
			_, _ = c.Write(answer)
		}()
		o := options(t, "node-a")
		o.Transport, o.Keys, o.Join = network.Transport(), ring(t, text), []string{evil.Address()}
		if _, err := begin(t, o); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is not a member's") {
			t.Errorf("%s: got %v, want ErrRefused", name, err)
		}
		<-done
	}
}

// state is the head of a state as the library writes it.
func state(nodes, user, rest []byte) []byte {
	b := append([]byte{kindPushPull, 0x83, 0xa5}, "Nodes"...)
	b = append(append(b, nodes...), 0xac)
	b = append(append(b, "UserStateLen"...), user...)
	b = append(append(append(b, 0xa4), "Join"...), 0xc3)
	return append(b, rest...)
}

func TestTheGuardTellsWhatMembersSend(t *testing.T) {
	text := NewKey()
	key, other := rawKey(t, text), rawKey(t, NewKey())
	ping := []byte{kindPing, 0x80}
	compound := func(parts ...[]byte) []byte {
		b := []byte{kindCompound, byte(len(parts))}
		for _, p := range parts {
			b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
		}
		return append(b, bytes.Join(parts, nil)...)
	}
	for _, c := range []struct {
		name  string
		plain []byte // the test encrypts it with the key and sends it as a packet
		want  reason
	}{
		{"ping", ping, passes},
		{"checksum and alive", []byte{kindChecksum, 1, 2, 3, 4, kindAlive, 0x80}, passes},
		{"compound", compound(ping, []byte{kindDead, 0x80}), passes},
		{"compound of nothing", compound(), passes},
		{"compound in a compound", compound(compound(ping)), malformed},
		{"compound with an empty part", compound(ping, nil), malformed},
		{"compound cut short", compound(ping, ping)[:6], malformed},
		{"compound without its lengths", []byte{kindCompound, 9, 0}, malformed},
		{"compound without its number", []byte{kindCompound}, malformed},
		{"compressed, as a bomb would be", []byte{9, 0x80}, malformed},
		{"checksum in a checksum", []byte{kindChecksum, 1, 2, 3, 4, kindChecksum, 0}, malformed},
		{"user message", []byte{8, 1, 2}, malformed},
		{"state in a packet", state([]byte{1}, []byte{0}, nil), malformed},
		{"a kind alone", []byte{kindPing}, malformed},
		{"unknown kind", []byte{99, 0}, malformed},
		{"nothing", nil, badSeal},
	} {
		i := inspector{label: "test", keys: ring(t, text)}
		got, _ := i.packet(sealedPacket(1, key, c.plain))
		effort.ErrorIf(t, got != c.want, "%s: got %q, want %q", c.name, got, c.want)
		if c.plain == nil {
			continue
		}
		i.keys = nil
		got, _ = i.packet(labelled("test", c.plain))
		effort.ErrorIf(t, got != c.want, "%s, without keys: got %q, want %q", c.name, got, c.want)
	}
	for _, c := range []struct {
		name   string
		packet []byte
		want   reason
		label  string
	}{
		{"no bytes", nil, otherCluster, ""},
		{"no label", seal(1, key, ping, nil), otherCluster, ""},
		{"another label", labelled("second", seal(1, key, ping, []byte("second"))), otherCluster, "second"},
		{"empty label", []byte{kindLabel, 0, 1}, malformed, ""},
		{"label cut short", []byte{kindLabel, 9, 't'}, malformed, ""},
		{"another key", sealedPacket(1, other, ping), otherKey, ""},
		{"sealed for another label", labelled("test", seal(1, key, ping, []byte("x"))), otherKey, ""},
		{"unsealed suspicion", labelled("test", []byte{kindSuspect, 0x80}), notEncrypted, ""},
		{"29 bytes", labelled("test", make([]byte, 29)), badSeal, ""},
		{"old version", sealedPacket(0, key, ping), badSeal, ""},
	} {
		got, label := inspector{label: "test", keys: ring(t, text)}.packet(c.packet)
		effort.Is(t, got, c.want, c.name)
		effort.Is(t, label, c.label, c.name)
	}
}

func TestTheGuardTellsWhatMembersSendOnStreams(t *testing.T) {
	text := NewKey()
	key := rawKey(t, text)
	large := binary.BigEndian.AppendUint32([]byte{kindEncrypted}, streamBytesMax+1)
	for _, c := range []struct {
		name     string
		plain    []byte
		incoming reason
		answer   reason
	}{
		{"state", state([]byte{2}, []byte{0}, []byte("members")), passes, passes},
		{"state of 300", state([]byte{0xcd, 1, 44}, []byte{0}, nil), passes, passes},
		{"state of a signed 300", state([]byte{0xd1, 1, 44}, []byte{0}, nil), passes, passes},
		{"state of a million", state([]byte{0xce, 0, 0x10, 0, 0}, []byte{0}, nil), tooLarge, tooLarge},
		{"state with a user's", state([]byte{1}, []byte{0xce, 1, 0, 0, 0}, nil), malformed, malformed},
		{"state counted in 64 bits", state([]byte{0xcf, 0, 0, 0, 0, 0, 0, 0, 1}, []byte{0}, nil), malformed, malformed},
		{"state without a head", []byte{kindPushPull, 0x90}, malformed, malformed},
		{"state cut short", state([]byte{1}, []byte{0}, nil)[:12], malformed, malformed},
		{"ping", []byte{kindPing, 0x80}, passes, malformed},
		{"ack", []byte{kindAck, 0x80}, malformed, passes},
		{"error", []byte{kindError, 0x80}, malformed, passes},
		{"user message", []byte{8, 0x80}, malformed, malformed},
		{"compressed", []byte{9, 0x80}, malformed, malformed},
	} {
		for _, keys := range []*Keyring{ring(t, text), nil} {
			i := inspector{label: "test", keys: keys}
			for incoming, want := range map[bool]reason{true: c.incoming, false: c.answer} {
				b := c.plain
				if keys != nil {
					b = sealedAnswer(1, key, c.plain)
				}
				if incoming {
					b = labelled("test", b)
				}
				from, got, _, err := i.stream(bytes.NewReader(b), incoming)
				if keys == nil && errors.Is(err, io.EOF) {
					got, err = malformed, nil // the inspector waits for the rest
				}
				effort.ErrorIf(t, got != want || err != nil,
					"%s, incoming %v, sealed %v: got %q, %v, want %q", c.name, incoming, keys != nil, got, err, want)
				if got != passes {
					continue
				}
				if all, err := io.ReadAll(from); err != nil || !bytes.Equal(all, b) {
					t.Errorf("%s, incoming %v: the inspector changed bytes that it let through", c.name, incoming)
				}
			}
		}
	}
	for _, c := range []struct {
		name string
		b    []byte
		want reason
	}{
		{"no label", []byte{kindEncrypted, 0, 0, 0, 9}, otherCluster},
		{"empty label", []byte{kindLabel, 0}, malformed},
		{"another label", labelled("second", []byte{kindEncrypted}), otherCluster},
		{"not sealed", labelled("test", []byte{kindPing, 0x80}), notEncrypted},
		{"too long", labelled("test", large), tooLarge},
		{"an empty seal", labelled("test", []byte{kindEncrypted, 0, 0, 0, 0}), badSeal},
	} {
		_, got, _, err := inspector{label: "test", keys: ring(t, text)}.stream(bytes.NewReader(c.b), true)
		effort.ErrorIf(t, got != c.want || err != nil, "%s: got %q, %v, want %q", c.name, got, err, c.want)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	o := options(t, "node-a")
	o.Listen, o.Networks = "127.0.0.1:0", loopback
	o.Timing.StreamTimeout = patience
	n := mustBegin(t, o)
	for range streamsMax {
		c := effort.Must(net.Dial("tcp", n.Address()))(t)
		defer c.Close()
	}
	effort.Within(t, "all are open", func() bool { return n.filter.open.Load() == streamsMax })
	send(t, n.Address(), nil, true) // returns because it is closed at once
	effort.Is(t, n.counter(t, "rollcall_gossip_dropped_total", "reason=too_many"), 1)
}

// tap keeps a plain copy of what goes through a transport, so that a test can change it and send it again.
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

// captured returns at least n decrypted packets that members sent each other.
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

// change returns a changed copy of a text: some bytes differ, some are left out, some are added.
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

// TestRandomPacketsAndStreamsDoNotCrashANode: somebody with the key can send anything, but none of it ends the
// process, and the node goes on. Half of the packets are changed copies of real ones, some are unchanged copies (a
// replay), the rest is noise. Each is sent as a packet, and some as streams too.
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
		if i%400 == 0 { // so that the queue never overflows
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

// FuzzInspector checks that the inspector judges any bytes without a crash, and changes no byte that it lets through.
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
