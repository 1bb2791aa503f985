package smtplab

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"rollcall/smtp"
)

// Expectation is the truth about an address.
type Expectation struct {
	Outcome  smtp.Outcome   // the right one; smtp.Undecided: not an address
	Also     []smtp.Outcome // also acceptable
	Reasons  []smtp.Reason  // right with Outcome; empty: any
	Knowable bool           // a careful engine with enough time finds Outcome, and it is not unknown
}

// Wrong reports whether o is a false result. Unknown never is.
func (e Expectation) Wrong(o smtp.Outcome) bool {
	return o != e.Outcome && o != smtp.Unknown && !slices.Contains(e.Also, o)
}

// Right reports whether o is the right outcome with a right reason.
func (e Expectation) Right(o smtp.Outcome, reason smtp.Reason) bool {
	return o == e.Outcome && (len(e.Reasons) == 0 || slices.Contains(e.Reasons, reason))
}

// byMailbox is the truth at a receiver that knows its mailboxes.
var byMailbox = [MailboxKinds]Expectation{
	NotFound:   {Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.MailboxNotFound}, Knowable: true},
	Exists:     {Outcome: smtp.Valid, Reasons: []smtp.Reason{smtp.MailboxExists}, Knowable: true},
	Disabled:   {Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.MailboxDisabled}, Knowable: true},
	Full:       {Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.MailboxFull}, Knowable: true},
	OverQuota:  {Outcome: smtp.Unknown},
	Restricted: {Outcome: smtp.CatchAll, Reasons: []smtp.Reason{smtp.MailboxRestricted}, Knowable: true},
	Busy:       {Outcome: smtp.Unknown, Also: []smtp.Outcome{smtp.Valid}},
	Grey:       {Outcome: smtp.Valid, Reasons: []smtp.Reason{smtp.MailboxExists}, Knowable: true},
	Deferred:   {Outcome: smtp.Unknown},
	Refused:    {Outcome: smtp.Unknown},
	Cut:        {Outcome: smtp.Unknown},
	Closing:    {Outcome: smtp.Unknown},
}

// Truth returns the truth about an address, in any spelling of its domain. A domain outside of the lab is unknown.
func (l *Lab) Truth(address string) Expectation {
	at := strings.LastIndexByte(address, '@')
	if at <= 0 {
		return Expectation{}
	}
	name, err := canonical(address[at+1:])
	if err != nil {
		return Expectation{}
	}
	l.mu.Lock()
	zone, p, a := l.owner(name)
	if a != nil && len(a.mx) > 0 {
		p = l.hostOwner(a)
	}
	l.mu.Unlock()
	switch {
	case a != nil && len(a.mx) == 1 && a.mx[""]: // a null MX (RFC 7505 §3)
		return Expectation{Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.NoMailService}, Knowable: true}
	case zone == "" || p == nil && a != nil:
		return Expectation{Outcome: smtp.Unknown}
	case p == nil:
		return Expectation{Outcome: smtp.Invalid, Reasons: []smtp.Reason{smtp.DomainNotFound}, Knowable: true}
	}
	return p.truth([]byte(address[:at]))
}

// hostOwner returns the personality behind a tenant's MX hosts; nil when none is in the lab. The caller holds l.mu.
func (l *Lab) hostOwner(a *added) *persona {
	for host := range a.mx {
		if _, p, _ := l.owner(host); p != nil {
			return p
		}
	}
	return nil
}

// truth returns the truth about a local part at this receiver.
func (p *Personality) truth(local []byte) Expectation {
	if p.Fixed != smtp.Undecided {
		return Expectation{
			Outcome: p.Fixed, Also: p.Also, Reasons: p.Reasons,
			Knowable: p.Fixed != smtp.Unknown && !p.Hard,
		}
	}
	if !p.UTF8 && !ascii(local) {
		return Expectation{
			Outcome: smtp.Unknown, Also: []smtp.Outcome{smtp.Invalid},
			Reasons: []smtp.Reason{smtp.EAIUnsupported},
		}
	}
	kind := mailboxOf(local)
	e := byMailbox[kind]
	if own := p.Means[kind]; own.Outcome != smtp.Undecided {
		return own
	}
	if p.Hard {
		e.Knowable, e.Reasons = false, nil
	}
	// Without an enhanced code, only words distinguish these from other refusals.
	if p.NoEnhanced && kind != Exists && kind != NotFound {
		e.Knowable, e.Reasons = false, nil
	}
	return e
}

// Mailbox is what a receiver of the lab knows about a local part.
type Mailbox uint8

// The kinds of mailbox. The local part decides, in any case of letters.
const (
	NotFound     Mailbox = iota // everything else, nobody..., ghost...
	Exists                      // name, first.last, name12, at most 15 bytes
	Disabled                    // disabled...
	Full                        // full...
	OverQuota                   // overquota...: full at the moment
	Restricted                  // restricted...: takes mail from members only
	Busy                        // busy...: receives too much at the moment
	Grey                        // grey...: always greylisted by itself
	Deferred                    // deferred...: always deferred
	Refused                     // refused...: no mail from us is accepted for it
	Cut                         // cut...: the connection ends instead of an answer
	Closing                     // closing...: 421, and the end of the session
	MailboxKinds                // number of kinds
)

// mailboxBytesMax is the longest local part that exists. Control probes are longer (16 bytes and more), so a
// receiver that knows its mailboxes refuses them.
const mailboxBytesMax = 15

// digitsMax bounds the digits at the end of a mailbox's name: a year.
const digitsMax = 4

var mailboxPrefixes = [...]struct {
	prefix string
	kind   Mailbox
}{
	{"nobody", NotFound},
	{"ghost", NotFound},
	{"disabled", Disabled},
	{"full", Full},
	{"overquota", OverQuota},
	{"restricted", Restricted},
	{"busy", Busy},
	{"grey", Grey},
	{"deferred", Deferred},
	{"refused", Refused},
	{"cut", Cut},
	{"closing", Closing},
}

// mailboxOf returns the kind of a local part. Existing mailboxes have letters, at most one dot between letters, at
// most four digits at the end, and at most 15 bytes; the first letters may name another kind.
func mailboxOf(local []byte) Mailbox {
	if len(local) > mailboxBytesMax || !wellNamed(local) {
		return NotFound
	}
	for i := range mailboxPrefixes {
		p := &mailboxPrefixes[i]
		if len(local) >= len(p.prefix) && bytes.EqualFold(local[:len(p.prefix)], []byte(p.prefix)) {
			return p.kind
		}
	}
	return Exists
}

// wellNamed reports whether local is letters [ "." letters ] [ 1 to 4 digits ].
func wellNamed(local []byte) bool {
	letters, dots := 0, 0
	for i := 0; i < len(local); {
		r, size := rune(local[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(local[i:])
		}
		switch {
		case 'a' <= r|0x20 && r|0x20 <= 'z' || r >= utf8.RuneSelf && unicode.IsLetter(r):
			letters++
		case r == '.' && letters > 0 && dots == 0:
			letters, dots = 0, 1
		case '0' <= r && r <= '9' && letters > 0:
			return len(local)-i <= digitsMax && len(bytes.TrimLeft(local[i:], "0123456789")) == 0
		default:
			return false
		}
		i += size
	}
	return letters > 0
}

// weighted is a personality and its frequency.
type weighted struct {
	personality string
	weight      int
}

// sampleWeights are the frequencies of personalities in a Sample. Guess: over half answer plainly, a tenth accepts
// everything, a tenth greylists, the rest is difficult. Personalities that never answer are excluded, because they
// would only measure time-outs.
var sampleWeights = []weighted{
	{"clean", 300}, {"plain", 100}, {"exchange", 80}, {"starttls", 60}, {"multiline", 20}, {"chatty", 20},
	{"nonascii", 10}, {"tlsonly", 10}, {"twomx", 40}, {"firstdown", 10}, {"implicit", 15}, {"alias", 10},
	{"hostalias", 10}, {"catchall", 100}, {"cannotsay", 10}, {"greylist", 50}, {"quietgrey", 10},
	{"fullgrey", 10}, {"postscreen", 10}, {"onesession", 10}, {"onercpt", 10}, {"fewrcpts", 10},
	{"short", 10}, {"ratelimit", 5}, {"chasquid", 10}, {"postfix", 20}, {"exim", 15}, {"cisco", 5},
	{"nxdomain", 15}, {"nodata", 5}, {"nullmx", 5}, {"blocked", 5}, {"policy", 5}, {"servfail", 2},
	{"unreachable", 3}, {"flaky", 5}, {"norelay", 5},
}

// Parts of the names in a Sample. First name, dot, last name and four digits have at most 15 bytes; with a dash
// instead of the dot the mailbox does not exist.
var (
	sampleFirst = []string{
		"anna", "ben", "carla", "david", "emma", "felix", "greta", "hugo", "ida", "jonas", "kira", "lars",
		"mia", "nils", "olga", "paul", "rosa", "simon", "tina", "uwe", "vera", "wim", "yara", "zoe",
	}
	sampleLast = []string{
		"adler", "bauer", "conti", "duval", "ekman", "ferro", "gomez", "hoff", "ivers", "jager", "klein",
		"lopez", "meyer", "novak", "olsen", "petit", "quinn", "rossi", "smith", "tanke", "ueda", "vogel",
		"weber", "young",
	}
	sampleCompany = []string{
		"acme", "atlas", "birch", "cedar", "delta", "ember", "fjord", "globe", "harbor", "iris", "juno",
		"kite", "lumen", "maple", "nova", "orbit", "pine", "quartz", "ridge", "stone", "tidal", "umbra",
		"vista", "willow",
	}
)

// The kinds of 100 addresses at one domain in a Sample, in order: unknown, full, disabled, restricted; the rest exists.
const (
	sampleUnknown    = 15
	sampleFull       = 17
	sampleDisabled   = 18
	sampleRestricted = 19
)

// sampleHarvestUnknown is the number of unknown addresses at a domain with GuardHarvest: below its limit, with room
// for control probes.
const sampleHarvestUnknown = 10

// Sample makes n distinct addresses at the given number of domains with many personalities, the same for the same
// seed. Every domain has an address if n allows; the rest is uneven: the largest domain has about n divided by the
// root of domains. Lab.Truth labels each. n or domains below 1 give none.
func Sample(seed uint64, n, domains int) []string {
	if n < 1 || domains < 1 {
		return nil
	}
	random := rand.New(rand.NewPCG(seed, seed))
	names := sampleDomains(random, min(domains, n))
	unknowns := make(map[int]int)
	out := make([]string, n)
	for i := range out {
		at := i
		if i >= len(names) {
			u := random.Float64()
			at = int(u * u * float64(len(names)))
		}
		kind := random.IntN(100)
		if names[at].harvest && kind < sampleUnknown {
			if unknowns[at]++; unknowns[at] > sampleHarvestUnknown {
				kind = 100
			}
		}
		out[i] = sampleLocal(i, kind) + "@" + names[at].name
	}
	random.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

type sampleDomain struct {
	name    string
	harvest bool // use few unknown addresses
}

func sampleDomains(random *rand.Rand, n int) []sampleDomain {
	out := make([]sampleDomain, n)
	for i := range out {
		personality := pick(random)
		out[i] = sampleDomain{sampleName(i, personality), personality == "cisco"}
	}
	return out
}

// pick draws a personality by its weight.
func pick(random *rand.Rand) string {
	sum := 0
	for _, m := range sampleWeights {
		sum += m.weight
	}
	at := random.IntN(sum)
	for _, m := range sampleWeights {
		if at -= m.weight; at < 0 {
			return m.personality
		}
	}
	return sampleWeights[0].personality
}

// sampleName makes the name of the ith domain.
func sampleName(i int, personality string) string {
	return sampleCompany[i%len(sampleCompany)] + strconv.Itoa(i/len(sampleCompany)) + "-" + personality + "." + TopLevel
}

// sampleLocal makes the local part of the ith address, distinct for all i below 5,760,000 at one domain.
func sampleLocal(i, kind int) string {
	number := i
	first := sampleFirst[number%len(sampleFirst)]
	number /= len(sampleFirst)
	last := sampleLast[number%len(sampleLast)]
	number /= len(sampleLast)
	digits := ""
	if number > 0 {
		digits = strconv.Itoa(number)
	}
	switch {
	case kind < sampleUnknown:
		return first + "-" + last + digits
	case kind < sampleFull:
		return "full." + letters(i)
	case kind < sampleDisabled:
		return "disabled." + letters(i)
	case kind < sampleRestricted:
		return "restricted" + letters(i)
	}
	return first + "." + last + digits
}

// letters returns n in base 26.
func letters(n int) string {
	out := []byte{}
	for ; len(out) == 0 || n > 0; n /= 26 {
		out = append(out, byte('a'+n%26))
	}
	return string(out)
}
