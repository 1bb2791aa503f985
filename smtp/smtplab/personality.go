package smtplab

import (
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
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

	// Means is the truth for a kind of mailbox at this receiver if it is unusual; a zero Outcome is the usual truth.
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

//go:embed personalities.txt
var personalitiesText string

// Personalities returns a copy of all built-in personalities, in groups: those of personalities.txt, and the hostile
// ones after STARTTLS.
func Personalities() []Personality { return slices.Clone(personalities()) }

// personalities are made once, because some have texts of many KiB.
var personalities = sync.OnceValue(func() []Personality {
	all, err := readPersonalities(personalitiesText)
	if err != nil { // a fault of this package, found by every test
		panic("smtplab: " + err.Error())
	}
	for _, p := range all {
		if p.Family == hostileFamily {
			all = append(all, afterSTARTTLS(p))
		}
	}
	return all
})

// The words of personalities.txt for values that are numbers here, in the order of the numbers.
var wordsOf = map[reflect.Type][]string{
	reflect.TypeFor[Shape](): strings.Fields(`OneMX TwoMX FirstDown AllDown NullMX NullMXMore ImplicitMX DomainAlias
		HostAlias AliasLoop LostMX InsideMX NoDomain NoData ServerFails Refuses Silent OnlyTCP LiteralMX LiteralMXMore
		ManyMX ManyAddresses FirstAddressDown HostChain10 HostChain11 DomainChain16 DomainChain17 OnlyIPv6 AlsoInside`),
	reflect.TypeFor[TLS](): strings.Fields(`None SelfSigned Required Refused Broken Stalled Injected Expired RightName
		WrongName Again Garbage Flood Renegotiate`),
	reflect.TypeFor[Break](): strings.Fields(`None Silent Drop Reset Endless Line Garbage Say SayReset Half Echo Window
		Early Twice Behind`),
	reflect.TypeFor[Block](): strings.Fields("None First Even"),
	reflect.TypeFor[Mailbox](): strings.Fields(
		"NotFound Exists Disabled Full OverQuota Restricted Busy Grey Deferred Refused Cut Closing"),
	reflect.TypeFor[Guard]():        guardNames[:],
	reflect.TypeFor[smtp.Stage]():   namesUpTo(smtp.StageRset),
	reflect.TypeFor[smtp.Outcome](): namesUpTo(smtp.Error),
	reflect.TypeFor[smtp.Reason]():  namesUpTo(smtp.NotSimulated),
}

func namesUpTo[T interface {
	~uint8
	fmt.Stringer
}](last T) (names []string) {
	for v := T(0); v <= last; v++ {
		names = append(names, v.String())
	}
	return names
}

// aboutUs are the right reasons for what a provider says about us, by the word in personalities.txt.
var aboutUs = map[string][]smtp.Reason{
	"blocked":    {smtp.SourceBlocked, smtp.Policy},
	"identity":   {smtp.SourceIdentity, smtp.SourceBlocked},
	"slowed":     {smtp.ReceiverRateLimited, smtp.ReceiverBusy, smtp.SourceBlocked, smtp.Policy},
	"not_hosted": {smtp.DomainNotHosted},
}

// reader reads personalities.txt, whose head says how they are written.
type reader struct {
	all    []Personality
	family string
	one    int     // index of the newest personality that is no variant
	reply  *string // of the line before; nil: that was none
}

func readPersonalities(text string) ([]Personality, error) {
	var r reader
	for i, line := range strings.Split(text, "\n") {
		if err := r.readLine(line); err != nil {
			return nil, fmt.Errorf("personalities.txt:%d: %w", i+1, err)
		}
	}
	return r.all, nil
}

func (r *reader) readLine(line string) error {
	head, rest, said := strings.Cut(strings.TrimSpace(line), ": ")
	words := strings.Fields(head)
	switch {
	case len(words) == 0 || words[0][0] == '#':
		return nil
	case line[0] == '[':
		r.family = strings.Trim(line, "[]")
		return nil
	case line[0] != ' ':
		r.one, r.reply = len(r.all), nil
		r.all = append(r.all, Personality{Name: head, About: rest, Family: r.family})
		return nil
	case strings.HasPrefix(line, "    ") && r.reply != nil:
		*r.reply += "\n" + strings.TrimSpace(line)
		return nil
	}
	p := &r.all[r.one]
	switch {
	case said && words[0] == "us" && len(words) > 2:
		return r.setReply(r.addVariant(*p, words[1], words[3:]), words[2], rest)
	case said:
		return r.setReply(p, words[0], rest)
	case words[0] == "inside":
		p.AfterTLS = &Personality{}
		return set(p.AfterTLS, words[1:])
	case len(words) > 1 && words[1] == "is":
		kind := slices.Index(wordsOf[reflect.TypeFor[Mailbox]()], words[0])
		if kind < 0 {
			return fmt.Errorf("%s is no mailbox", words[0])
		}
		return set(&p.Means[kind], words[2:])
	}
	return set(p, words)
}

// addVariant adds p as it speaks about us: with a mood behind its name and one reply for every address.
func (r *reader) addVariant(p Personality, mood string, reasons []string) *Personality {
	v := Personality{Name: p.Name + mood, About: p.Name + " speaks about us: " + mood, MXSuffix: p.MXSuffix,
		NoEnhanced: p.NoEnhanced, Pipelining: p.Pipelining, TLS: p.TLS, Fixed: smtp.Unknown, Base: p.Name,
		Family: "aboutus"}
	for _, word := range reasons {
		v.Reasons = aboutUs[word]
		if word == "not_hosted" {
			v.About, v.Fixed, v.Hard = p.Name+" says that it does not serve the domain", smtp.Invalid, true
		}
	}
	r.all = append(r.all, v)
	return &r.all[len(r.all)-1]
}

// setReply sets a reply; one with bytes that are no text is in quotes.
func (r *reader) setReply(p *Personality, word, text string) (err error) {
	if kind := slices.Index(wordsOf[reflect.TypeFor[Mailbox]()], word); kind >= 0 {
		r.reply = &p.Words.Mailboxes[kind]
	} else if field := reflect.ValueOf(&p.Words).Elem().FieldByName(word); field.IsValid() {
		r.reply = field.Addr().Interface().(*string)
	} else if word == "BreakWords" {
		r.reply = &p.BreakWords
	} else {
		return fmt.Errorf("%s is no reply", word)
	}
	*r.reply = longTexts().Replace(text)
	if strings.HasPrefix(text, `"`) {
		*r.reply, err = strconv.Unquote(text)
	}
	return err
}

// set sets fields of a struct by words such as Hard and GuardAt=12.
func set(of any, words []string) error {
	for _, word := range words {
		name, text, _ := strings.Cut(word, "=")
		field := reflect.ValueOf(of).Elem().FieldByName(name)
		if !field.IsValid() {
			return fmt.Errorf("there is no %s", name)
		}
		if err := setField(field, text); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

func setField(field reflect.Value, text string) error {
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(true)
	case reflect.String:
		field.SetString(text)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		field.SetInt(int64(n))
		return err
	case reflect.Int64:
		d, err := time.ParseDuration(text)
		field.SetInt(int64(d))
		return err
	case reflect.Slice:
		for one := range strings.SplitSeq(text, ",") {
			value := reflect.New(field.Type().Elem()).Elem()
			if err := setField(value, one); err != nil {
				return err
			}
			field.Set(reflect.Append(field, value))
		}
	default:
		number := slices.Index(wordsOf[field.Type()], text)
		if number < 0 {
			return errors.New("there is no such word")
		}
		field.SetUint(uint64(number))
	}
	return nil
}
