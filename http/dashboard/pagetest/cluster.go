package pagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"rollcall/http/admin"
)

// Cluster is an admin.Cluster with prepared answers that records calls. Set changes its fields while calls may run.
type Cluster struct {
	Frames []admin.Membership // one for each question, then always the last; one named "broken" is an error
	Rings  []admin.KeyResult
	Fails  error       // of every change
	OnAsk  func(n int) // called at each question for the members
	Added  admin.Secret

	mu    sync.Mutex
	asked []string // one line each
	times int      // questions for the members
}

// NoSuchKey is the error of a member that lacks a key. The member does not return it when it lists its keys.
const NoSuchKey = "no such key"

// Members returns the next frame.
func (c *Cluster) Members(context.Context) (admin.Membership, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frame := c.Frames[min(c.times, len(c.Frames)-1)]
	if c.times++; c.OnAsk != nil {
		c.OnAsk(c.times)
	}
	if frame.Cluster == "broken" {
		return frame, errors.New("broken")
	}
	return frame, nil
}

// noteCall records a call, and returns the error that every change returns.
func (c *Cluster) noteCall(ctx context.Context, format string, values ...any) error {
	line := fmt.Sprintf(format, values...)
	if _, bounded := ctx.Deadline(); !bounded {
		line += ", for ever"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, line)
	return c.Fails
}

// Drain records the call.
func (c *Cluster) Drain(ctx context.Context, node uuid.UUID) error {
	return c.noteCall(ctx, "drain %.8s", node)
}

// Undrain records the call.
func (c *Cluster) Undrain(ctx context.Context, node uuid.UUID) error {
	return c.noteCall(ctx, "undrain %.8s", node)
}

// Forget records the call.
func (c *Cluster) Forget(ctx context.Context, node uuid.UUID) error {
	return c.noteCall(ctx, "forget %.8s", node)
}

// Keys records the command and the length of its key, and returns the rings.
func (c *Cluster) Keys(ctx context.Context, k admin.KeyCommand) (rings []admin.KeyResult, err error) {
	c.Set(func() { c.Added, rings = k.Key, slices.Clone(c.Rings) })
	for i := range rings {
		if k.Op == admin.KeyList && rings[i].Error == NoSuchKey {
			rings[i].Error = ""
		}
	}
	return rings, c.noteCall(ctx, "%s %s %d", k.Op, k.Fingerprint, len(k.Key))
}

// Calls returns the calls since the last time.
func (c *Cluster) Calls() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := strings.Join(c.asked, "; ")
	c.asked = nil
	return asked
}

// Set changes the answers.
func (c *Cluster) Set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}
