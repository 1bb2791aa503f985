package domain

import (
	"slices"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Park asks a domain to stop and to export its state, so that the work can continue later. The answer is Parked or
// NotParked. Resume revokes Park. Leave makes the domain wait until the addresses on the wire are answered; then the
// answer is Parked.
type (
	Park      struct{}
	Resume    struct{}
	Leave     struct{}
	NotParked struct{}
)

// leaveWithin is how long a domain waits for addresses on the wire before it is parked. A receiver that moves to
// another node waits as long.
const leaveWithin = 2 * time.Second

// Parked is the answer to Park: the state with which the work continues. Times are Unix milliseconds of the wall clock.
// Addresses that were never answered are left out.
type Parked struct {
	Domain    string          `json:"domain"`
	Addresses []ParkedAddress `json:"addresses,omitempty"`
	Control   *ParkedControl  `json:"control,omitempty"` // nil: no control probe is asked
	// GreyWaits are the shortest waits, in milliseconds, after which a greylisted address passed, by the address of our
	// source.
	GreyWaits map[string]int64 `json:"grey_waits,omitempty"`
}

// ParkedAddress is an address that was answered and has no outcome yet.
type ParkedAddress struct {
	Ordinal  uint32        `json:"o"`
	Accepted bool          `json:"ok,omitempty"` // accepted, and waits for a control probe
	Since    int64         `json:"s"`            // time of the first answer
	Due      int64         `json:"d"`            // time of the next attempt
	Grey     int64         `json:"g,omitempty"`  // since when the address is greylisted at the source From
	From     string        `json:"f,omitempty"`  // empty: not greylisted, or the source has no address
	IsGrey   bool          `json:"ig,omitempty"`
	Reason   smtp.Reason   `json:"r,omitempty"` // why the address was deferred
	Waits    uint8         `json:"w,omitempty"`
	Marks    uint8         `json:"m,omitempty"`
	Case     evidence.Case `json:"-"`
}

// ParkedControl is the present control probe.
type ParkedControl struct {
	Local string         `json:"local"`
	Asked int            `json:"asked"`
	Again *ParkedAddress `json:"again,omitempty"` // the deferred control probe; nil: it isn't deferred
	Notes evidence.Case  `json:"-"`               // attempts at the control probes of this run
}

// park stops the work and exports the state. False: the domain can't be parked now.
func (pl *planner) park(now time.Time) (Parked, bool) {
	if len(pl.backlog.chunks) > 0 && pl.backlog.receiver.serves() {
		return Parked{}, false
	}
	k, until := &pl.controls, pl.quietUntil(now)
	if !until.After(now) || len(k.witnesses.doubted)+len(k.proven) > 0 || k.isRecalling() {
		return Parked{}, false
	}
	pl.holdWork(now, true)
	return pl.export(), true
}

// leaveWork stops offering, and takes back what hasn't begun.
func (pl *planner) leaveWork(now time.Time) {
	pl.held, pl.leaveBy = true, now.Add(leaveWithin)
	if b := &pl.backlog; b.receiver.reached && len(b.chunks) > 0 {
		b.addStep(tell{&wire.Cancel{Task: b.task, GiveBack: true}})
	}
}

// exportLeft exports the state after leaveWork, when no chunk is out or leaveBy has passed.
func (pl *planner) exportLeft(now time.Time) (Parked, bool) {
	if pl.leaveBy.IsZero() || len(pl.backlog.chunks) > 0 && now.Before(pl.leaveBy) {
		return Parked{}, false
	}
	pl.backlog.takeAllBack()
	return pl.export(), true
}

// export returns the state from which the work continues. No chunk is out.
func (pl *planner) export() Parked {
	out := Parked{Domain: pl.work.Domain, GreyWaits: map[string]int64{}}
	for address, at := range pl.retries.sources {
		if at.enough > 0 {
			out.GreyWaits[address] = at.enough.Milliseconds()
		}
	}
	if k := &pl.controls; k.asking && !k.witness {
		out.Control = &ParkedControl{Local: k.local, Asked: k.asked, Notes: evidence.Case{Attempts: k.notes}}
	}
	for _, p := range pl.retries.deferred {
		one := pl.retries.exportAddress(p)
		if p.ordinal != controlOrdinal {
			out.Addresses = append(out.Addresses, one)
		} else if out.Control != nil {
			out.Control.Again = &one
		}
	}
	for _, p := range pl.controls.accepted {
		one := pl.retries.exportAddress(p)
		one.Accepted = true
		out.Addresses = append(out.Addresses, one)
	}
	slices.SortFunc(out.Addresses, func(a, b ParkedAddress) int { return int(a.Ordinal) - int(b.Ordinal) })
	return out
}

func (r *retries) exportAddress(p pending) ParkedAddress {
	wall := func(d time.Duration) int64 { return r.start.Add(d).UnixMilli() }
	one := ParkedAddress{Ordinal: p.ordinal, Since: wall(p.since), Due: wall(p.due),
		Reason: p.reason, Waits: p.waits, Marks: p.marks, Case: p.readCase(make([]evidence.Attempt, p.kept))}
	if p.from != nil {
		one.IsGrey, one.Grey, one.From = true, wall(p.grey), p.from.address
	}
	return one
}

func (pl *planner) restore(now time.Time, left *Parked) {
	for source, wait := range left.GreyWaits {
		pl.retries.sourceOf(source).enough = time.Duration(wait) * time.Millisecond
	}
	if k := left.Control; k != nil && k.Local != "" {
		pl.controls.asking, pl.controls.local, pl.controls.asked = true, k.Local, max(k.Asked, 1)
		pl.controls.noteAttempts(k.Notes.Attempts)
		if k.Again != nil {
			pl.restoreOne(now, controlOrdinal, k.Again)
		} else {
			pl.controls.offerControl(now)
		}
	}
	known := make(map[uint32]*ParkedAddress, len(left.Addresses))
	for i := range left.Addresses {
		known[left.Addresses[i].Ordinal] = &left.Addresses[i]
	}
	fresh := make([]uint32, 0, len(pl.work.Ordinals))
	for _, ordinal := range pl.work.Ordinals { // leave out the addresses that are final by now
		if one := known[ordinal]; one != nil {
			pl.restoreOne(now, ordinal, one)
		} else {
			fresh = append(fresh, ordinal)
		}
	}
	pl.backlog.ordinals = fresh
}

func (pl *planner) restoreOne(now time.Time, ordinal uint32, one *ParkedAddress) {
	since := func(ms int64) time.Duration { return time.UnixMilli(ms).Sub(now) } // times count from now, the start
	p := pending{ordinal: ordinal, since: since(one.Since), due: since(one.Due), reason: one.Reason,
		waits: one.Waits, marks: one.Marks}
	if one.IsGrey {
		p.from, p.grey = pl.retries.sourceOf(one.From), since(one.Grey)
	}
	pl.retries.log.keepCase(&p, one.Case)
	if !one.Accepted {
		pl.retries.pushDeferred(p)
		return
	}
	last, _ := one.Case.Last()
	pl.controls.host = last.Host
	pl.controls.accepted = append(pl.controls.accepted, p)
}
