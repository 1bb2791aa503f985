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
	// parkMin is how far the next work must be for a verification to be parked: its file is read
	// anew when it wakes, and the ledger is written twice. It is more than receivers name
	// that do not know the end of a wait, such as that of a pause by an operator, so that it
	// is noticed at once. Guess.
	parkMin = 2 * time.Minute

	// parkAfter is how long nothing can have been done before it is parked: its domains have told by
	// then what they wait for, which is what the customer is told meanwhile. Guess.
	parkAfter = 2500 * time.Millisecond

	// parkLongest is how long one rests at most, so that it follows what operators and receivers
	// change: a limit that was raised, a pause that ended. Guess.
	parkLongest = time.Hour

	// parkedMax bounds the open addresses of a verification that is parked: a state of more may
	// not fit into the ledger. Guess.
	parkedMax = 50_000

	// unparkedFor is how long it is not tried again after it could not be done. Guess.
	unparkedFor = time.Minute

	// parkedVersion is of what is kept. What another program wrote in another form is not read:
	// its addresses are asked anew.
	parkedVersion = 1

	// parkedRawMax bounds a state before it is compressed. Guess: ten times what fits.
	parkedRawMax = 10 * ledger.ParkedMax
)

// parking is a verification on its way out.
type parking struct {
	missing  map[string]struct{} // domains that have not said what is left
	left     []domain.Parked
	eta      ledger.Outlook
	state    []byte // for the ledger; nil: not made yet
	writing  bool
	retryAt  time.Time
	failures int
}

// leftover is what is kept of a parked verification.
type leftover struct {
	Version int             `json:"version"`
	Begun   int64           `json:"begun"` // when the work began, Unix milliseconds: its patience goes on
	Domains []domain.Parked `json:"domains"`
	Cases   [][]byte        `json:"cases"` // of the domains, packed
}

// casesOf are those of a domain, in the order in which they are packed.
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

// errTooMuch says that a state does not fit into the ledger.
var errTooMuch = errors.New("verification: too much to be parked")

// pack returns the stored form.
func (l *leftover) pack() ([]byte, error) {
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

// unpack reads the stored form; nil when it is of another program.
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
	case a.held || a.settling || a.marking || a.plan.remaining() > parkedMax:
		return
	}
	seen := a.survey(now, true)
	a.parking = &parking{missing: map[string]struct{}{}, eta: ledger.Outlook{
		Next: earliest(until, now.Add(parkLongest)), Expected: whole(seen.finish), Why: seen.sentence()}}
	for name, pid := range a.domains {
		a.parking.missing[name] = struct{}{}
		c.Send(pid, domain.Park{})
	}
}

// earliest is the earlier of two times.
func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// parked takes what a domain has left; with the last one the ledger is told.
func (a *Actor) parked(c actor.Context, m domain.Parked) {
	p := a.parking
	if p == nil || p.state != nil {
		return
	}
	if _, missing := p.missing[m.Domain]; !missing {
		return
	}
	delete(p.missing, m.Domain)
	p.left = append(p.left, m)
	if len(p.missing) > 0 {
		return
	}
	l := leftover{Version: parkedVersion, Begun: a.deadline.Add(-patience).UnixMilli(), Domains: p.left}
	a.beside(c, func() any {
		state, err := l.pack()
		return packedResult{p, state, err}
	})
}

// packed goes on with a state that is made.
func (a *Actor) packed(c actor.Context, now time.Time, m packedResult) {
	if a.parking != m.of || a.mode != working {
		return // it was given up meanwhile
	}
	if m.err != nil {
		if !errors.Is(m.err, errTooMuch) {
			a.options.Log.Error("verification not parked", "verification", a.state.ID, "err", m.err)
		}
		a.unpark(c, now, parkLongest)
		return
	}
	m.of.state, m.of.left = m.state, nil
	a.writeParked(c)
}

// writeParked tells the ledger, again and again if it has to be: nobody knows then whether it was
// done before, and with it the lease is gone.
func (a *Actor) writeParked(c actor.Context) {
	p := a.parking
	p.writing = true
	a.call(c, func(ctx context.Context) any {
		state, err := a.options.Book.Park(ctx, a.lease, p.eta, p.state)
		return parkResult{stateResult{state, err}, p}
	})
}

// given ends the actor of a verification that is parked.
func (a *Actor) given(c actor.Context, now time.Time, m parkResult) {
	p := m.of
	p.writing = false
	if a.parking != p || a.mode == ended {
		return
	}
	switch {
	case m.err == nil && m.state.Status == ledger.Cancelling:
		a.parking = nil
		a.looked(m.stateResult)
	case m.err == nil:
		a.options.Metrics.parked.Inc()
		a.options.Log.Info("verification parked", "verification", a.state.ID, "until", p.eta.Next,
			"left", a.plan.remaining())
		a.end(c)
	case !a.refused(c, m.err):
		p.failures++
		p.retryAt = now.Add(min(200*time.Millisecond<<min(p.failures, 5), retryMax))
	}
}

// unpark goes on with a verification that is not parked after all.
func (a *Actor) unpark(c actor.Context, now time.Time, rest time.Duration) {
	if a.parking == nil || a.parking.state != nil {
		return // it may be in the ledger
	}
	a.parking, a.parkAt = nil, now.Add(rest)
	for _, pid := range a.domains {
		c.Send(pid, domain.Resume{})
	}
}

type (
	packedResult struct {
		of    *parking
		state []byte
		err   error
	}
	parkResult struct {
		stateResult
		of *parking
	}
)

// takeUp reads what is kept of a verification that was parked. What cannot be read is left: its
// addresses are asked anew.
func takeUp(ctx context.Context, o Options, v ledger.Verification) (*leftover, error) {
	if v.Epoch <= 1 {
		return nil, nil // it was never anybody's
	}
	state, err := o.Book.Parked(ctx, v.ID)
	if err != nil || state == nil {
		return nil, err
	}
	left, err := unpack(state)
	if err != nil {
		o.Log.Error("what was left of a parked verification cannot be read: its addresses are asked anew",
			"verification", v.ID, "err", err)
	}
	return left, nil
}
