package mx

import (
	"net/netip"
	"time"

	"rollcall/smtp"
)

// Host is one mail host of a domain with the addresses it may be reached at.
type Host struct {
	Name       string       // lower case, no final dot
	Preference uint16       // RFC 5321 §5.1: lower first
	Addrs      []netip.Addr // in the order to try; at most 4
}

// Route is where mail for a domain goes, or the plain answer that it goes nowhere.
type Route struct {
	Domain string // lower-case A-label

	// Hosts are in the order to try; at most 5. Empty exactly when NoMail is set.
	Hosts []Host

	// NoMail is set when DNS says for certain that no mail can be delivered:
	// smtp.DomainNotFound or smtp.NoMailService. Both mean invalid.
	NoMail smtp.Reason

	// Receiver is the key of the receiver actor: the registrable domain of the
	// best host, lower case. Empty when NoMail is set.
	Receiver string

	Expires time.Time // from the TTLs, within the resolver's bounds
}
