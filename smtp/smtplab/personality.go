package smtplab

import (
	"time"

	"rollcall/smtp"
)

// Shape is the DNS of a domain.
type Shape uint8

// The shapes. D is the domain, and "mx1" is mx1.D.
const (
	OneMX            Shape = iota // MX mx1
	TwoMX                         // MX mx1, mx2
	FirstDown                     // MX mx1, mx2; nothing listens at mx1
	AllDown                       // MX mx1; nothing listens there
	NullMX                        // a null MX alone (RFC 7505 §3)
	NullMXMore                    // a null MX beside MX mx1, which RFC 7505 §3 forbids
	ImplicitMX                    // no MX, but an address (RFC 5321 §5.1)
	DomainAlias                   // D is a CNAME of a name with MX mx1
	HostAlias                     // the MX is a CNAME of mx1, which RFC 2181 §10.3 forbids
	AliasLoop                     // D is a CNAME of a name that is a CNAME of D
	LostMX                        // the MX has no address
	InsideMX                      // the MX has only private addresses
	NoDomain                      // NXDOMAIN
	NoData                        // the name exists without MX and address
	ServerFails                   // SERVFAIL
	Refuses                       // REFUSED
	Silent                        // no answer at all
	OnlyTCP                       // MX mx1; every answer over UDP is truncated
	LiteralMX                     // the only MX is an IP address as a name, which is no host name
	LiteralMXMore                 // the same beside MX mx1
	ManyMX                        // 110 MX records; mx1 is the best one
	ManyAddresses                 // MX mx1 with 1,000 addresses; only the first one listens
	FirstAddressDown              // MX mx1 with two addresses; only the second one listens
	HostChain10                   // the MX is the first of 10 CNAMEs to mx1
	HostChain11                   // the MX is the first of 11 CNAMEs to mx1
	DomainChain16                 // D is the first of 16 CNAMEs to a name with MX mx1
	DomainChain17                 // D is the first of 17 CNAMEs to a name with MX mx1
	OnlyIPv6                      // the MX has only the address ::1; one receiver for all such domains
	AlsoInside                    // MX mx1 with an address, and an IPv6 address that nobody may dial
	shapes
)

// Break is what a receiver does instead of a reply at Personality.BreakAt.
type Break uint8

// The ways to break.
const (
	BreakNone     Break = iota
	BreakSilent         // sends nothing more and keeps the connection open
	BreakDrop           // closes the connection
	BreakReset          // resets the connection
	BreakEndless        // a reply whose lines never end
	BreakLine           // a line that never ends
	BreakGarbage        // an answer that is not SMTP, then closes
	BreakSay            // sends BreakWords as they are, then closes
	BreakSayReset       // sends BreakWords as they are, then resets the connection
	BreakHalf           // closes its own side only and reads on
	BreakEcho           // greets, then sends back what it gets
	BreakWindow         // greets, then reads nothing more, so that the window of TCP closes
	BreakEarly          // sends BreakWords after its reply, in a separate packet, and goes on
	BreakTwice          // sends the opposite after its reply in the same packet, and goes on
	BreakBehind         // sends BreakWords after its reply, then closes
)

// TLS is how a receiver handles STARTTLS (RFC 3207).
type TLS uint8

// The ways to handle STARTTLS.
const (
	TLSNone        TLS = iota // not offered
	TLSSelfSigned             // offered, with a self-signed certificate
	TLSRequired               // the same, and MAIL is refused without it
	TLSRefused                // offered, then refused with 454
	TLSBroken                 // offered, accepted, then no handshake but text
	TLSStalled                // offered, accepted, then silence
	TLSInjected               // offered; a reply in clear follows the 220
	TLSExpired                // offered, with an expired certificate
	TLSRightName              // offered, with its own certificate for the right host name
	TLSWrongName              // offered, with a certificate for another host
	TLSAgain                  // offered, and once more inside TLS
	TLSGarbage                // offered, accepted, then bytes without meaning
	TLSFlood                  // offered, accepted, then empty TLS records without end
	TLSRenegotiate            // offered, with TLS 1.2; asks for a new handshake as soon as one is done
)

// Guard is a receiver's action against clients that ask for many addresses.
type Guard uint8

// The guards.
const (
	GuardNone    Guard = iota
	GuardErrors        // the nth error of a session is replaced by 421 (chasquid)
	GuardSlow          // errors over n wait, twice n end the session with 421 (Postfix)
	GuardHalf          // more than n RCPTs in a transaction with less than half good: the rest is refused (Exim)
	GuardHarvest       // n refused in an hour from one client: 550 for all, and the connection ends (Cisco)
	GuardSilent        // n refused in an hour from one client: the rest is accepted (Cisco, work queue)
	GuardShare         // over n RCPTs in a session, GuardPercent refused: dropped, blocked for 3 hours (Forcepoint)
	GuardPolicy        // n refused in an hour, or another hello name: 450 for an hour (IONOS)
	GuardWindow        // over n and GuardPercent of the RCPTs of an hour refused: 451 for an hour (Symantec)
	GuardRow           // n refused in a row end the session, a good one resets (NoSpamToday)
	GuardTx            // more than n transactions without a good RCPT, none with one: 550 at MAIL (mox)
	GuardExcess        // n refused in an hour: 421 for an hour, and 553 for clients that return within it (Yahoo, older)
)

// Block is which clients a receiver refuses by source address.
type Block uint8

// The blocks.
const (
	BlockNone  Block = iota
	BlockFirst       // the source that connected first, for ever; all others are accepted
	BlockEven        // a source whose address ends in an even number
)

// Words are the replies of a receiver in wire form, without the last line end; "\n" ends each line of a multi-line
// reply. An empty one is the usual reply. {address}, {hello}, {client}, {host} and {wait} are replaced by their
// values; {wait} is the remaining greylisting in seconds.
type Words struct {
	Greeting  string
	Blocked   string // the greeting for a client that Personality.Blocks
	Extra     string // more lines of the reply to EHLO, such as "SIZE 1\nDSN"
	NeedTLS   string // the refusal of MAIL before STARTTLS
	Hello     string // the refusal of EHLO and HELO; empty: accepted
	EHLO      string // the refusal of EHLO alone; empty: accepted
	Mail      string // the refusal of MAIL; empty: accepted
	Any       string // the reply to every RCPT, whatever the address; empty: by mailbox
	First     string // the same, only at the host mx1
	Mailboxes [MailboxKinds]string
	Greylist  string
	Relay     string // the domain is not ours
	Limit     string // the refusal at the limit of RCPTs per transaction or per second
	Guard     string // the refusal of a guard
	Crowded   string // the refusal of a session over a limit
}

// Personality is the behaviour of one receiver and its DNS: plain data. The zero value with a name is a receiver
// that knows its mailboxes and follows every standard, without PIPELINING and SMTPUTF8.
type Personality struct {
	Name  string // the last "-" part of a domain's first label
	About string // one sentence for people

	// Family groups the built-in ones for lists and tables, such as "provider" or "guard"; Families returns them all.
	Family string

	// Base is the personality of which this one is a variant, such as "google" for "googlerate"; empty: none.
	Base string

	DNS   Shape
	Words Words

	// MXSuffix puts the MX hosts under a real provider's name, only in the lab's DNS: mx1.acme-google.l.google.com
	// for acme-google.test. Empty: under the domain itself.
	MXSuffix string

	// Means is the truth for a kind of mailbox at this receiver where it is unusual; a zero Outcome is the usual truth.
	Means [MailboxKinds]Expectation

	Pipelining bool // offers it (RFC 2920)
	UTF8       bool // offers SMTPUTF8 (RFC 6531)
	NoEHLO     bool // knows HELO only
	EHLOEnds   bool // ends the session after a refused EHLO
	NoEnhanced bool // replies carry no enhanced codes (RFC 2034)
	BareLF     bool // lines end with LF alone
	BareCR     bool // lines end with CR alone
	TLS        TLS
	NeedsTLS   bool // MAIL is refused before STARTTLS, even if TLS is not TLSRequired

	// AfterTLS is the receiver's behaviour after STARTTLS; its Break at the greeting comes right after the
	// handshake. nil: as before. The truth is in the outer personality.
	AfterTLS *Personality

	CatchAll  bool // every local part exists
	BackupAll bool // at mx2, which never breaks; mx1 breaks except in the receiver's first session
	// Greylist defers by client, return path and address, for Options.GreylistWait. A client that returned for five
	// addresses is no longer greylisted.
	Greylist bool
	PerVisit bool // with Greylist: by client alone, and any later connection passes (postscreen)
	// GreylistWait is the first wait; 0: the 300 s of Postgrey, for which Options.GreylistWait stands. After a tiny one
	// the second try passes.
	GreylistWait   time.Duration
	GreylistEarly  bool // a client that asks too early must wait again (Plesk)
	GreylistHello  bool // the hello name is part of the triplet
	GreylistAlways bool // even for a client that returned for five addresses

	GreetDelay   time.Duration // before the greeting; clients that send earlier are counted
	TurnDelay    time.Duration // before each flush
	RefusalDelay time.Duration // before a refused RCPT is answered
	ByteDelay    time.Duration // before each byte
	IdleMax      time.Duration // idle time until the receiver sends 421; 0: 5 minutes

	SessionsMax       int // at once from all clients; one more gets 421; 0: no limit
	ConnectsPerMinute int // in any minute; one more gets 421; 0: no limit
	RcptsPerSession   int // one more gets 421; 0: no limit
	RcptsPerTx        int // one more gets Words.Limit; 0: no limit
	RcptsPerSecond    int // in any second, all sessions; one more gets Words.Limit; 0: no limit

	Guard        Guard
	GuardAt      int // the n of Guard
	GuardPercent int // with GuardShare and GuardWindow

	Blocks Block

	Shows           smtp.Stage // of a hostile one: where that is seen; StageNone: at BreakAt
	BreakAt         smtp.Stage
	Break           Break
	BreakEveryOther bool   // only in sessions with an odd number
	BreakWords      string // what some breaks send, in wire form

	Fixed   smtp.Outcome   // the right outcome for every address; Undecided: by mailbox
	Also    []smtp.Outcome // with Fixed: also acceptable
	Reasons []smtp.Reason  // with Fixed: the right reasons; empty: any
	Hard    bool           // a careful engine may end with unknown
}
