package process

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"rollcall/config/effort"
)

func newGuard() (*PanicGuard, *effort.Log) {
	l := &effort.Log{}
	return NewPanicGuard(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(l, nil))), l
}

// counted is what the metric says of a place.
func counted(g *PanicGuard, where string) float64 {
	var m dto.Metric
	_ = g.panics.WithLabelValues(where).Write(&m)
	return m.GetCounter().GetValue()
}

// secretIsAsked panics, with an address in the text of the panic and in its own arguments.
func secretIsAsked(address string) { panic("cannot ask " + address) }

func TestAPanicIsLoggedCountedAndAFailure(t *testing.T) {
	g, log := newGuard()
	failed := make(chan struct{})
	g.Go("session", func() { secretIsAsked("ada@example.com") }, func() { close(failed) })
	<-failed
	text := log.String()
	effort.ErrorIf(t, !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "where=session") ||
		!strings.Contains(text, "secretIsAsked") || !strings.Contains(text, "what=string"),
		"the log does not say what happened where: %s", text)
	effort.Lacks(t, text, "ada@", "the log names an address")
	effort.Is(t, counted(g, "session"), 1, "panics are counted")
}

func TestARuntimeErrorIsNamed(t *testing.T) {
	g, log := newGuard()
	var none []int
	effort.ErrIs(t, g.Run("plan", func() { _ = none[len(none)] }), ErrPanicked, "the error")
	effort.Has(t, log.String(), "index out of range", "the log does not say so", log)
}

func TestAFailureThatPanicsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard()
		g.After(time.Second, "lookup", func() { panic(1) }, func() { panic(2) })
		<-time.After(2 * time.Second)
		synctest.Wait()
		effort.Is(t, counted(g, "lookup"), 2, "panics are counted")
	})
}

func TestManyPanicsOfOnePlaceAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, log := newGuard()
		for range 500 {
			_ = g.Run("answer", func() { panic("again") })
		}
		_ = g.Run("route", func() { panic("another place") })
		effort.Is(t, strings.Count(log.String(), "msg=panic"), 2, "lines for two places")
		<-time.After(stacksEvery)
		_ = g.Run("answer", func() { panic("again") })
		effort.Has(t, log.String(), "unlogged=499", "the next line does not say how many were not logged", log)
	})
}

func TestWorkThatIsFineIsNoFailure(t *testing.T) {
	g, log := newGuard()
	done := make(chan struct{})
	g.Go("session", func() { close(done) }, func() { t.Error("it failed") })
	<-done
	err := g.Run("session", func() {})
	effort.ErrorIf(t, err != nil || log.String() != "", "%v %s", err, log)
}

func TestTheGuardOfASystem(t *testing.T) {
	system := actor.NewActorSystem()
	effort.ErrorIf(t, GuardOf(system) != nil, "a system has a guard that nobody gave it")
	g, _ := newGuard()
	g.Install(system)
	effort.Is(t, GuardOf(system), g, "the guard of the system is another one")
}

// TestTheProcessGoesOn lets a process panic in a goroutine: with a guard it goes on, and without one
// it does not, so that the first half can fail.
func TestTheProcessGoesOn(t *testing.T) {
	if kind := os.Getenv("ROLLCALL_GUARD_TEST"); kind != "" {
		var g *PanicGuard
		if kind == "guarded" {
			g, _ = newGuard()
		}
		failed := make(chan struct{})
		g.Go("session", func() { panic("here") }, func() { close(failed) })
		<-failed
		return
	}
	for kind, ends := range map[string]bool{"guarded": false, "bare": true} {
		c := exec.Command(os.Args[0], "-test.run=TestTheProcessGoesOn$")
		c.Env = append(os.Environ(), "ROLLCALL_GUARD_TEST="+kind)
		out, err := c.CombinedOutput()
		effort.Is(t, err != nil, ends, kind, "the process ended", out)
	}
}
