package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/actors/verification"
	"rollcall/ledger"
)

const (
	// leaseTTL is how long the work of a dead node waits. renewEvery leaves three tries to renew, and leaseMargin
	// before the end, by our own clock, we stop the work ourselves.
	leaseTTL    = 20 * time.Second
	renewEvery  = 5 * time.Second
	leaseMargin = 5 * time.Second

	// renewWithin bounds one renewal, so that after one without an answer there is time for another.
	renewWithin = (leaseTTL - leaseMargin) / 2
)

type renewing struct {
	underWay bool
	late     bool      // the next one is due while one is under way
	sent     time.Time // when the last good one was
}

// releaseOldLeases ends the leases of an earlier process of this node, so that their work needn't wait until they
// expire. It comes before the first lease, which it would end too.
func (s *shell) releaseOldLeases(c actor.Context) {
	s.call(c, s.ctx, func(ctx context.Context) error {
		_, err := s.options.Book.Renew(ctx, s.options.Node, 0)
		return err
	}, func(c actor.Context, _ time.Time, err error) {
		s.ready = true
		if s.stopping {
			return
		}
		if err != nil {
			s.options.Log.Warn("leases of an earlier process not returned, they expire", "err", err)
		}
		for _, round := range []any{search{}, renew{}, sweep{}} {
			c.Send(c.Self(), round)
		}
	})
}

// expire drops every lease that, by our own clock, may run out before it is renewed: another node may take it then.
func (s *shell) expire(c actor.Context, now time.Time) {
	for id, l := range s.leased {
		since := l.asked
		if s.renewal.sent.After(since) {
			since = s.renewal.sent
		}
		if now.Sub(since) >= leaseTTL-leaseMargin {
			s.options.Log.Warn("lease not renewed in time", "verification", id, "epoch", l.epoch)
			s.lose(c, id)
		}
	}
}

// renew prolongs all leases in one statement.
func (s *shell) renew(c actor.Context, now time.Time) {
	s.checkCancelled(c) // for a cancel that was asked at another node
	if s.renewal.underWay {
		s.renewal.late = true
		return
	}
	s.renewal.underWay, s.renewal.late = true, false
	var leases []ledger.Lease
	sent := now
	s.call(c, s.ctx, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, renewWithin)
		defer cancel()
		leases, err = s.options.Book.Renew(ctx, s.options.Node, leaseTTL)
		return err
	}, func(c actor.Context, now time.Time, err error) {
		s.renewal.underWay = false
		if err != nil {
			s.options.Log.Warn("leases not renewed", "err", err)
		} else {
			s.renewal.sent = sent
			s.compareLeases(c, leases)
		}
		if s.renewal.late && !s.draining {
			s.renew(c, now)
		}
	})
}

// compareLeases compares our leases in the ledger with what we work on.
func (s *shell) compareLeases(c actor.Context, leases []ledger.Lease) {
	ours := make(map[uuid.UUID]int64, len(leases))
	for _, l := range leases {
		ours[l.Verification] = l.Epoch
		_, known := s.leased[l.Verification]
		if !known && !s.search.underWay && !s.noting[l.Verification] { // returned first, the crash would not be noted
			s.release(c, l.Verification, l.Epoch)
		}
	}
	for id, l := range s.leased {
		if ours[id] != l.epoch && l.came.Before(s.renewal.sent) {
			s.lose(c, id)
		}
	}
}

// lose ends the work on a verification whose lease is gone.
func (s *shell) lose(c actor.Context, id uuid.UUID) {
	s.options.Metrics.lost.Inc()
	if l := s.leased[id]; l.pid != nil {
		c.Send(l.pid, verification.Lost{})
		return
	}
	s.forget(id)
	s.admission.leave(id)
}

func (s *shell) release(c actor.Context, id uuid.UUID, epoch int64) {
	l := ledger.Lease{Verification: id, Node: s.options.Node, Epoch: epoch}
	s.call(c, s.ctx, func(ctx context.Context) error { return s.options.Book.Release(ctx, l) },
		func(_ actor.Context, _ time.Time, err error) {
			if err != nil && !errors.Is(err, ledger.ErrStaleEpoch) {
				s.options.Log.Warn("lease not returned, it expires", "verification", id, "epoch", epoch, "err", err)
			}
		})
}
