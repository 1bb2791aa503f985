package receiver

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// TestAnActorIsSurveyedTracedAndLosesASession asks a real actor that speaks to the lab.
func TestAnActorIsSurveyedTracedAndLosesASession(t *testing.T) {
	t.Parallel()
	a := openedWide()
	a.Connections, a.RcptRate = 1, throttle.Rate{Events: 20, Per: time.Second}
	b := newBench(t, time.Millisecond, "plain", a)
	living := b.options.Registry
	if lines, err := living.Trace(time.Now(), "x", inspect.AnySource, 0); err != nil || len(lines) != 0 {
		t.Fatalf("a trace begins with %d lines and %v", len(lines), err)
	}
	c, pid := b.customer(1, 10_000, half) // after the trace, which shows the first session from its start
	defer func() { _ = b.system.Root.StopFuture(pid).Wait() }()
	var lines []inspect.TraceLine
	eventually(t, "lines of a session", func() bool {
		after := uint64(0)
		if n := len(lines); n > 0 {
			after = lines[n-1].Number
		}
		more := effort.Must(living.Trace(time.Now(), "x", inspect.AnySource, after))(t)
		lines = append(lines, more...)
		return len(lines) > 40
	})
	c.until("some answers", func() bool { return len(c.answers) > 10 })
	local := regexp.MustCompile(`RCPT TO:<([^…]|…[^@])`)
	seen := ""
	for i, line := range lines {
		effort.ErrorIf(t, i > 0 && line.Number <= lines[i-1].Number || line.Session == 0 ||
			line.Host != b.host.GetName(), "line %d is %+v", i, line)
		effort.ErrorIf(t, local.MatchString(line.Line) || strings.Contains(line.Line, "anna."),
			"a line gives an address away: %s", line.Line)
		seen += line.Line + "\n"
	}
	for _, want := range []string{"* dialling ", "< 220", "> EHLO probe.example", "> MAIL FROM:<probe@probe.example>",
		"> RCPT TO:<…@" + b.domain + ">", "< 250", "* ready"} {
		effort.Has(t, seen, want, "no line has")
	}
	more, _ := living.Trace(time.Now(), "x", "192.0.2.1", 0)
	effort.ErrorIf(t, len(more) != 0, "%d lines of another source", len(more))

	found := living.CollectStatus(t.Context())
	effort.FatalIf(t, len(found) != 1 || found[0].Key != "x" || found[0].Sessions != 1 || found[0].Queued == 0,
		"the found is %+v", found)
	got := living.Detail(t.Context(), "y")
	effort.ErrorIf(t, len(got) != 0, "another receiver has %d details", len(got))
	detail := living.Detail(t.Context(), "x")
	effort.FatalIf(t, len(detail) != 1 || len(detail[0].SessionList) != 1, "the detail is %+v", detail)
	old := detail[0].SessionList[0].ID
	effort.ErrorIf(t, living.Close(t.Context(), "x", old+100) || !living.Close(t.Context(), "x", old),
		"not the session that is there was closed")
	c.until("another session", func() bool {
		d := living.Detail(t.Context(), "x")
		return len(d) == 1 && len(d[0].SessionList) == 1 && d[0].SessionList[0].ID != old
	})
	if got := living.Forget(t.Context(), "x", scheduler.ForgetAll); len(got) != 1 || got[0].Key != "x" {
		t.Errorf("an actor is asked to forget: %+v", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	living.CollectStatus(over) // ends at once
}

// TestAnActorThatStopsHoldsNoInspectorUp: the inspector waits for a slow actor, but not for one that stops.
func TestAnActorThatStopsHoldsNoInspectorUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewRegistry()
		allow := func(string) throttle.Limits { return throttle.Limits{} }
		sit := func(key string, told func(s *registry.Handle, m question)) {
			s := l.Enter(key, allow)
			s.Listen(func(msg any) { go told(s, msg.(question)) })
		}
		slow := 700 * time.Millisecond
		sit("quick", func(_ *registry.Handle, m question) { m.at(nil, time.Now()) })
		sit("slow", func(_ *registry.Handle, m question) { <-time.After(slow); m.at(nil, time.Now()) })
		sit("gone", func(s *registry.Handle, _ question) { s.Leave() })
		sit("answered and gone", func(s *registry.Handle, m question) { m.at(nil, time.Now()); s.Leave() })
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		everyKey := func(string) bool { return true }
		got := collect(ctx, l, everyKey, false, func(*scheduler.Scheduler, time.Time) bool { return true })
		took := time.Since(began)
		effort.ErrorIf(t, len(got) != 3 || took != slow, "%d answers in %s", len(got), took)
	})
}

func TestASessionThatNobodyTracesSaysNothing(t *testing.T) {
	l := NewRegistry()
	tr := &tracer{traces: &l.Traces, key: "x", source: &egress.Source{Hello: "probe.example"}}
	effort.FatalIf(t, tr.On(), "it is traced")
	effort.Is(t, testing.AllocsPerRun(100, func() { tr.ended(smtp.ErrClosed) }), 0, "allocations")
}

func TestANameStandsForItsKeys(t *testing.T) {
	for _, c := range []struct {
		name, key string
		want      bool
	}{
		{"example.net", "example.net", true},
		{"example.net", "suffix:example.net", true}, {"suffix:example.net", "suffix:example.net", true},
		{"example.net", "domain:example.net/mx.example", true}, {"mx.example", "domain:example.net/mx.example", false},
		{"domain:example.net/mx.example", "domain:example.net/mx.example", true},
		{"example", "example.net", false}, {"suffix:example.net", "example.net", false},
	} {
		effort.Is(t, standsFor(c.name)(c.key), c.want, fmt.Sprintf("%q stands for %q", c.name, c.key))
	}
}

// TestWhatAHostShowsArrives: over a real socket, what a host says to EHLO decides how many it may refuse.
func TestWhatAHostShowsArrives(t *testing.T) {
	b := intercepted(t, serveHosts(t, func(conn net.Conn) {
		answer(conn, "mx.d0.example", "250-mx.d0.example Hello [127.0.0.1], Haraka is at your service.\r\n250 SIZE 0",
			"250 2.1.5 ok")
	}), &effort.Log{})
	b.options.Allow = func(string) throttle.Limits { return stranger() }
	b.options.Said = func(string, throttle.Field) []throttle.Said {
		return []throttle.Said{{Origin: throttle.Origin{Layer: throttle.LayerDefault}}}
	}
	one := b.at(0)
	one.askOne(1, 0)
	detail := b.options.Registry.Detail(t.Context(), "x")
	effort.ErrorIf(t, len(detail) != 1 || detail[0].Software == nil ||
		detail[0].Software.Words() != "Haraka, by its EHLO reply" || detail[0].Software.Host != one.host.GetName() ||
		!detail[0].Software.Decides, "%+v", detail)
}

// TestSourcesAreToldWithTheirState: each source is listed with its state and its sessions at all receivers.
func TestSourcesAreToldWithTheirState(t *testing.T) {
	now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	later := now.Add(time.Hour)
	for _, c := range []struct {
		name string
		is   egress.SourceState
		want inspect.Source
	}{
		{"used", egress.SourceState{Today: 3, PerDay: 4}, inspect.Source{State: "used", Today: 3, PerDay: 4}},
		{"paused", egress.SourceState{Pause: throttle.PauseYes, SuspendedUntil: later}, inspect.Source{State: "paused"}},
		{"draining", egress.SourceState{Pause: throttle.PauseDrain}, inspect.Source{State: "draining"}},
		{"suspended", egress.SourceState{SuspendedUntil: later, Reason: smtp.Policy},
			inspect.Source{State: "suspended", Until: later, Reason: smtp.Policy.String()}},
		{"spent", egress.SourceState{Today: 4, PerDay: 4},
			inspect.Source{State: "spent", Until: now.Add(12 * time.Hour), Today: 4, PerDay: 4}},
		{"on trial", egress.SourceState{OnTrial: true, Reason: smtp.Policy},
			inspect.Source{State: "on trial", Reason: smtp.Policy.String()}},
	} {
		c.want.Sessions = 2
		effort.Is(t, sourceOf(c.is, 2, now), c.want, c.name)
	}
}
