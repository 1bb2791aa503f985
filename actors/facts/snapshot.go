package facts

import (
	"encoding/json"
	"fmt"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

const (
	// SnapshotVersion is the version of a snapshot's text. Text of another version isn't read. A new field needs no new
	// version: readers that don't know it skip it.
	SnapshotVersion = 4

	// BytesMax bounds the text of a snapshot, as Facts does.
	BytesMax = 4 << 10

	// HostsMax bounds the hosts of a snapshot, and its host sets; more have to be learned again:
	// the largest receivers have four names of four addresses.
	HostsMax = 16

	// SourcesMax bounds the sources of a snapshot; more have to be learned again:
	// nodes that a receiver lived on lately, times their sources.
	SourcesMax = 8

	// textMax bounds what a receiver wrote in each attempt of a snapshot: half a reply line (RFC 5321 §4.5.3.1.5).
	textMax = 256

	// CountMax bounds counts of events in a row: no wait grows beyond 24 of them.
	CountMax = 100

	// HoldMost bounds how long anything that is read from a snapshot holds, whatever it
	// says: a clock that was wrong must not block a receiver for more than a day.
	HoldMost = 24 * time.Hour

	// LearnedFor is how long a learned limit holds before the operator's limits are tried again, and how long failures
	// in a row count as such. Guess: long enough for a run, short enough to notice that a receiver has changed.
	LearnedFor = throttle.LearnedFor

	// GreyFor is how long learned greylisting is kept: receivers rarely change it, and mostly remember clients for 35
	// days.
	GreyFor = 24 * time.Hour

	// RateFor is how long a learned rate is kept. Guess: finding it again takes minutes, and a receiver's limits change
	// within hours.
	RateFor = 4 * time.Hour
)

// Snapshot is what an actor learned of its receiver, for the next actor. Its durations are the times that were left
// when it was written.
type Snapshot struct {
	V          int       `json:"v"`
	At         int64     `json:"at"` // when it was written, by the ledger's clock, Unix milliseconds
	Limits     []Limit   `json:"limits,omitempty"`
	Capacity   Capacity  `json:"capacity,omitzero"`
	Opening    Rate      `json:"opening,omitzero"` // of sessions
	Pauses     int       `json:"pauses,omitempty"`
	Paused     int64     `json:"paused_ms,omitempty"`
	PauseCause Attempt   `json:"pause_cause,omitzero"`
	Sources    []Source  `json:"sources,omitempty"`
	HostSets   []HostSet `json:"host_sets,omitempty"`
	Hosts      []Host    `json:"hosts,omitempty"`
}

// Limit is one limit that was learned, by the number that its owner gives it.
type Limit struct {
	Which int   `json:"which"`
	Most  int   `json:"most"`
	Left  int64 `json:"left_ms"`
}

// Capacity is how many sessions a receiver accepts.
type Capacity struct {
	Most int   `json:"most"`
	Hold int64 `json:"hold_ms"`
	Left int64 `json:"left_ms,omitempty"`
}

// Attempt is an attempt whose answer was about a host or about us. Its reader judges it again.
type Attempt struct {
	At       int64             `json:"at,omitempty"`
	Stage    uint8             `json:"stage,omitempty"`
	Host     string            `json:"host,omitempty"`
	Source   string            `json:"source,omitempty"`
	TLS      bool              `json:"tls,omitempty"`
	Code     int               `json:"code,omitempty"`
	Enhanced smtp.EnhancedCode `json:"enhanced,omitzero"`
	Text     []byte            `json:"text,omitempty"` // any bytes
	Trouble  uint8             `json:"trouble,omitempty"`
	Scope    uint8             `json:"scope,omitempty"` // the presumed cause, and why
	Why      string            `json:"why,omitempty"`
}

// HostSet is the TLS mode of a set of hosts, and which of our sources they refuse.
type HostSet struct {
	Key         string       `json:"key"`
	TLS         uint8        `json:"tls,omitempty"`
	Left        int64        `json:"left_ms,omitempty"`
	Suspensions []Suspension `json:"suspensions,omitempty"`
}

// Suspension is how a set of hosts keeps away one of our sources.
type Suspension struct {
	Source      string  `json:"source,omitempty"`
	Left        int64   `json:"left_ms"`
	Suspensions int     `json:"suspensions"`
	Last        Attempt `json:"last,omitzero"`
}

// Host is one address of a host that failed.
type Host struct {
	Host     string  `json:"host"`
	At       string  `json:"at"`
	Left     int64   `json:"left_ms,omitempty"`
	Failures int     `json:"failures"`
	Last     Attempt `json:"last"`
}

// Source is what one source of one node did at the receiver, and how the receiver reacted.
type Source struct {
	Source      string   `json:"source,omitempty"`
	Left        int64    `json:"left_ms,omitempty"` // of its suspension
	Suspensions int      `json:"suspensions,omitempty"`
	Last        Attempt  `json:"last,omitzero"`
	Enough      int64    `json:"enough_ms,omitempty"` // of greylisting
	Short       int64    `json:"short_ms,omitempty"`
	Minutes     []Minute `json:"minutes,omitempty"`
	Rate        Rate     `json:"rate,omitzero"`

	HandedOn bool `json:"handed_on,omitempty"` // it belongs to another node than the one that stored it last
}

// Rate is a pace: RCPTs in a thousand seconds.
type Rate struct {
	Rate  int64 `json:"rate"`
	Edge  int64 `json:"edge,omitempty"`
	Usual int64 `json:"usual,omitempty"`     // per mille of addresses that are deferred at any pace
	Grey  bool  `json:"greylists,omitempty"` // every address
	Alone bool  `json:"alone,omitempty"`     // nothing passed
	Long  int64 `json:"long_ms,omitempty"`   // the time over which the limit counts

	Kinds       string `json:"greylists_by,omitempty"` // of replies
	NeverPassed bool   `json:"never,omitempty"`        // and nothing had passed before
}

// Minute is one minute of a refusal budget, with its age in milliseconds.
type Minute struct {
	Ago      int64 `json:"ago_ms"`
	Accepted int   `json:"accepted,omitempty"`
	Refused  int   `json:"refused,omitempty"`
}

// Empty reports whether nothing is worth keeping.
func (s *Snapshot) Empty() bool {
	return s.Pauses == 0 && s.Paused == 0 && len(s.Limits) == 0 && s.Capacity == (Capacity{}) && s.Opening == Rate{} &&
		len(s.Sources) == 0 && len(s.HostSets) == 0 && len(s.Hosts) == 0
}

// Encode returns the stored form of the snapshot. Hosts beyond its bound are left out.
func (s *Snapshot) Encode() []byte {
	for {
		text, err := json.Marshal(s)
		switch {
		case err == nil && len(text) <= BytesMax:
			return text
		case len(s.Hosts) > 0:
			s.Hosts = s.Hosts[1:]
		case len(s.HostSets) > 0:
			s.HostSets = s.HostSets[1:]
		default:
			s.Sources = shorter(s.Sources) // the rest is far smaller
		}
	}
}

// Decode reads a snapshot. It skips unknown fields, so that a later release may add some. On an error only the
// snapshot's version is of use.
func Decode(data []byte) (Snapshot, error) {
	if len(data) > BytesMax {
		return Snapshot{}, fmt.Errorf("snapshot of %d bytes, at most %d are written", len(data), BytesMax)
	}
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("snapshot: %w", err)
	}
	if s.V != SnapshotVersion {
		return s, fmt.Errorf("snapshot of version %d, this is version %d", s.V, SnapshotVersion)
	}
	return s, nil
}

// Life returns how long a snapshot is of use: until everything in it has expired.
func (s *Snapshot) Life() time.Duration {
	longest := LearnedFor.Milliseconds() // failures and pauses in a row count so long
	longest = max(longest, s.Paused)
	for _, l := range s.Limits {
		longest = max(longest, l.Left)
	}
	for _, l := range s.HostSets {
		for _, r := range l.Suspensions {
			longest = max(longest, r.Left+LearnedFor.Milliseconds())
		}
	}
	for _, one := range s.Sources {
		longest = max(longest, one.Life().Milliseconds())
	}
	for _, h := range s.Hosts {
		longest = max(longest, h.Left+LearnedFor.Milliseconds())
	}
	return min(time.Duration(longest)*time.Millisecond, HoldMost)
}

// Life returns how long the snapshot of a source is useful.
func (s *Source) Life() time.Duration {
	switch {
	case s.Enough > 0 || s.Short > 0:
		return GreyFor
	case s.Left > 0:
		return min(time.Duration(s.Left)*time.Millisecond, HoldMost) + LearnedFor
	case s.Rate != Rate{}:
		return RateFor
	}
	return LearnedFor
}

// Empty reports whether nothing is worth keeping.
func (s *Source) Empty() bool {
	return s.Left == 0 && s.Suspensions == 0 && s.Enough == 0 && s.Short == 0 && len(s.Minutes) == 0 && s.Rate == Rate{}
}

// shorter leaves out the last source, but of the only one just the oldest minute, if it has any.
func shorter(sources []Source) []Source {
	switch n := len(sources); {
	case n == 1 && len(sources[0].Minutes) > 0:
		sources[0].Minutes = sources[0].Minutes[1:]
		return sources
	case n > 0:
		return sources[:n-1]
	}
	return nil
}

// AttemptOf returns the stored form of an attempt.
func AttemptOf(a evidence.Attempt) Attempt {
	if a == (evidence.Attempt{}) {
		return Attempt{}
	}
	return Attempt{At: a.At.UnixMilli(), Stage: uint8(a.Stage), Host: a.Host, Source: a.Source, TLS: a.TLS,
		Code: a.Code, Enhanced: a.Enhanced, Text: []byte(cut(a.Text, textMax)), Trouble: uint8(a.Trouble),
		Scope: uint8(a.Cause.Scope), Why: a.Cause.Why}
}

// Evidence returns a stored attempt. Values that no attempt can have are left out.
func (a Attempt) Evidence() evidence.Attempt {
	out := evidence.Attempt{At: time.UnixMilli(a.At).UTC(), Host: cut(a.Host, evidence.NameMax),
		Source: cut(a.Source, evidence.NameMax), TLS: a.TLS, Text: cut(string(a.Text), evidence.TextMax)}
	if a.Code >= 200 && a.Code <= 599 {
		out.Code, out.Enhanced = a.Code, a.Enhanced
	}
	if s := smtp.Stage(a.Stage); s <= smtp.StageRset {
		out.Stage = s
	}
	if t := evidence.Trouble(a.Trouble); t.Known() {
		out.Trouble = t
	}
	if s := evidence.Scope(a.Scope); s != evidence.ScopeNone && s.Known() {
		out.Cause = evidence.NewCause(s, a.Why)
	}
	return out
}

// cut returns at most the first n bytes of a text.
func cut(text string, n int) string { return text[:min(len(text), n)] }

// RateOf returns the stored form of a pace.
func RateOf(m throttle.RateMemory) Rate {
	return Rate{max(1, int64(m.Rate*1000)), int64(m.Edge * 1000), int64(m.Usual * 1000), m.Grey, m.Alone,
		m.Long.Milliseconds(), m.Kinds, m.NeverPassed}
}

// Memory returns a stored pace.
func (r Rate) Memory() throttle.RateMemory {
	return throttle.RateMemory{Rate: float64(r.Rate) / 1000, Edge: float64(r.Edge) / 1000, Usual: float64(r.Usual) / 1000,
		Grey: r.Grey, Alone: r.Alone, Long: Millis(r.Long, time.Hour), Kinds: cut(r.Kinds, textMax),
		NeverPassed: r.NeverPassed}
}

// Millis returns a number of milliseconds as a duration, at least 0 and at most most.
func Millis(ms int64, most time.Duration) time.Duration {
	return time.Duration(min(max(0, ms), most.Milliseconds())) * time.Millisecond
}

// Count bounds what was counted in a row.
func Count(n int) int { return min(max(0, n), CountMax) }
