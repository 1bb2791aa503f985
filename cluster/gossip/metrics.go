package gossip

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
	all     []prometheus.Collector
}

// newMeters registers the metrics; t is where the members are counted.
func newMeters(r prometheus.Registerer, t *table) (*meters, error) {
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
	m.all = []prometheus.Collector{m.bytes, m.units, m.drops, m.refused}
	for _, state := range []string{stateAlive, stateSuspect, stateDraining} {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_gossip_members",
			Help:        "Members that this node sees, itself included: alive, suspect (no answer), or draining.",
			ConstLabels: prometheus.Labels{"state": state}},
			func() float64 { return float64(t.count(state)) }))
	}
	var err error
	for _, c := range m.all {
		err = errors.Join(err, r.Register(c))
	}
	return m, err
}

// unregister removes the metrics of a stopped gossip.
func (m *meters) unregister(r prometheus.Registerer) {
	for _, c := range m.all {
		r.Unregister(c)
	}
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

func (m *meters) drop(unit string, why reason) { m.drops.WithLabelValues(unit, string(why)).Inc() }

func (m *meters) refuse(what string) { m.refused.WithLabelValues(what).Inc() }

// noticeEvery is how often the same warning is logged: strangers must not fill the log.
const noticeEvery = time.Minute

// loggedMax bounds the keys whose last warning is remembered.
const loggedMax = 256

// limiter logs a warning at most once a minute per key. Safe for concurrent use.
type logLimiter struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]time.Time // guarded by mu; by key
}

func newLogLimiter(log *slog.Logger) *logLimiter {
	return &logLimiter{log: log, said: map[string]time.Time{}}
}

// warn logs text, a constant, as a warning; at debug level if the key had a warning less than noticeEvery ago.
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

// Write implements io.Writer. Warnings and errors are logged as warnings, those with the same first two words once a
// minute; the rest at debug level.
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
