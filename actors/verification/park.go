package verification

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"rollcall/actors/domain"
	"rollcall/ledger"
	"rollcall/smtp/evidence"
)

const (
	// parkMin is how far off the next work must be for a verification to be parked: waking reads the file again, and
	// parking writes the ledger twice. It is longer than the waits that receivers name when they don't know the end,
	// such as that of an operator's pause, so that the end is noticed at once. Guess.
	parkMin = 2 * time.Minute

	// parkAfter is how long nothing could be done before it is parked: by then its domains have reported what they wait
	// for, and the customer sees it. Guess.
	parkAfter = 2500 * time.Millisecond

	// parkLongest is the longest time parked, so that changes by operators and receivers are noticed: a raised limit,
	// the end of a pause. Guess.
	parkLongest = time.Hour

	// parkedMax bounds the open addresses of a parked verification, and those with a state of a drained one: the state
	// of more may not fit into the ledger. Guess.
	parkedMax = 50_000

	// unparkedFor is the pause after a failed try to park. Guess.
	unparkedFor = time.Minute

	// parkedVersion is the version of the stored state. A state of another version isn't read: its addresses are asked
	// again.
	parkedVersion = 1

	// parkedRawMax bounds a state before compression. Guess: ten times what fits.
	parkedRawMax = 10 * ledger.ParkedMax
)

// parking is a verification that is being parked.
type parking struct {
	missing  map[string]struct{} // domains that haven't sent their state
	left     []domain.Parked
	eta      ledger.Estimate
	state    []byte // the packed state; nil: not made yet
	writing  bool
	retryAt  time.Time
	failures int
}

// leftover is the stored state of a parked verification.
type leftover struct {
	Version int             `json:"version"`
	Begun   int64           `json:"begun"` // when the work began, Unix milliseconds, from which patience counts
	Domains []domain.Parked `json:"domains"`
	Cases   [][]byte        `json:"cases"` // of the domains, packed
}

// casesOf returns the cases of a domain in the order of packing.
func casesOf(d *domain.Parked) []*evidence.Case {
	var list []*evidence.Case
	for i := range d.Addresses {
		list = append(list, &d.Addresses[i].Case)
	}
	if d.Control != nil {
		if d.Control.Again != nil {
			list = append(list, &d.Control.Again.Case)
		}
		list = append(list, &d.Control.Notes)
	}
	return list
}

// errTooMuch says that a state doesn't fit into the ledger.
var errTooMuch = errors.New("verification: too large to be parked")

func (l *leftover) pack() ([]byte, error) {
	addresses := 0
	for i := range l.Domains {
		addresses += len(l.Domains[i].Addresses)
	}
	if addresses > parkedMax {
		return nil, errTooMuch
	}
	var batch []evidence.Entry
	size := 0
	flush := func() error {
		packed, err := evidence.Pack(batch)
		l.Cases = append(l.Cases, packed)
		batch, size = batch[:0], 0
		return err
	}
	for i := range l.Domains {
		for _, c := range casesOf(&l.Domains[i]) {
			size += evidence.Size(c)
			if len(batch) == evidence.EntriesMax || size > evidence.RawMax && len(batch) > 0 {
				if err := flush(); err != nil {
					return nil, fmt.Errorf("pack cases: %w", err)
				}
				size = evidence.Size(c)
			}
			batch = append(batch, evidence.Entry{Ordinal: int64(len(batch)), Case: *c})
		}
	}
	if err := flush(); err != nil {
		return nil, fmt.Errorf("pack cases: %w", err)
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("write state: %w", err)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err = w.Write(text); err == nil {
		err = w.Close()
	}
	if err == nil && (out.Len() > ledger.ParkedMax || len(text) > parkedRawMax) {
		err = errTooMuch
	}
	return out.Bytes(), err
}

// unpack reads the stored form; nil: it has another version.
func unpack(state []byte) (*leftover, error) {
	r, err := gzip.NewReader(bytes.NewReader(state))
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(r, parkedRawMax+1))
	if err == nil && len(text) > parkedRawMax {
		err = errTooMuch
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	var l leftover
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	if l.Version != parkedVersion {
		return nil, nil
	}
	var list []*evidence.Case
	for i := range l.Domains {
		list = append(list, casesOf(&l.Domains[i])...)
	}
	for _, packed := range l.Cases {
		err := evidence.Unpack(packed, func(e evidence.Entry) error {
			if len(list) == 0 {
				return errors.New("more cases than addresses")
			}
			*list[0], list = e.Case, list[1:]
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read cases: %w", err)
		}
	}
	if len(list) > 0 {
		return nil, errors.New("read cases: fewer than addresses")
	}
	l.Cases = nil
	return &l, nil
}

// park gives the verification back when its next work is far away.
func (a *Actor) park(c actor.Context, now time.Time) {
	if p := a.parking; p != nil {
		if p.state != nil && !p.writing && !now.Before(p.retryAt) {
			a.writeParked(c)
		}
		return
	}
	until, quiet := a.plan.quiet()
	if !quiet || until.Sub(now) < parkMin {
		a.quietAt = now
	}
	switch {
	case now.Sub(a.quietAt) < parkAfter || now.Before(a.parkAt):
		return
	case a.domains.held || a.settlement.underWay || a.marks.underWay || a.plan.remaining() > parkedMax:
		return
	}
	a.askParked(c, earliest(until, now.Add(parkLongest)), domain.Park{})
}

// askParked asks the domains for the state from which their work continues later.
func (a *Actor) askParked(c actor.Context, next time.Time, ask any) {
	seen := a.recentStatus(time.Now())
	a.parking = &parking{missing: map[string]struct{}{}, eta: ledger.Estimate{
		Next: next, Expected: whole(seen.finish), Why: seen.sentence()}}
	for _, left := range a.plan.left { // of domains that weren't begun since the last time
		a.parking.left = append(a.parking.left, *left)
	}
	for name, pid := range a.domains.pids {
		a.parking.missing[name] = struct{}{}
		c.Send(pid, ask)
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// parked notes the states of a domain; a domain that ended meanwhile has none. After the last domain the state is
// packed and written to the ledger, in a drain once everything known is settled.
func (a *Actor) parked(c actor.Context, name string, states ...domain.Parked) {
	p := a.parking
	if p == nil {
		return
	}
	if _, missing := p.missing[name]; !missing {
		return
	}
	delete(p.missing, name)
	if p.left = append(p.left, states...); len(p.missing) > 0 {
		return
	}
	l := leftover{Version: parkedVersion, Begun: a.deadline.Add(-patience).UnixMilli(), Domains: p.left}
	var state []byte
	p.writing = true
	a.runBeside(c, func() (err error) {
		state, err = l.pack()
		return err
	}, func(c actor.Context, now time.Time, err error) {
		p.writing = false
		switch {
		case a.parking != p: // parking was given up meanwhile
		case err != nil:
			if !errors.Is(err, errTooMuch) {
				a.options.Log.Error("verification not parked", "verification", a.state.ID, "err", err)
			}
			a.unpark(c, now, parkLongest)
		default:
			p.state, p.left = state, nil
			if a.mode == working {
				a.writeParked(c)
			}
		}
	})
}

// writeParked tells the ledger, repeatedly if calls fail: an earlier one may have been committed, and with it the lease
// is gone.
func (a *Actor) writeParked(c actor.Context) {
	p := a.parking
	p.writing = true
	var state ledger.Verification
	a.callLedger(c, func(ctx context.Context) (err error) {
		state, err = a.options.Book.Park(ctx, a.lease, p.eta, p.state)
		return err
	}, func(c actor.Context, now time.Time, err error) {
		p.writing = false
		switch {
		case a.parking != p || a.mode == ended:
		case err == nil && state.Status == ledger.Cancelling:
			a.parking = nil
			a.beginCancel(state)
		case err == nil:
			a.options.Metrics.parked.Inc()
			a.options.Log.Info("verification parked", "verification", a.state.ID, "until", p.eta.Next,
				"left", a.plan.remaining())
			a.end(c)
		case !a.endIfRefused(c, err):
			p.failures++
			p.retryAt = now.Add(pauseAfter(p.failures))
		}
	})
}

// unpark resumes a verification that couldn't be parked.
func (a *Actor) unpark(c actor.Context, now time.Time, pause time.Duration) {
	if a.mode != working || a.parking == nil || a.parking.state != nil {
		return // the ledger may have it
	}
	a.parking, a.parkAt = nil, now.Add(pause)
	for _, pid := range a.domains.pids {
		c.Send(pid, domain.Resume{})
	}
}

// takeUp reads the state of a parked verification. If it can't be read, its addresses are asked again.
func takeUp(ctx context.Context, o Options, v ledger.Verification) (*leftover, error) {
	if v.Epoch <= 1 {
		return nil, nil // it never had an owner
	}
	state, err := o.Book.Parked(ctx, v.ID)
	if err != nil || state == nil {
		return nil, err
	}
	left, err := unpack(state)
	if err != nil {
		o.Log.Error("state of a parked verification cannot be read: its addresses are asked again",
			"verification", v.ID, "err", err)
	}
	return left, nil
}
