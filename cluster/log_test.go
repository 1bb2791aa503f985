package cluster

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/cluster/wire"
)

// notes keeps what is logged, by whatever goroutine.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (n *notes) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(line)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// TestLogsCarryNoMessages makes the actor library log whatever it logs of messages,
// at debug level, and looks for what they hold.
func TestLogsCarryNoMessages(t *testing.T) {
	const canary = "canary.person@private.example"
	var out notes
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	message := &wire.KeysAsk{Fingerprint: canary}
	l := quiet(log)
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		l.Log(t.Context(), level, "[DeadLetter]", slog.Any("message", message), slog.String("sender", canary),
			slog.Any("pid", actor.NewPID(canary, canary)), slog.String("address", "127.0.0.1:7947"))
		l.With("message", message).WithGroup("g").Log(t.Context(), level, "serialize failed", "body", message)
	}
	said := out.String()
	if strings.Contains(said, canary) {
		t.Errorf("the log holds what a message held: %s", said)
	}
	if strings.Count(said, "127.0.0.1:7947") != 2 || strings.Contains(said, "level=ERROR") {
		t.Errorf("want the address of the two that are warnings or worse, as warnings: %s", said)
	}
}

// TestDeadLettersAreNotShown sends a message to nobody through a whole node.
func TestDeadLettersAreNotShown(t *testing.T) {
	const canary = "canary.person@private.example"
	var out notes
	n, err := New(Options{Name: "test", Host: "here", Registerer: prometheus.NewRegistry(),
		Log:    slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Comply: func(context.Context, func(string) (int, int)) error { return nil },
		Load:   func() Load { return Load{} }})
	if err == nil {
		err = n.Serve(t.Context(), Kinds{"none": actor.PropsFromFunc(func(actor.Context) {})}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	nobody := actor.NewPID(n.System().Address(), "nobody")
	ask := &wire.KeysAsk{Fingerprint: canary}
	if _, err := n.System().Root.RequestFuture(nobody, ask, linkWait).Result(); err == nil {
		t.Fatal("nobody answered")
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), canary) {
		t.Errorf("the log holds what a message held: %s", out.String())
	}
}
