package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/config"
)

// verifyLocal has the file verified by a node in this process, with data and
// ports of its own.
func verifyLocal(ctx context.Context, r *verifyRun, c config.Config) (err error) {
	folder := filepath.Join(c.DataDir, "verify")
	if r.flags.lab {
		folder = filepath.Join(c.DataDir, "verify-lab")
	}
	c = node.LocalConfig(c, folder, r.flags.lab)
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
	options := node.Options{Log: log}
	if r.flags.lab {
		options = node.LabOptions(log)
	}
	n, err := node.Start(ctx, c, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.StopNode(ctx, n)) }()
	token, err := client.ReadToken(folder)
	if err != nil {
		return err
	}
	tenant, err := client.OpenTenant(ctx, client.NewAdmin(n.AdminURL, token), client.TenantOptions{
		File: filepath.Join(folder, "tenant.json"), Workspace: "verify", Credits: c.Limits.MaxRows,
	})
	if err != nil {
		return err
	}
	r.client = client.NewAPI(n.APIURL, tenant.Key, r.view.notice)
	r.memory, r.poll = newMemory(folder, r.input.sum), pollLocal
	return r.run(ctx)
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
