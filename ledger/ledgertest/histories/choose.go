package histories

import (
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// next chooses what to ask; false: nothing more.
func (c *client) next() (call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return call{}, false
	}
	c.left--
	workspace := c.random.IntN(workspaces)
	active := c.active()
	switch p := c.random.IntN(100); {
	case p < 4 || len(active) < activeMax && p < 12:
		return c.newFile(workspace), true
	case p < 17:
		return c.newGrant(workspace), true
	case p < 22:
		return call{kind: balance, workspace: workspace}, true
	case p < 24:
		return call{kind: history, workspace: workspace, limit: 1 + c.random.IntN(4)}, true
	case p < 25:
		return call{kind: renew, node: c.number}, true
	case p < 30 || len(active) == 0:
		return c.newLease(), true
	case p < 34:
		// Also one that is long over: a late answer, or an old page.
		return c.oneStep(c.known[c.random.IntN(len(c.known))]), true
	default:
		return c.oneStep(active[c.random.IntN(len(active))]), true
	}
}

// active are the newest files that are not known to be final.
func (c *client) active() []*known {
	var list []*known
	for i := len(c.known) - 1; i >= 0 && len(list) < activeMax; i-- {
		if !c.known[i].v.Status.Final() {
			list = append(list, c.known[i])
		}
	}
	return list
}

// newFile asks for a verification: a new one, or one of the last few again.
func (c *client) newFile(workspace int) call {
	ids := &c.identities[workspace]
	if len(*ids) == 0 || c.random.IntN(2) == 0 {
		*ids = append(*ids, c.id())
	}
	q := call{kind: create, workspace: workspace, file: c.id(), bytes: 6}
	q.identity = (*ids)[len(*ids)-1-c.random.IntN(min(3, len(*ids)))]
	if c.random.IntN(10) == 0 {
		q.bytes = 7
	}
	return q
}

// newGrant asks for credits: new ones, or one of the last few grants again.
func (c *client) newGrant(workspace int) call {
	ids := &c.grants[workspace]
	if len(*ids) == 0 || len(*ids) < grantsMax && c.random.IntN(2) == 0 {
		*ids = append(*ids, c.id())
	}
	q := call{kind: grant, workspace: workspace}
	q.grant = len(*ids) - 1 - c.random.IntN(min(3, len(*ids)))
	q.grantID = (*ids)[q.grant]
	q.credits = int64(4 + q.grant%9)
	if c.random.IntN(20) == 0 {
		q.credits++
	}
	return q
}

// newLease asks for work, mostly for longer than the history takes.
func (c *client) newLease() call {
	return call{kind: lease, node: c.number, limit: 1 + c.random.IntN(3), expired: c.random.IntN(4) == 0}
}

// id makes a random one, from the seed.
func (r *recorder) id() (id uuid.UUID) {
	for i := range id {
		id[i] = byte(r.random.Uint32())
	}
	return id
}

// oneStep chooses a call about one file: mostly one that brings it on.
func (c *client) oneStep(k *known) call {
	q := call{workspace: k.workspace, file: k.id}
	r := c.random
	if len(k.leases) > 0 {
		newest := len(k.leases) - 1
		if r.IntN(6) == 0 {
			newest = r.IntN(len(k.leases)) // an old one
		}
		q.node, q.epoch = k.leases[newest].node, k.leases[newest].epoch
	}
	if q.epoch == 0 {
		q.node = c.number
	}
	switch p := r.IntN(100); {
	case p < 8:
		q.kind = verification
	case p < 12:
		q.kind = results
	case p < 14:
		q.kind = cancel
	case p < 16:
		q.kind = finishCancel
	case p < 18:
		q.kind = release
	case p < 21:
		if q.kind = wait; r.IntN(2) == 0 {
			q.due, q.next = dueLater, time.Unix(4_000_000_000, 0)
		}
	case p < 25 && len(k.sent) > 0:
		return k.sent[r.IntN(len(k.sent))]
	case k.v.Status == ledger.Uploading:
		c.bring(k, &q)
	case q.epoch < k.v.Epoch || q.epoch == 0 && k.v.State().Runnable():
		return c.newLease()
	case k.v.Status == ledger.Preparing:
		q.kind, q.total = prepare, int64(1+r.IntN(12))
		if r.IntN(12) == 0 {
			q.kind = refuse
		}
	case k.v.State().Funded():
		c.finish(k, &q)
	default:
		q.kind = verification
	}
	return q
}

// bring uploads some of a file.
func (c *client) bring(k *known, q *call) {
	switch p := c.random.IntN(20); {
	case p == 0:
		q.kind = uploadState
	case p < 4 || k.writer == 0:
		q.kind = openUpload
	default:
		q.kind, q.writer, q.offset, q.bytes = appendChunk, k.writer, k.durable, max(1, min(3, k.v.Bytes-k.durable))
		if p == 19 {
			q.offset, q.writer = int64(3*c.random.IntN(3)), k.writer-int64(c.random.IntN(2))
		}
	}
}

// finish settles some of a file.
func (c *client) finish(k *known, q *call) {
	if k.v.Status == ledger.Cancelling && c.random.IntN(3) == 0 {
		q.kind = finishCancel
		return
	}
	q.kind = settle
	q.number = k.v.Settlements + 1
	if c.random.IntN(12) == 0 {
		q.number += int64(c.random.IntN(3)) - 1
	}
	q.first = batchSize * (q.number - 1)
	n := min(batchSize, k.v.Total-q.first)
	if q.number < 1 || n < 1 {
		q.kind = verification // nothing is left, as far as known
		return
	}
	for range n {
		q.outcomes += string(someOutcome(c.random))
	}
	k.sent = append(k.sent, *q)
}

// someOutcome is often unknown, so that credits come back.
func someOutcome(r *rand.Rand) byte {
	return "vvvicuuue"[r.IntN(9)]
}
