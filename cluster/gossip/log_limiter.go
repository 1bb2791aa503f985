package gossip

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// noticeEvery is how often the same thing is said: what a stranger sends must not
// fill the log.
const noticeEvery = time.Minute

// loggedMax bounds the things of which it is known when they were said.
const loggedMax = 256

// limiter says a warning once a minute at most, per key. Safe for concurrent use.
type logLimiter struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]time.Time // guarded by mu; by key
}

func newLogLimiter(log *slog.Logger) *logLimiter {
	return &logLimiter{log: log, said: map[string]time.Time{}}
}

// warn says text, which is constant, unless something was said under key a moment
// ago; then it says it at debug level.
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

// libraryTextMax bounds what is kept of a line of the library, in bytes.
const libraryTextMax = 300

// library is where memberlist writes its log, one line a call.
type library struct {
	log     *slog.Logger
	limiter *logLimiter
	suspect func(session string) // is told that pings of a member go unanswered
}

// Write implements io.Writer. Warnings and errors are said as warnings, those that
// begin with the same two words once a minute; the rest is for debugging.
func (l library) Write(line []byte) (int, error) {
	level, text := splitLine(string(line))
	// The one place where the library tells a suspicion (state.go, probeNode).
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

// splitLine takes "[LEVEL] memberlist: text" apart. What follows "meta:" is the
// content of a message and is left out.
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
