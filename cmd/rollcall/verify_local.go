package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rollcall/config"
)

const (
	// stopWait bounds the drain of a node; the operators' contract says 30 s
	// from signal to exit, and the rest of that is for the process itself.
	stopWait = 28 * time.Second

	// labGiveUp is how long the lab's receivers get: several times their
	// greylisting of 3 s, and not so long that a person stops watching.
	labGiveUp = 15 * time.Second
)

// verifyLocal has the file verified by a node in this process, with data and
// ports of its own.
func verifyLocal(ctx context.Context, r *verifyRun, c config.Config) (err error) {
	folder := filepath.Join(c.DataDir, "verify")
	if r.flags.lab {
		folder = filepath.Join(c.DataDir, "verify-lab")
	}
	c = localConfig(c, folder, r.flags.lab)
	if !r.flags.lab {
		r.view.phase("checking DNS and outgoing port 25")
		if err := preflight(ctx, c, r.input); err != nil {
			return err
		}
	}
	log, closeLog, err := openNodeLog(folder, c.Log.Level)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	limitMemory(r.environ, log)
	options := nodeOptions{Log: log}
	if r.flags.lab {
		options = labOptions(log)
	}
	n, err := startNode(ctx, c, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopNode(ctx, n)) }()
	token, err := readToken(folder)
	if err != nil {
		return err
	}
	tenant, err := openTenant(ctx, newAdminClient(n.AdminURL, token), tenantOptions{
		file: filepath.Join(folder, "tenant.json"), workspace: "verify", credits: c.Limits.MaxRows,
	})
	if err != nil {
		return err
	}
	r.client = newAPIClient(n.APIURL, tenant.Key, r.view.notice)
	r.memory, r.poll = newMemory(folder, r.input.sum), pollLocal
	return r.run(ctx)
}

// localConfig gives a node in this process its own folder and free ports.
func localConfig(c config.Config, folder string, lab bool) config.Config {
	const anyPort = "127.0.0.1:0"
	c.DataDir, c.Ledger.URL = folder, "sqlite:"+filepath.Join(folder, "ledger.db")
	c.Ledger.DiskReserve = 0 // nobody else's money is in it
	c.HTTP.Listen, c.HTTP.PublicURL = anyPort, ""
	c.Upload.Listen, c.Upload.PublicURL = anyPort, ""
	c.Admin.Listen = anyPort
	c.HTTP.TLSCert, c.HTTP.TLSKey, c.Upload.TLSCert, c.Upload.TLSKey = "", "", "", "" // nobody else connects
	c.Admin.TLSCert, c.Admin.TLSKey = "", ""
	c.Cluster.GossipListen, c.Cluster.ActorListen = anyPort, anyPort
	c.Cluster.Advertise, c.Cluster.Join = "", nil
	if lab {
		c = labConfig(c)
	}
	return c
}

// labConfig shortens the waits for the lab, unless the operator has set others.
func labConfig(c config.Config) config.Config {
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

// openNodeLog opens the log of a node whose standard error belongs to a person.
func openNodeLog(folder, level string) (*slog.Logger, func() error, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(folder, "node.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open the node's log: %w", err)
	}
	return newLogger(f, config.Log{Level: level, Format: "json"}), f.Close, nil
}

// stopNode drains a node, also when ctx has ended.
func stopNode(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		return fmt.Errorf("stop the node: %w", err)
	}
	return nil
}
