package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/smtp/verdict"
)

// A node takes a changed file over while it runs; one with a fault changes nothing.
func TestRulesFollowTheirFile(t *testing.T) {
	own := string(effort.Must(os.ReadFile("../testdata/own.toml"))(t))
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) { rulesFollowTheirFile(t, own) })
}

func rulesFollowTheirFile(t *testing.T, own string) {
	metrics := prometheus.NewRegistry()
	l, err := openRules(config.Default().Verdict, metrics)
	effort.FatalIf(t, err != nil || l.Now() != verdict.Builtin(), "%v", err)
	logged := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { l.follow(ctx, slog.New(slog.NewTextHandler(eachLine(logged), nil))) })
	defer done.Wait()
	defer cancel()
	for _, c := range []struct{ text, want string }{
		{own, "verdict file loaded"}, {"x", "verdict.toml:1"}, {"", "title is missing"}, {own + "\n", "rules=1"},
	} {
		effort.OK(t, os.WriteFile("new.toml", []byte(c.text), 0o600))
		effort.OK(t, os.Rename("new.toml", config.Default().Verdict.File))
		effort.Has(t, <-logged, c.want, c.text, "logged")
		_, ok := l.Now().Rule("ours")
		effort.ErrorIf(t, !ok, "%q: the rule is not in force", c.text)
		used := float64(1)
		if c.text == "x" || c.text == "" {
			used = 0
		}
		effort.Is(t, effort.Metric(t, metrics, "rollcall_verdict_file_used"), used, fmt.Sprintf("%q: file used is", c.text))
	}
	effort.OK(t, os.Remove(config.Default().Verdict.File))
	<-logged
	effort.Is(t, l.Now(), verdict.Builtin(), "the rules of a file that is gone are in force")
}

// eachLine is a writer that sends each write to a channel.
type eachLine chan<- string

func (l eachLine) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
