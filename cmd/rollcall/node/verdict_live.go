package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/process"
	"rollcall/config"
	"rollcall/smtp/verdict"
)

// LoadRules returns the rules in effect: those of the operator's file, followed by the program's own. Only the file of
// the default name may be absent.
func LoadRules(c config.Verdict) (*verdict.Rules, error) {
	if c.File == "" {
		return verdict.Builtin(), nil
	}
	rules, err := verdict.LoadFile(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		if c.File == config.Default().Verdict.File {
			return verdict.Builtin(), nil
		}
		return nil, fmt.Errorf("there is no file %s: check verdict.file: %w", c.File, err)
	}
	return rules, err
}

// liveRules are the rules that judge replies. They follow the operator's file while the node runs. A faulty file is
// logged, with its line, and changes nothing.
type liveRules struct {
	config config.Verdict
	watch  *config.FileWatch
	rules  atomic.Pointer[verdict.Rules]

	fileUsed, loaded, own prometheus.Gauge
}

// openRules loads what LoadRules does, with its errors.
func openRules(c config.Verdict, r prometheus.Registerer) (*liveRules, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_verdict_" + name, Help: help})
	}
	l := &liveRules{config: c, watch: config.WatchFile(c.File),
		fileUsed: gauge("file_used", "1: the present file of verdict rules is in use, or there is none. 0: it has a "+
			"fault, and the rules before it are in force."),
		loaded: gauge("file_loaded_timestamp_seconds",
			"When the verdict rules in force were read; at first the start of the node."),
		own: gauge("own_rules", "Verdict rules of the operator's file that are in force."),
	}
	if err := l.load(); err != nil {
		return nil, err
	}
	r.MustRegister(l.fileUsed, l.loaded, l.own)
	return l, nil
}

// Now returns the rules in use.
func (l *liveRules) Now() *verdict.Rules { return l.rules.Load() }

func (l *liveRules) load() error {
	rules, err := LoadRules(l.config)
	if err != nil {
		l.fileUsed.Set(0)
		return err
	}
	l.rules.Store(rules)
	l.fileUsed.Set(1)
	l.own.Set(float64(rules.Own()))
	l.loaded.SetToCurrentTime()
	return nil
}

// follow loads the file anew each time it has changed, until ctx ends.
func (l *liveRules) follow(ctx context.Context, log *slog.Logger) {
	l.watch.Each(ctx, func() {
		if err := l.load(); err != nil {
			log.Error("verdict file not used", "err", err)
			return
		}
		log.Info("verdict file loaded", "file", l.config.File, "rules", l.Now().Own(),
			"changes", len(l.Now().Changes()))
	})
}

// startRules loads the rules that judge replies and follows their file.
func (n *Node) startRules(ctx context.Context, c config.Config, o Options) (err error) {
	if n.rules, err = openRules(c.Verdict, n.Registry); err != nil {
		return err
	}
	n.add("verdict rules", process.Background(ctx, func(ctx context.Context) { n.rules.follow(ctx, o.Log) }))
	return nil
}
