package throttle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Field names one field of Limits.
type Field uint8

// The fields, in the order in which people see them.
const (
	FieldConnections Field = iota + 1
	FieldConnectionRate
	FieldRcptRate
	FieldRcptsPerConnection
	FieldRcptsPerTransaction
	FieldRefusedPerSession
	FieldRefusedPerHour
	FieldRefusedShare
	FieldPipelining
	FieldPipeliningDepth
	FieldSessionAge
	FieldIdleTime
	FieldTLS
	FieldFamily
	FieldWaits
	FieldPause
	FieldRcptsPerDay
	FieldWarmUpFrom
	fieldEnd
)

// The ranges of the times of a session.
const (
	// SessionAgeMin and SessionAgeMax bound SessionAge. What a session knows of its receiver is outdated after an hour.
	// Guess.
	SessionAgeMin = time.Second
	SessionAgeMax = time.Hour

	// IdleTimeMin and IdleTimeMax bound IdleTime. Servers wait for at most five minutes (RFC 5321 §4.5.3.2.7).
	IdleTimeMin = 100 * time.Millisecond
	IdleTimeMax = 5 * time.Minute

	// WaitMin and WaitMax bound each of Waits.
	WaitMin = time.Second
	WaitMax = 24 * time.Hour
)

// none is how people write an empty list of waits, or no day.
const none = "none"

// day is the format of WarmUpFrom.
const day = "2006-01-02"

// kind says how a field is read, shown and compared.
type kind struct {
	name string
	text func(a *Limits) string
	set  func(a *Limits, text string) error
	copy func(to, from *Limits)
	// more compares by this field: above 0 if a allows more than b. nil: the values have no order.
	more   func(a, b *Limits) float64
	source bool // the field is for sources, not for receivers; Pause is for both
}

// kinds holds the kind of every Field.
var kinds = [fieldEnd]kind{
	FieldConnections: counted("connections", 1, ConnectionsMax,
		func(a *Limits) *int { return &a.Connections }),
	FieldConnectionRate: rated("connection_rate",
		func(a *Limits) *Rate { return &a.ConnectionRate }),
	FieldRcptRate: rated("rcpt_rate", func(a *Limits) *Rate { return &a.RcptRate }),
	FieldRcptsPerConnection: counted("rcpts_per_connection", 1, CountMax,
		func(a *Limits) *int { return &a.RcptsPerConnection }),
	FieldRcptsPerTransaction: counted("rcpts_per_transaction", 1, CountMax,
		func(a *Limits) *int { return &a.RcptsPerTransaction }),
	FieldRefusedPerSession: counted("refused_per_session", 1, CountMax,
		func(a *Limits) *int { return &a.RefusedPerSession }),
	FieldRefusedPerHour: counted("refused_per_hour", 1, CountMax,
		func(a *Limits) *int { return &a.RefusedPerHour }),
	FieldRefusedShare: counted("refused_share", 0, ShareMax, func(a *Limits) *int { return &a.RefusedShare }),
	FieldPipelining:   switched("pipelining", func(a *Limits) *bool { return &a.Pipelining }),
	FieldPipeliningDepth: counted("pipelining_depth", 1, CountMax,
		func(a *Limits) *int { return &a.PipeliningDepth }),
	FieldSessionAge: timed("session_age", SessionAgeMin, SessionAgeMax,
		func(a *Limits) *time.Duration { return &a.SessionAge }),
	FieldIdleTime: timed("idle_time", IdleTimeMin, IdleTimeMax,
		func(a *Limits) *time.Duration { return &a.IdleTime }),
	FieldTLS: ranked("tls", []TLS{TLSRequired, TLSOpportunistic, TLSOff},
		func(a *Limits) *TLS { return &a.TLS }),
	FieldFamily: chosen("address_family", []Family{FamilyAny, FamilyV4, FamilyV6},
		func(a *Limits) *Family { return &a.Family }),
	FieldWaits: kindOf("retry_waits", func(a *Limits) *Waits { return &a.Waits }, Waits.listText, parseWaits, nil),
	FieldPause: ranked("pause", []Pause{PauseYes, PauseDrain, PauseNo},
		func(a *Limits) *Pause { return &a.Pause }),
	FieldRcptsPerDay: unbounded(ofSource(counted("rcpts_per_day", 0, CountMax,
		func(a *Limits) *int { return &a.RcptsPerDay })), func(a *Limits) *int { return &a.RcptsPerDay }),
	FieldWarmUpFrom: ofSource(kindOf("warm_up_from", func(a *Limits) *time.Time { return &a.WarmUpFrom }, dayText, parseDay, nil)),
}

// Fields returns all fields, in the order in which people see them.
func Fields() []Field {
	out := make([]Field, 0, fieldEnd-1)
	for f := FieldConnections; f < fieldEnd; f++ {
		out = append(out, f)
	}
	return out
}

// String is the field as it is written in the configuration.
func (f Field) String() string {
	if f < FieldConnections || f >= fieldEnd {
		return "field(" + strconv.Itoa(int(f)) + ")"
	}
	return kinds[f].name
}

// ParseField reads what String writes.
func ParseField(name string) (Field, bool) {
	i := slices.IndexFunc(kinds[:], func(k kind) bool { return k.name == name })
	return Field(max(i, 0)), i > 0
}

// OfReceiver reports whether the field can be set for a receiver.
func (f Field) OfReceiver() bool { return !kinds[f].source }

// isOf reports whether the field can be set under a name, which stands for a source or a receiver.
func (f Field) isOf(name string) bool {
	if strings.HasPrefix(name, SourcePrefix) {
		return f == FieldPause || kinds[f].source
	}
	return f.OfReceiver()
}

// Text returns a field as people write it and Set reads it.
func (a Limits) Text(f Field) string { return kinds[f].text(&a) }

// Set reads a field as people write it: a whole number, "5/s", "true", "5m", "required", "5m,10m,1h", "2026-11-21", or
// "none" for no waits and no day. Its error names the field, says what to write, and wraps ErrLimits; for a rate it
// wraps ErrRate too. After an error a is unchanged.
func (a *Limits) Set(f Field, text string) error {
	if err := kinds[f].set(a, strings.TrimSpace(text)); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrLimits, f, err)
	}
	return nil
}

// More reports whether a allows more than b, if the field's values have an order.
func (a Limits) More(b Limits, f Field) bool {
	return kinds[f].more != nil && kinds[f].more(&a, &b) > 0
}

// kindOf makes the kind of a field. place points to the field, and amount returns how much a value allows; nil: the
// values have no order.
func kindOf[T any](name string, at func(a *Limits) *T, text func(T) string, parse func(string) (T, error),
	amount func(T) float64) kind {
	k := kind{name: name,
		text: func(a *Limits) string { return text(*at(a)) },
		set: func(a *Limits, text string) error {
			v, err := parse(text)
			if err == nil {
				*at(a) = v
			}
			return err
		},
		copy: func(to, from *Limits) { *at(to) = *at(from) },
	}
	if amount != nil {
		k.more = func(a, b *Limits) float64 { return amount(*at(a)) - amount(*at(b)) }
	}
	return k
}

func counted(name string, least, most int, at func(a *Limits) *int) kind {
	return kindOf(name, at, strconv.Itoa, func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q: write a whole number from %d to %d", text, least, most)
		}
		return n, nil
	}, func(n int) float64 { return float64(n) })
}

// unbounded makes k treat 0 as more than every number.
func unbounded(k kind, at func(a *Limits) *int) kind {
	number := func(a *Limits) int { return cmp.Or(*at(a), CountMax+1) }
	k.more = func(a, b *Limits) float64 { return float64(number(a) - number(b)) }
	return k
}

func rated(name string, at func(a *Limits) *Rate) kind {
	return kindOf(name, at, Rate.String, ParseRate, Rate.PerSecond)
}

func switched(name string, at func(a *Limits) *bool) kind {
	return kindOf(name, at, strconv.FormatBool, func(text string) (bool, error) {
		if text != "true" && text != "false" {
			return false, fmt.Errorf("%q: write true or false", text)
		}
		return text == "true", nil
	}, func(on bool) float64 {
		if on {
			return 1
		}
		return 0
	})
}

func timed(name string, least, most time.Duration, at func(a *Limits) *time.Duration) kind {
	return kindOf(name, at, ShortTime, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > most {
			return 0, fmt.Errorf("%q: write a length of time from %s to %s", text, ShortTime(least), ShortTime(most))
		}
		return d, nil
	}, func(d time.Duration) float64 { return float64(d) })
}

func chosen[T ~string](name string, words []T, at func(a *Limits) *T) kind {
	return kindOf(name, at, func(w T) string { return string(w) }, func(text string) (T, error) {
		if !slices.Contains(words, T(text)) {
			return "", fmt.Errorf("%q: write one of %s", text, joined(words))
		}
		return T(text), nil
	}, nil)
}

// joined returns words with commas between them.
func joined[T ~string](words []T) string {
	parts := make([]string, len(words))
	for i, w := range words {
		parts[i] = string(w)
	}
	return strings.Join(parts, ", ")
}

// ranked makes the kind of a field whose values are words. The words are ordered: the one that allows least comes
// first.
func ranked[T ~string](name string, words []T, at func(a *Limits) *T) kind {
	k := chosen(name, words, at)
	k.more = func(a, b *Limits) float64 { return float64(slices.Index(words, *at(a)) - slices.Index(words, *at(b))) }
	return k
}

func (w Waits) listText() string {
	var parts []string
	for _, d := range w.List() {
		parts = append(parts, ShortTime(d))
	}
	return cmp.Or(strings.Join(parts, ","), none)
}

func parseWaits(text string) (w Waits, err error) {
	if text == "" || text == none {
		return w, nil
	}
	parts := strings.Split(text, ",")
	if len(parts) > WaitsMax {
		return w, fmt.Errorf("%q: write at most %d waits", text, WaitsMax)
	}
	for i, part := range parts {
		w[i], err = time.ParseDuration(strings.TrimSpace(part))
		if err != nil || w[i] < WaitMin || w[i] > WaitMax {
			return Waits{}, fmt.Errorf("%q: write waits from %s to %s with commas between them, as 5m,10m,1h, or none",
				text, ShortTime(WaitMin), ShortTime(WaitMax))
		}
	}
	return w, nil
}

func dayText(t time.Time) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format(day)
}

func parseDay(text string) (t time.Time, err error) {
	if text == "" || text == none {
		return t, nil
	}
	if t, err = time.Parse(day, text); err != nil {
		err = fmt.Errorf("%q: write a day such as 2026-11-21, or none", text)
	}
	return t, err
}

func ofSource(k kind) kind {
	k.source = true
	return k
}

// ShortTime writes a duration without the zeros that its String has: 5m, 1h, 1m30s.
func ShortTime(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
