package node

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rollcall/config"
	"rollcall/ledger"
)

const (
	// stopWait bounds the drain of a node. A node may take 30 s from signal to exit, so 2 s remain for the process
	// itself.
	stopWait = 28 * time.Second

	// labGiveUp is the retry.give_up_after of a lab: several times its greylisting of 3 s, but short for a person who
	// watches.
	labGiveUp = 15 * time.Second
)

// LocalConfig gives a node in this process a folder of its own and free ports.
func LocalConfig(c config.Config, folder string, lab bool) config.Config {
	const anyPort = "127.0.0.1:0"
	c.DataDir, c.Ledger.URL = folder, "sqlite:"+filepath.Join(folder, "ledger.db")
	c.Ledger.DiskReserve = 0 // this ledger holds no customer's money
	c.HTTP.Listen, c.HTTP.PublicURL = anyPort, ""
	c.Upload.Listen, c.Upload.PublicURL = anyPort, ""
	c.Admin.Listen = anyPort
	c.HTTP.TLSCert, c.HTTP.TLSKey, c.Upload.TLSCert, c.Upload.TLSKey = "", "", "", "" // nobody else connects
	c.Admin.TLSCert, c.Admin.TLSKey = "", ""
	c.Cluster.GossipListen, c.Cluster.ActorListen = anyPort, anyPort
	c.Cluster.Advertise, c.Cluster.Join = "", nil
	if lab {
		c = LabConfig(c)
	}
	return c
}

// LabConfig shortens the waits for the lab, unless the operator has set them.
func LabConfig(c config.Config) config.Config {
	standard := config.Default().Retry
	if slices.Equal(c.Retry.GreylistWaits, standard.GreylistWaits) {
		c.Retry.GreylistWaits = []config.Duration{
			{Duration: time.Second}, {Duration: 2 * time.Second}, {Duration: 4 * time.Second},
		}
	}
	if slices.Equal(c.Retry.ControlWaits, standard.ControlWaits) {
		c.Retry.ControlWaits = []config.Duration{{Duration: time.Second}, {Duration: 2 * time.Second}}
	}
	if c.Retry.GiveUpAfter == standard.GiveUpAfter {
		c.Retry.GiveUpAfter = config.Duration{Duration: labGiveUp}
	}
	return c
}

// StopNode drains a node, also if ctx has ended.
func StopNode(ctx context.Context, n *Node) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		return fmt.Errorf("stop the node: %w", err)
	}
	return nil
}

// labHour is how long an hour lasts for simulated receivers and for their node. Otherwise a new user would wait an
// hour until a receiver's refusal budget is fresh again.
const labHour = time.Minute

// LabOptions are the options of a node with its own simulated receivers. Facts learned earlier are not true for these
// receivers.
func LabOptions(log *slog.Logger) Options {
	return Options{Lab: true, Hour: labHour, Forgets: true, Log: log}
}

// factsOf returns a ledger's facts about receivers, or, if forgets is set, only those learned from now on.
func factsOf(book ledger.Facts, forgets bool) ledger.Facts {
	if !forgets {
		return book
	}
	return &freshFacts{Facts: book, learned: map[string]bool{}}
}

// freshFacts returns only facts learned since freshFacts was made. Safe for concurrent use.
type freshFacts struct {
	ledger.Facts
	mu      sync.Mutex
	learned map[string]bool // keys; guarded by mu
}

func (f *freshFacts) Learn(ctx context.Context, facts []ledger.Fact) error {
	f.mu.Lock()
	for _, fact := range facts {
		f.learned[fact.Key] = true
	}
	f.mu.Unlock()
	return f.Facts.Learn(ctx, facts)
}

func (f *freshFacts) Known(ctx context.Context, keys []string) ([]ledger.Fact, error) {
	f.mu.Lock()
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !f.learned[key] })
	f.mu.Unlock()
	if len(keys) == 0 {
		return nil, nil
	}
	return f.Facts.Known(ctx, keys)
}
