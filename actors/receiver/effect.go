package receiver

import (
	"errors"
	"net/netip"
	"time"

	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// errFamily says that a host has no address that an operator lets us dial.
var errFamily = errors.New("addresses of this family are not to be dialled (address_family)")

// reaches says whether addresses of a host's family may be dialled.
func reaches(f throttle.Family, at netip.Addr) bool {
	switch f {
	case throttle.FamilyV4:
		return at.Unmap().Is4()
	case throttle.FamilyV6:
		return !at.Unmap().Is4()
	}
	return true
}

// mode is the TLS mode for the next session of a lane: what the operator wants, or what
// its hosts were found to need.
func (d *desk) mode(now time.Time, l *lane) smtp.TLSMode {
	switch d.allowance.TLS {
	case throttle.TLSRequired:
		return smtp.TLSRequired
	case throttle.TLSOff:
		return smtp.TLSOff
	}
	return l.mode(now)
}

// heed takes what an operator wants of our sources.
func (d *desk) heed() {
	for _, o := range d.outlets {
		pause := d.options.Sources.Limits(o.index).Pause
		if pause == throttle.PauseYes && o.pause != pause {
			d.halt(func(s *session) bool { return s.outlet == o })
		}
		o.pause = pause
	}
}

// fit says whether a source may be used toward this receiver, as far as it is not the
// receiver that keeps it away; and if not, until when and why.
func (d *desk) fit(now time.Time, o *outlet) status.Blocked {
	if o.pause == throttle.PauseYes || o.pause == throttle.PauseDrain {
		return status.Blocked{Cause: wire.Cause_PAUSED}
	}
	today, waits := d.options.clock(now), d.tasks.queue.Queued() > 0
	if left, next := d.options.Sources.Remaining(o.index, d.key, today, waits); left == 0 {
		return status.Blocked{Cause: wire.Cause_NO_SOURCE, Until: now.Add(next)}
	}
	if ok, until := d.options.Sources.Usable(o.index, d.key, now); !ok {
		return status.Blocked{Cause: wire.Cause_NO_SOURCE, Until: until}
	}
	return status.Blocked{}
}

// idle says whether a lane of which no host can be dialled only waits for sources of ours
// that rest, are paused, or have had their day, and until when; zero: it is not known.
func (d *desk) idle(now time.Time, l *lane) (bool, time.Time) {
	var soonest time.Time
	waits := false
	for _, c := range l.candidates {
		if now.Before(c.until) || !reaches(d.allowance.Family, c.at) {
			continue
		}
		for _, o := range d.outlets {
			if !o.Reaches(c.at) || l.away(now, o) != nil {
				continue
			}
			if b := d.fit(now, o); !b.Free() {
				waits = true
				if soonest.IsZero() || b.Until.Before(soonest) {
					soonest = b.Until
				}
			}
		}
	}
	return waits, soonest
}

// closeSession lets a session end after what is on the wire, and says whether there is one.
func (d *desk) closeSession(id int) bool {
	s := d.sessions[id]
	if s == nil || s.closing {
		return false
	}
	s.doomed = true
	s.socket.halted.Store(true)
	return true
}
