package wire

import (
	"net/netip"
	"time"

	"github.com/google/uuid"

	"rollcall/smtp"
	"rollcall/smtp/mx"
)

// AddressesMax bounds the probes of one Offer, so that a message stays under
// 64 KB: with local parts of 64 octets they take 37 KB, and the hosts at most 2 KB.
const AddressesMax = 500

// ControlOrdinal names control probes in an Offer and its answers; addresses number below it.
const ControlOrdinal = ^uint32(0)

// Version is the version of the messages between nodes. Raise it when a node of the version before would misread or
// miss something that it must know: nodes of different versions don't join. A new field that may be ignored needs no
// new version.
const Version = 4

// waitMax bounds the wait that a receiver may name: beyond it every address is given up anyway, and nothing overflows.
const waitMax = 366 * 24 * time.Hour

// TaskKey is a Task as a comparable value without its epoch.
type TaskKey struct {
	Verification uuid.UUID
	Domain       string
}

// Key returns the comparable form; a malformed verification id gives the zero UUID.
func (t *Task) Key() TaskKey {
	id, err := uuid.FromBytes(t.GetVerification())
	if err != nil {
		id = uuid.Nil
	}
	return TaskKey{Verification: id, Domain: t.GetDomain()}
}

// Hosts turns a route's hosts into their message form.
func Hosts(hosts []mx.Host) []*Host {
	out := make([]*Host, len(hosts))
	for i, h := range hosts {
		out[i] = &Host{Name: h.Name}
		for _, a := range h.Addrs {
			out[i].Addrs = append(out[i].Addrs, a.AsSlice())
		}
	}
	return out
}

// Addresses returns the host's usable IP addresses in order.
func (h *Host) Addresses() []netip.Addr {
	out := make([]netip.Addr, 0, len(h.GetAddrs()))
	for _, b := range h.GetAddrs() {
		if a, ok := netip.AddrFromSlice(b); ok {
			out = append(out, a)
		}
	}
	return out
}

// Verdict returns the outcome and the reason of an answer. Values of a newer program that this one doesn't know become
// smtp.Undecided and smtp.ReasonNone.
func (a *Answer) Verdict() (smtp.Outcome, smtp.Reason) {
	outcome, reason := smtp.Undecided, smtp.ReasonNone
	if n := a.GetOutcome(); n <= uint32(smtp.Error) {
		outcome = smtp.Outcome(n)
	}
	if n := a.GetReason(); n <= 255 && smtp.Reason(n).Known() {
		reason = smtp.Reason(n)
	}
	return outcome, reason
}

// Wait returns the wait of an answer, between 0 and a year.
func (a *Answer) Wait() time.Duration {
	return time.Duration(min(max(0, a.GetWaitMs()), waitMax.Milliseconds())) * time.Millisecond
}

// Left turns a future time into its message form, a duration from now in milliseconds: 0 for the zero time, and at
// least 1 for any other.
func Left(now, until time.Time) int64 {
	if until.IsZero() {
		return 0
	}
	return max(1, until.Sub(now).Milliseconds())
}

// Until is the inverse of Left at the time of receiving. A wait longer than a year is a year, and a negative one is
// none.
func Until(now time.Time, ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(min(ms, waitMax.Milliseconds())) * time.Millisecond)
}

// Millis turns a time into its message form; the zero time is 0.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Time is the inverse of Millis.
func Time(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
