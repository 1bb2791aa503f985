package wire

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// flagsOf returns the flags of an attempt in the order of their bits in Attempt.flags.
func flagsOf(a *evidence.Attempt) [5]*bool {
	return [...]*bool{&a.TLS, &a.Wide, &a.Void, &a.Others, &a.Bare}
}

// Texts numbers the texts of one Results. The zero value is ready.
type Texts struct {
	list  [][]byte
	known map[string]uint32
	last  [5]struct { // of each kind of text: most attempts say the same
		text   string
		number uint32
	}
	attempts []Attempt // room for all attempts of one Results, and for the pointers to them
	pointers []*Attempt
}

// Grow makes room for n more attempts.
func (t *Texts) Grow(n int) {
	t.attempts, t.pointers = make([]Attempt, n), make([]*Attempt, n)
}

// List returns the texts for Results.texts.
func (t *Texts) List() [][]byte { return t.list }

// number returns the place of a text of a kind, 0 for the empty one.
func (t *Texts) number(kind int, text string) uint32 {
	last := &t.last[kind]
	if last.text == text {
		return last.number
	}
	n, known := t.known[text]
	if !known && text != "" {
		if t.known == nil {
			t.known = map[string]uint32{}
		}
		t.list = append(t.list, []byte(text))
		n = uint32(len(t.list))
		t.known[text] = n
	}
	last.text, last.number = text, n
	return n
}

// Attempts turns attempts into their message form.
func (t *Texts) Attempts(attempts []evidence.Attempt) []*Attempt {
	if len(t.attempts) < len(attempts) {
		t.Grow(len(attempts))
	}
	out := t.pointers[:len(attempts):len(attempts)]
	for i := range attempts {
		out[i] = &t.attempts[i]
		t.put(out[i], &attempts[i])
	}
	t.attempts, t.pointers = t.attempts[len(attempts):], t.pointers[len(attempts):]
	return out
}

// put fills the message form of an attempt.
func (t *Texts) put(m *Attempt, a *evidence.Attempt) {
	flags := uint32(0)
	for i, on := range flagsOf(a) {
		if *on {
			flags |= 1 << i
		}
	}
	m.AtMs, m.Stage, m.Host, m.Source = evidence.Millis(a.At), uint32(a.Stage), t.number(0, a.Host), t.number(1, a.Source)
	m.Flags, m.Code, m.Enhanced = flags, uint32(a.Code), enhancedNumber(a.Enhanced)
	m.Text, m.Trouble, m.Outcome = t.number(2, a.Text), uint32(a.Trouble), uint32(a.Outcome)
	m.Reason, m.Blame, m.Rule, m.Version = uint32(a.Reason), uint32(a.Blame), t.number(3, a.Rule), a.Version
	m.Cause, m.Why = uint32(a.Cause.Scope), t.number(4, a.Cause.Why)
}

// Reader reads the attempts of one Results. Each of its texts becomes one string.
type Reader struct {
	texts []string
	room  []evidence.Attempt
}

// NewReader makes the reader of r.
func NewReader(r *Results) Reader {
	var d Reader
	for _, t := range r.GetTexts() {
		d.texts = append(d.texts, string(t[:min(len(t), evidence.TextMax)]))
	}
	n := 0
	for _, a := range r.GetAnswers() {
		n += len(newest(a))
	}
	d.room = make([]evidence.Attempt, n)
	return d
}

func newest(a *Answer) []*Attempt {
	all := a.GetAttempts()
	return all[max(0, len(all)-evidence.AttemptsMax):]
}

// AttemptsOf returns the attempts of one of the answers, once: at most evidence.AttemptsMax, the newest. Values of a
// newer program that this one doesn't know become zero.
func (d *Reader) AttemptsOf(a *Answer) []evidence.Attempt {
	all := newest(a)
	out := d.room[:len(all):len(all)]
	d.room = d.room[len(all):]
	for i, m := range all {
		out[i] = d.attempt(m)
	}
	return out
}

func (d *Reader) attempt(m *Attempt) evidence.Attempt {
	text := func(n uint32, most int) string {
		if n == 0 || uint64(n) > uint64(len(d.texts)) {
			return ""
		}
		t := d.texts[n-1]
		return t[:min(len(t), most)]
	}
	a := evidence.Attempt{At: evidence.TimeOf(m.GetAtMs()), Host: text(m.GetHost(), evidence.NameMax),
		Source: text(m.GetSource(), evidence.NameMax), Text: text(m.GetText(), evidence.TextMax),
		Rule: text(m.GetRule(), evidence.NameMax), Version: m.GetVersion(), Enhanced: enhancedCode(m.GetEnhanced())}
	for i, on := range flagsOf(&a) {
		*on = m.GetFlags()>>i&1 == 1
	}
	if n := m.GetCode(); n <= 999 {
		a.Code = int(n)
	}
	a.Stage = known(m.GetStage(), func(s smtp.Stage) bool { return s <= smtp.StageRset })
	a.Trouble = known(m.GetTrouble(), evidence.Trouble.Known)
	a.Outcome = known(m.GetOutcome(), outcomeKnown)
	a.Reason = ReasonOf(m.GetReason())
	a.Blame = known(m.GetBlame(), smtp.Blame.Known)
	if scope := known(m.GetCause(), evidence.Scope.Known); scope != evidence.ScopeNone {
		a.Cause = evidence.Cause{Scope: scope, Why: text(m.GetWhy(), evidence.WhyMax)}
	}
	return a
}

func outcomeKnown(o smtp.Outcome) bool { return o <= smtp.Error }

// known returns a number of a message as a value of its type; zero when this program doesn't know it.
func known[V ~uint8](n uint32, is func(V) bool) V {
	if v := V(n); n <= 255 && is(v) {
		return v
	}
	return 0
}

// ReasonOf returns the reason with a number of a message; smtp.ReasonNone when this program doesn't know it.
func ReasonOf(n uint32) smtp.Reason { return known(n, smtp.Reason.Known) }

// enhancedNumber and enhancedCode turn an enhanced code, whose parts have three
// digits at most, into one number and back.
func enhancedNumber(c smtp.EnhancedCode) uint32 {
	return uint32(c[0])*1_000_000 + uint32(c[1])%1_000*1_000 + uint32(c[2])%1_000
}

func enhancedCode(n uint32) smtp.EnhancedCode {
	if n >= 10_000_000 {
		return smtp.EnhancedCode{}
	}
	return smtp.EnhancedCode{uint16(n / 1_000_000), uint16(n / 1_000 % 1_000), uint16(n % 1_000)}
}

// Greylist notes how long ago a probe was first deferred, and at which source, which may be empty.
func (p *Probe) Greylist(ago time.Duration, from string) {
	p.GreylistedMs = max(1, ago.Milliseconds())
	if a, err := netip.ParseAddr(from); err == nil {
		p.GreylistedFrom = a.AsSlice()
	}
}

// Greylisted returns how long ago a probe was first deferred, and from which source; ok is false if it wasn't.
func (p *Probe) Greylisted() (ago time.Duration, from string, ok bool) {
	ms := p.GetGreylistedMs()
	if a, known := netip.AddrFromSlice(p.GetGreylistedFrom()); known {
		from = a.String()
	}
	return time.Duration(min(max(0, ms), waitMax.Milliseconds())) * time.Millisecond, from, ms > 0
}

// Retries reports whether all that is offered are due retries.
func (m *Offer) Retries() bool {
	return !slices.ContainsFunc(m.GetProbes(), func(p *Probe) bool { return !p.GetRetry() })
}

// AddressesMax bounds the probes of one Offer, so that a message stays under
// 64 KB: with local parts of 64 octets they take 37 KB, and the hosts at most 2 KB.
const AddressesMax = 500

// ControlOrdinal names control probes in an Offer and its answers; addresses number below it.
const ControlOrdinal = ^uint32(0)

// Version is the version of the messages between nodes. Nodes of different versions don't join. Raise it if a node of
// the version before would misread a message, or miss what it must know. A new field that may be ignored needs no
// new version.
const Version = 5

// waitMax bounds the wait that a receiver may name: beyond it every address is given up anyway, and nothing overflows.
const waitMax = 366 * 24 * time.Hour

// TaskKey is a Task as a comparable value without its epoch.
type TaskKey struct {
	Verification uuid.UUID
	Domain       string
}

// Key returns the comparable form. A malformed verification id becomes the zero UUID.
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
	return known(a.GetOutcome(), outcomeKnown), ReasonOf(a.GetReason())
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

// Until is the inverse of Left at the time of receiving. A wait longer than a year counts as a year, a negative one
// as none.
func Until(now time.Time, ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(min(ms, waitMax.Milliseconds())) * time.Millisecond)
}
