package receiver

import (
	"slices"
	"time"

	"rollcall/actors/receiver/state"
	"rollcall/actors/wire"
)

// leaveWithin is how long sessions may end what they are asking when the place of
// a receiver has moved. A share that is given up is enforced by Comply, which may
// be sooner.
const leaveWithin = hardAfter

// depart ends the actor: all that could be told has been told.
type depart struct {
	fact   *state.Fact // to be kept before; nil: nothing
	inTime bool        // every session has ended by itself
}

// giveWay begins the end of a desk whose place has moved: nothing is begun any
// more, what waits is the clients' again, and what is on the wire is still answered.
func (d *desk) giveWay(now time.Time) {
	if d.leaving {
		return
	}
	d.letGo(now)
	d.leaving, d.leaveBy = true, now.Add(d.options.waits(leaveWithin))
	for _, l := range d.lanes {
		for l.Queued() > 0 {
			d.pop(l).chunk.open--
		}
	}
}

// planLeave decides what to do now on the way out.
func (d *desk) planLeave(now time.Time) ([]step, time.Time) {
	for _, s := range d.free {
		d.quit(s)
	}
	d.free = nil
	over := len(d.sessions) == 0 || !now.Before(d.leaveBy)
	for t := range d.tasks.busy {
		if over || t.open() == 0 {
			d.farewell(now, t)
		}
	}
	if over && !d.gone {
		d.gone = true
		d.steps = append(d.steps, d.departure(now))
	}
	steps, wake := d.steps, d.leaveBy
	d.steps = nil
	if d.gone {
		wake = time.Time{}
	}
	return steps, wake
}

// departure is the last step of all.
func (d *desk) departure(now time.Time) depart {
	last := depart{inTime: len(d.sessions) == 0}
	if d.options.Facts != nil && d.dirty {
		if fact, worth := d.note(now); worth {
			last.fact = &fact
		}
	}
	return last
}

// farewell gives a task's client the answers that are there, and then says that
// the rest is its own again.
func (d *desk) farewell(now time.Time, t *task) {
	if t.told || len(t.chunks) == 0 {
		return
	}
	t.told = true
	for _, c := range slices.Clone(t.chunks) {
		d.report(now, c)
	}
	d.options.Metrics.moved.Inc()
	d.emit(t.client, &wire.Moved{Task: t.chunks[0].named})
}

// farewells is what all clients are told when the actor ends at once.
func (d *desk) farewells(now time.Time) []step {
	d.steps = nil
	for t := range d.tasks.busy {
		d.farewell(now, t)
	}
	return d.steps
}
