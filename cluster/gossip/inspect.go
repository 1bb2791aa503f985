package gossip

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The kinds of the library's messages, by their first byte (memberlist v0.7.0, net.go). Kinds that members of a
// rollcall cluster don't send are dropped: user messages and user state, which nobody uses, and compressed ones, where
// a small packet can grow to 40 MiB and hold another message.
const (
	kindPing         = 0
	kindIndirectPing = 1
	kindAck          = 2
	kindSuspect      = 3
	kindAlive        = 4
	kindDead         = 5
	kindPushPull     = 6
	kindCompound     = 7
	kindEncrypted    = 10 // streams only: four bytes of length and the sealed message follow
	kindNack         = 11
	kindChecksum     = 12 // four bytes of checksum and a message follow
	kindError        = 13
	kindLabel        = 244 // a byte of length, the cluster's name and a message follow
)

// An encrypted message consists of a version, a nonce, the ciphertext and its tag. Version 0 is the library's padded
// form. The library does not check the padding, and wrong padding crashes it. No member of a rollcall cluster uses
// it.
const (
	sealVersion  = 1
	nonceBytes   = 12
	tagBytes     = 16
	sealOverhead = 1 + nonceBytes + tagBytes
)

// streamBytesMax bounds a message on a stream. The largest is the state of all members, at most about 650 bytes each,
// so the bound suffices for some 1,600 members.
const streamBytesMax = 1 << 20

// reason is why a message is dropped. It is a label of a metric, so there are few values.
type reason string

const (
	passes        reason = ""
	otherNetwork  reason = "network"   // from outside the allowed networks
	otherCluster  reason = "cluster"   // it has another cluster's name
	otherKey      reason = "key"       // no key on our ring decrypts it
	notEncrypted  reason = "unsealed"  // we have keys, but the message isn't encrypted
	badSeal       reason = "seal"      // encrypted in a form that would crash the library
	malformed     reason = "malformed" // no message that members send
	tooLarge      reason = "too_large"
	tooManyAtOnce reason = "too_many"
)

// inspector recognizes the messages that members of this cluster send. Safe for concurrent use.
type inspector struct {
	label string
	keys  *Keyring // nil: nothing is sealed
}

// packet checks whether a packet is from a member of this cluster: why is "" if it is. If another cluster sent it,
// label is that cluster's name.
func (i inspector) packet(b []byte) (why reason, label string) {
	label, rest, ok := cutLabel(b)
	if !ok {
		return malformed, ""
	}
	if label != i.label {
		return otherCluster, label
	}
	if i.keys != nil {
		if rest, why = open(i.keys.ciphers(), rest, []byte(label)); why != passes {
			return why, ""
		}
	}
	if len(rest) > 5 && rest[0] == kindChecksum {
		rest = rest[5:]
	}
	return packetKind(rest), ""
}

// cutLabel cuts the cluster's name off the front of a packet; label is "" if there is none.
func cutLabel(b []byte) (label string, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != kindLabel {
		return "", b, true
	}
	if len(b) < 2 || b[1] == 0 || len(b) < 2+int(b[1]) {
		return "", nil, false
	}
	return string(b[2 : 2+int(b[1])]), b[2+int(b[1]):], true
}

// open decrypts a message, or returns why it can't. It refuses an empty plain text, because the library reads the
// first byte unchecked.
func open(keys []cipher.AEAD, sealed, bound []byte) ([]byte, reason) {
	if len(sealed) <= sealOverhead || sealed[0] != sealVersion {
		if len(sealed) > 0 && sealed[0] > sealVersion {
			return nil, notEncrypted // the first byte is a kind
		}
		return nil, badSeal
	}
	for _, key := range keys {
		plain, err := key.Open(nil, sealed[1:1+nonceBytes], sealed[1+nonceBytes:], bound)
		if err == nil {
			return plain, passes
		}
	}
	return nil, otherKey
}

// packetKind reports whether a plain text is a message of a kind that members send in packets, or a compound of such
// messages.
func packetKind(b []byte) reason {
	if len(b) == 0 || b[0] != kindCompound {
		return singleKind(b)
	}
	if len(b) < 2 || len(b) < 2+2*int(b[1]) {
		return malformed
	}
	lengths, parts := b[2:2+2*int(b[1])], b[2+2*int(b[1]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(parts) || singleKind(parts[:n]) != passes {
			return malformed
		}
		parts = parts[n:]
	}
	return passes
}

func singleKind(b []byte) reason {
	if len(b) < 2 {
		return malformed
	}
	switch b[0] {
	case kindPing, kindIndirectPing, kindAck, kindNack, kindSuspect, kindAlive, kindDead:
		return passes
	}
	return malformed
}

// stream reads as much of the first message from r as must be checked, and returns a reader that starts with these
// bytes. Incoming streams begin with the cluster's name, answers don't. An error comes from r.
func (i inspector) stream(r io.Reader, incoming bool) (from io.Reader, why reason, label string, err error) {
	s := &scanner{from: r}
	if incoming {
		label, why, err = s.label()
		if err != nil || why != passes {
			return nil, why, "", err
		}
		if label != i.label {
			return nil, otherCluster, label, nil
		}
	}
	kind, err := s.ReadByte()
	switch {
	case err != nil:
		return nil, passes, "", err
	case i.keys != nil && kind != kindEncrypted:
		return nil, notEncrypted, "", nil
	case i.keys != nil:
		why, err = i.encryptedStream(s, incoming)
		return bytes.NewReader(s.seen.Bytes()), why, "", err
	}
	why, err = streamKind(kind, s, incoming)
	return io.MultiReader(bytes.NewReader(s.seen.Bytes()), r), why, "", err
}

// encryptedStream reads a whole encrypted message behind its kind and inspects the plain text.
func (i inspector) encryptedStream(s *scanner, incoming bool) (reason, error) {
	if err := s.skip(4); err != nil {
		return passes, err
	}
	head := s.seen.Bytes()[s.seen.Len()-5:]
	length := int64(binary.BigEndian.Uint32(head[1:]))
	if length > streamBytesMax {
		return tooLarge, nil
	}
	// The library authenticates kind, length and the cluster's name with the text.
	bound := append(bytes.Clone(head), i.label...)
	if err := s.skip(length); err != nil {
		return passes, err
	}
	sealed := s.seen.Bytes()[s.seen.Len()-int(length):]
	plain, why := open(i.keys.ciphers(), sealed, bound)
	if why != passes {
		return why, nil
	}
	inner := &scanner{from: bytes.NewReader(plain[1:])}
	why, err := streamKind(plain[0], inner, incoming)
	if err != nil {
		return malformed, nil // the text ends too soon
	}
	return why, nil
}

// streamKind checks whether members send this kind of message on a stream. Incoming streams carry states and pings;
// answers are states, acks and errors.
func streamKind(kind byte, s *scanner, incoming bool) (reason, error) {
	switch {
	case kind == kindPushPull:
		return s.stateHead()
	case incoming && kind == kindPing, !incoming && (kind == kindAck || kind == kindError):
		return passes, nil
	}
	return malformed, nil
}

// scanner remembers all that it has read.
type scanner struct {
	from io.Reader
	seen bytes.Buffer
}

// skip reads n bytes. The buffer grows with the bytes received, not with the length announced.
func (s *scanner) skip(n int64) error {
	_, err := io.CopyN(&s.seen, s.from, n)
	return err
}

func (s *scanner) ReadByte() (byte, error) {
	if err := s.skip(1); err != nil {
		return 0, err
	}
	return s.seen.Bytes()[s.seen.Len()-1], nil
}

// label reads the cluster's name at the front of a stream.
func (s *scanner) label() (string, reason, error) {
	kind, err := s.ReadByte()
	if err != nil {
		return "", passes, err
	}
	if kind != kindLabel {
		return "", otherCluster, nil
	}
	n, err := s.ReadByte()
	if err != nil {
		return "", passes, err
	}
	if n == 0 {
		return "", malformed, nil
	}
	if err := s.skip(int64(n)); err != nil {
		return "", passes, err
	}
	return string(s.seen.Bytes()[2:]), passes, nil
}

// The head of a state is a MessagePack map with three entries: how many members follow, how long the user state is, and
// whether this is a join.
const (
	headNodes     = "Nodes"
	headUserState = "UserStateLen"
	headJoin      = "Join"
	headMap       = 0x80 | 3 // fixmap
	headKey       = 0xa0     // fixstr, or its length in the low bits
)

// stateHead checks whether a member could have sent this head. The library allocates memory for as many members as
// the head announces, and for the user state.
func (s *scanner) stateHead() (reason, error) {
	b, err := s.ReadByte()
	if err != nil || b != headMap {
		return malformed, err
	}
	for range 3 {
		b, err := s.ReadByte()
		if err != nil || b&^0x1f != headKey {
			return malformed, err
		}
		if err := s.skip(int64(b & 0x1f)); err != nil {
			return malformed, err
		}
		key := string(s.seen.Bytes()[s.seen.Len()-int(b&0x1f):])
		value, why, err := s.number()
		if err != nil || why != passes {
			return why, err
		}
		switch {
		case key == headNodes && value <= 2*membersMax, key == headUserState && value == 0, key == headJoin:
		case key == headNodes:
			return tooLarge, nil
		default:
			return malformed, nil
		}
	}
	return passes, nil
}

// number reads a whole number of at most 32 bits, or a truth value.
func (s *scanner) number() (uint64, reason, error) {
	b, err := s.ReadByte()
	if err != nil {
		return 0, passes, err
	}
	width := int64(0)
	switch {
	case b < 0x80 || b == 0xc2 || b == 0xc3: // the byte is the number itself, or false, or true
		return uint64(b), passes, nil
	case b == 0xcc || b == 0xd0:
		width = 1
	case b == 0xcd || b == 0xd1:
		width = 2
	case b == 0xce || b == 0xd2:
		width = 4
	default:
		return 0, malformed, nil
	}
	if err := s.skip(width); err != nil {
		return 0, passes, err
	}
	value := uint64(0)
	for _, digit := range s.seen.Bytes()[s.seen.Len()-int(width):] {
		value = value<<8 | uint64(digit)
	}
	return value, passes, nil
}

// Units and directions of traffic, as labels of metrics.
const (
	unitPacket   = "packet"
	unitStream   = "stream"
	directionIn  = "in"
	directionOut = "out"
)

// meters counts what the gossip of a node does.
type meters struct {
	bytes   *prometheus.CounterVec
	units   *prometheus.CounterVec
	drops   *prometheus.CounterVec
	refused *prometheus.CounterVec
}

// newMeters registers the metrics; t is where the members are counted.
func newMeters(r prometheus.Registerer, t *table) *meters {
	m := &meters{
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_gossip_bytes_total",
			Help: "Bytes of gossip, by direction and unit (packet, stream)."}, []string{"direction", "unit"}),
		units: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_gossip_units_total",
			Help: "Packets and streams of gossip, by direction."}, []string{"direction", "unit"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_gossip_dropped_total",
			Help: "Packets and streams of gossip dropped as not from a member, by reason."}, []string{"unit", "reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_gossip_refused_total",
			Help: "Times a node was refused as a member, by what differs."}, []string{"reason"}),
	}
	r.MustRegister(m.bytes, m.units, m.drops, m.refused)
	for _, state := range []string{stateAlive, stateSuspect, stateDraining} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_gossip_members",
			Help:        "Members that this node sees, itself included: alive, suspect (no answer), or draining.",
			ConstLabels: prometheus.Labels{"state": state}}, func() float64 { return float64(t.count(state)) }))
	}
	return m
}

func (m *meters) received(unit string, n int) {
	m.bytes.WithLabelValues(directionIn, unit).Add(float64(n))
	if unit == unitPacket {
		m.units.WithLabelValues(directionIn, unit).Inc()
	}
}

func (m *meters) sent(unit string, n int) {
	m.bytes.WithLabelValues(directionOut, unit).Add(float64(n))
	if unit == unitPacket {
		m.units.WithLabelValues(directionOut, unit).Inc()
	}
}

func (m *meters) stream(direction string) { m.units.WithLabelValues(direction, unitStream).Inc() }

func (m *meters) refuse(what string) { m.refused.WithLabelValues(what).Inc() }

// noticeEvery is how often the same warning is logged: strangers must not fill the log.
const noticeEvery = time.Minute

// loggedMax bounds the keys for which the time of the last warning is kept.
const loggedMax = 256

// logLimiter logs a warning at most once a minute per key. Safe for concurrent use.
type logLimiter struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]time.Time // guarded by mu; by key
}

func newLogLimiter(log *slog.Logger) *logLimiter {
	return &logLimiter{log: log, said: map[string]time.Time{}}
}

// warn logs text, a constant, as a warning. If the key had a warning less than noticeEvery ago, it logs at debug
// level.
func (n *logLimiter) warn(key, text string, args ...any) {
	if n.due(key, time.Now()) {
		n.log.Warn(text, args...)
		return
	}
	n.log.Debug(text, args...)
}

func (n *logLimiter) due(key string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last, ok := n.said[key]; ok && now.Sub(last) < noticeEvery {
		return false
	}
	if len(n.said) >= loggedMax {
		clear(n.said)
	}
	n.said[key] = now
	return true
}

// libraryTextMax bounds how many bytes of a line of the library are logged.
const libraryTextMax = 300

// library is where memberlist writes its log, one line a call.
type library struct {
	log     *slog.Logger
	limiter *logLimiter
	suspect func(session string) // is called when pings of a member go unanswered
}

// Write implements io.Writer. It logs the library's warnings and errors as warnings, and everything else at debug
// level. Of lines with the same first two words it logs one a minute.
func (l library) Write(line []byte) (int, error) {
	level, text := splitLine(string(line))
	// The library reports a suspicion only here (state.go, probeNode).
	if rest, ok := strings.CutPrefix(text, "Suspect "); ok {
		if session, _, ok := strings.Cut(rest, " has failed"); ok {
			l.suspect(session)
		}
	}
	if level == "DEBUG" || level == "INFO" {
		l.log.Debug("gossip library", "text", text)
		return len(line), nil
	}
	words := strings.SplitN(text, " ", 3)
	l.limiter.warn("library "+strings.Join(words[:min(2, len(words))], " "), "gossip library", "text", text)
	return len(line), nil
}

// splitLine takes "[LEVEL] memberlist: text" apart. It leaves out the content of a message, which follows "meta:".
func splitLine(line string) (level, text string) {
	line = strings.TrimSpace(line)
	if rest, ok := strings.CutPrefix(line, "["); ok {
		if before, after, ok := strings.Cut(rest, "] "); ok {
			level, line = before, after
		}
	}
	text = strings.TrimPrefix(line, "memberlist: ")
	text, _, _ = strings.Cut(text, " meta:(")
	return level, text[:min(len(text), libraryTextMax)]
}
