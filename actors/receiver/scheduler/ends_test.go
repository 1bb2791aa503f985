package scheduler

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// TestPauseTellsItsEnd: who paused it, why and until when is told to whoever looks and to
// those that wait; without an end none is invented.
func TestPauseTellsItsEnd(t *testing.T) {
	const hour = time.Hour
	anna := func(text string, ends time.Duration) throttle.Said {
		return throttle.Said{Text: text, Origin: throttle.Origin{Layer: throttle.LayerOverride, Author: "anna@host",
			Reason: "ticket 12", Until: begin.Add(ends)}}
	}
	built := throttle.Said{Text: "no", Origin: throttle.Origin{Where: "built in"}}
	file := throttle.Said{Text: "yes", Origin: throttle.Origin{Layer: throttle.LayerFile, Where: "throttle.toml:12"}}
	for _, tc := range []struct {
		name string
		said []throttle.Said
		ends time.Duration // 0: nobody knows
		why  string
	}{
		{"an override", []throttle.Said{built, anna("yes", hour)}, hour, "anna@host paused it: ticket 12"},
		{"one above another", []throttle.Said{built, anna("drain", 2*hour), anna("yes", hour)}, 2 * hour, "anna@host"},
		{"one above a file", []throttle.Said{built, file, anna("yes", hour)}, 0, "anna@host paused it: ticket 12"},
		{"a file", []throttle.Said{built, file}, 0, "throttle.toml:12 paused it"},
		{"nobody is known", nil, 0, "an operator paused it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := openedWide()
			a.Pause = throttle.PauseYes
			w := tuned(t, &a)
			w.scheduler.options.Clock = func() time.Time { return w.now }
			w.scheduler.options.Said = func(name string, f throttle.Field) []throttle.Said {
				if name != w.scheduler.key || f != throttle.FieldPause {
					t.Errorf("asked who says %s of %q", f, name)
				}
				return tc.said
			}
			told := time.Duration(-1)
			w.hear = func(_ Client, msg proto.Message) {
				if m, ok := msg.(*wire.Pulse); ok && m.GetCause() == wire.Cause_PAUSED {
					told = w.now.Sub(begin) + time.Duration(m.GetWaitingMs())*time.Millisecond
					if tc.ends == 0 {
						told -= w.now.Sub(begin)
					}
				}
			}
			w.offer(offerOf(1, "d.example", 1, 10, hosts("mx1")))
			w.run(begin.Add(10 * time.Second))
			b := w.scheduler.explainBlocked(w.now)
			want, pulsed := begin.Add(tc.ends), tc.ends
			if tc.ends == 0 {
				want, pulsed = time.Time{}, pausedWait
			}
			if b.Cause != wire.Cause_PAUSED || !b.Until.Equal(want) || !strings.Contains(b.Why, tc.why) {
				t.Errorf("%s until %s: %s", b.Cause, b.Until, b.Why)
			}
			effort.Is(t, told, pulsed, "those that wait were told")
			if n := w.scheduler.perHour(w.now); n > 0 != (tc.ends > 0) {
				t.Errorf("%g an hour", n)
			}
		})
	}
}

// TestSourcesTellTheirEnds: of a source that is paused, and of one whose day is used up
// when the bound of it ends before the day.
func TestSourcesTellTheirEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		a     throttle.Limits
		field throttle.Field
		want  wire.Cause
		why   string
	}{
		"paused": {throttle.Limits{Pause: throttle.PauseYes}, throttle.FieldPause, wire.Cause_PAUSED,
			"anna@host paused our source default: listed"},
		"used up": {throttle.Limits{RcptsPerDay: 5}, throttle.FieldRcptsPerDay, wire.Cause_NO_SOURCE,
			"our source default has asked"},
	} {
		t.Run(name, func(t *testing.T) {
			a := openedWide()
			w := tuned(t, &a)
			ends := begin.Add(10 * time.Minute)
			w.scheduler.options.Clock = func() time.Time { return w.now }
			w.scheduler.options.SourceOf = func(string) throttle.Limits { return tc.a }
			w.scheduler.options.Said = func(name string, f throttle.Field) []throttle.Said {
				if name != throttle.SourcePrefix || f != tc.field {
					t.Errorf("asked who says %s of %q", f, name)
				}
				return []throttle.Said{{Text: "yes", Origin: throttle.Origin{Author: "anna@host", Reason: "listed",
					Until: ends}}}
			}
			w.rebind()
			w.offer(offerOf(1, "d.example", 1, 10, hosts("mx1")))
			w.run(begin.Add(time.Minute))
			b := w.scheduler.explainBlocked(w.now)
			if b.Cause != tc.want || !b.Until.Equal(ends) || !strings.Contains(b.Why, tc.why) {
				t.Errorf("%s until %s: %s", b.Cause, b.Until, b.Why)
			}
		})
	}
}

// TestOnlyTheFirstOfATransactionPasses: if that is so in several sessions, a limit of one is learned, in any words.
func TestOnlyTheFirstOfATransactionPasses(t *testing.T) {
	for taken, want := range map[int]bool{1: true, 2: false} {
		sc := begunAlone("example", testOptions(openedWide()), begin)
		sc.allowance.limits.RcptsPerTransaction = 2
		for n := range wornAgree {
			at := begin.Add(time.Duration(n) * time.Second)
			learnLength(sc.sessions, at, &session{opened: at, sessionRecord: sessionRecord{well: n + 1, taken: taken}})
		}
		effort.Is(t, sc.allowance.learned.PerTransaction.Holds(begin.Add(time.Minute)), want, "where", taken,
			"of a transaction passed: a limit of one is learned")
	}
}

// TestOnlyTheReceiversOwnEndsShowALimit: three sessions that it ends after as many refusals show one. If nothing came
// in time, or our system gave the connections up, the network may be the cause.
func TestOnlyTheReceiversOwnEndsShowALimit(t *testing.T) {
	ended := func(err error) Judgement {
		return judged(smtp.Address{}, &smtp.Failure{Stage: smtp.StageRcpt, Err: err})
	}
	lost := ended(syscall.EHOSTUNREACH)
	lost.Lost = true
	for name, tc := range map[string]struct {
		judgement Judgement
		want      bool
	}{
		"ended": {ended(io.EOF), true}, "reset": {ended(syscall.ECONNRESET), true}, "lost": {lost, false},
		"no answer": {ended(os.ErrDeadlineExceeded), false}, "nothing acknowledged": {ended(syscall.ETIMEDOUT), false},
	} {
		sc := begunAlone("example", testOptions(openedWide()), begin)
		for n := range 3 {
			s := &session{sessionRecord: sessionRecord{answers: 5 + n, refused: 2}}
			sc.sessions.takeFact(begin, s, Fact{what: wasCut, about: &Answered{Judgement: tc.judgement}})
		}
		effort.Is(t, sc.allowance.learned.Refused.Holds(begin), tc.want, name, ": a limit of two refusals is learned")
	}
}
