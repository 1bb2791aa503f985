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

// Cluster is an admin.Cluster that answers what it is told to and notes what it is asked. Set changes its fields while
// it is asked.
type Cluster struct {
	Frames []admin.Membership // one for each question; the last one stays; one named "broken" is an error
	Rings  []admin.KeyResult
	Fails  error       // of every change
	OnAsk  func(n int) // called at each question for the members
	Added  admin.Secret

	mu    sync.Mutex
	asked []string // one line each
	times int      // questions for the members
}

// NoSuchKey is what a member says that lacks a key, but not when it lists its keys.
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

// noteCall returns the error of every change.
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

// Drain notes it.
func (c *Cluster) Drain(ctx context.Context, node uuid.UUID) error {
	return c.noteCall(ctx, "drain %.8s", node)
}

// Undrain notes it.
func (c *Cluster) Undrain(ctx context.Context, node uuid.UUID) error {
	return c.noteCall(ctx, "undrain %.8s", node)
}

// Forget notes it.
func (c *Cluster) Forget(ctx context.Context, node uuid.UUID) error {
	return c.noteCall(ctx, "forget %.8s", node)
}

// Keys notes the command and the length of its key, and returns the rings.
func (c *Cluster) Keys(ctx context.Context, k admin.KeyCommand) (rings []admin.KeyResult, err error) {
	c.Set(func() { c.Added, rings = k.Key, slices.Clone(c.Rings) })
	for i := range rings {
		if k.Op == admin.KeyList && rings[i].Error == NoSuchKey {
			rings[i].Error = ""
		}
	}
	return rings, c.noteCall(ctx, "%s %s %d", k.Op, k.Fingerprint, len(k.Key))
}

// Calls returns what was asked since the last time.
func (c *Cluster) Calls() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := strings.Join(c.asked, "; ")
	c.asked = nil
	return asked
}

// Set changes what it answers.
func (c *Cluster) Set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}
