package throttle

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// overridesMax bounds a Table. More than a hundred thousand named receivers
	// is a generated file that somebody got wrong. Guess.
	overridesMax = 100_000

	// nameMax is the longest name of a host or domain (RFC 1035 §2.3.4).
	nameMax = 255
)

// The prefixes of the keys that are no receiver keys. A colon and a slash are in
// no host name, so they cannot meet one.
const (
	suffixPrefix = "suffix:"
	domainPrefix = "domain:"
	keySeparator = "/"
)

// SourcePrefix stands before the address of one of our sources in the name of a rule.
const SourcePrefix = "source:"

// Table finds the allowance of a receiver from its layers.
//
// A name is a receiver key, an MX host suffix or a mail domain, whatever it is
// found as, so "example.net" stands for the receiver example.net, for every
// domain whose hosts all lie under example.net, and for mail to @example.net.
// The narrowest name wins, field by field: a receiver before everybody, a
// longer suffix before a shorter, a mail domain before any suffix. Of what is said of
// the same name the later layer wins, and of what one layer says twice the later rule.
//
// Safe for concurrent use.
type Table struct {
	layers  atomic.Pointer[layers]
	writing sync.Mutex
}

// layers is one loaded state; never changed once it is stored.
type layers struct {
	version uint64
	rules   [LayerOverride + 1][]Rule // by layer, as they came, with clean names
	named   map[string][]layered      // by name, the weakest first
	// whole is what holds for a receiver or suffix of a name, with all that is said of the
	// wider ones, for each name that is spoken of: it is looked up in every plan.
	whole map[string]*Limits
}

// layered is a rule and its layer.
type layered struct {
	layer Layer
	*Rule
}

// NewTable makes a table of DefaultLimits, what is known of operators, and the rules of
// a file. Errors are those of Replace.
func NewTable(file []Rule) (*Table, error) {
	t := new(Table)
	l := &layers{}
	l.rules[LayerDefault] = []Rule{everybody()}
	l.rules[LayerKnown] = knownRules()
	l.index()
	t.layers.Store(l)
	return t, t.Replace(LayerFile, file)
}

// everybody is DefaultLimits as a rule.
func everybody() Rule {
	r := Rule{Where: map[Field]string{0: "built in"}}
	a := DefaultLimits()
	for _, f := range Fields() {
		if err := r.Set.Set(f, a.Text(f)); err != nil {
			panic(err) // this code is wrong: a test reads every field of it
		}
	}
	return r
}

// Replace puts other rules in the place of all those of a layer, LayerFile or
// LayerOverride, at once; with an error the old stay. Names may have capitals, a dot
// before and a dot after; both dots are dropped. The rules are copied; their maps must not
// be written to afterwards.
//
// Errors wrap ErrLimits or ErrOverrideName and name the rule.
func (t *Table) Replace(layer Layer, rules []Rule) error {
	if len(rules) > overridesMax {
		return fmt.Errorf("%w: %d rules, at most %d are possible", ErrLimits, len(rules), overridesMax)
	}
	clean := slices.Clone(rules)
	for i := range clean {
		if err := clean[i].clean(); err != nil {
			return err
		}
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	next := *t.layers.Load()
	next.version++
	next.rules[layer] = clean
	next.index()
	t.layers.Store(&next)
	return nil
}

// Check says what is wrong with the rule's name, or with a field that cannot be set there.
// The error is as Replace's.
func (r Rule) Check() error { return r.clean() }

// clean brings the rule's name into its one form, and says what is wrong with it.
func (r *Rule) clean() error {
	name, err := CleanName(r.Name)
	if err != nil {
		return err
	}
	r.Name = name
	isSource := strings.HasPrefix(name, SourcePrefix)
	for _, f := range r.Set.Fields() {
		if isSource && !f.OfSource() || !isSource && !f.OfReceiver() {
			return fmt.Errorf("%w: %q: %s cannot be set there", ErrLimits, r.Name, f)
		}
	}
	return nil
}

// CleanName gives the one form of a rule's name: lower case, without a dot before or after
// it; IP addresses of sources in their shortest form. The error wraps ErrOverrideName and
// says what to write.
func CleanName(written string) (string, error) {
	source, isSource := strings.CutPrefix(written, SourcePrefix)
	switch {
	case written == "" || written == SourcePrefix:
		return written, nil
	case !isSource:
		return overrideName(written)
	}
	at, err := netip.ParseAddr(source)
	if err != nil || at.Zone() != "" {
		return "", fmt.Errorf("%w: %q: after %q has to stand one of our IP addresses", ErrOverrideName, written,
			SourcePrefix)
	}
	return SourcePrefix + at.Unmap().String(), nil
}

// index finds the rules by name, and what they come to.
func (l *layers) index() {
	l.named = map[string][]layered{}
	for layer := LayerDefault; layer <= LayerOverride; layer++ {
		for i := range l.rules[layer] {
			r := &l.rules[layer][i]
			l.named[r.Name] = append(l.named[r.Name], layered{layer, r})
		}
	}
	l.whole = make(map[string]*Limits, len(l.named))
	everybody := l.apply("", Limits{})
	l.whole[""] = &everybody
	for name := range l.named {
		if !strings.HasPrefix(name, SourcePrefix) {
			l.sum(name)
		}
	}
}

// sum fills whole for a name, after those of the wider ones.
func (l *layers) sum(name string) *Limits {
	if a, done := l.whole[name]; done {
		return a
	}
	_, wider, _ := strings.Cut(name, ".")
	a := l.sum(wider)
	if l.has(name) {
		own := l.apply(name, *a)
		a = &own
		l.whole[name] = a
	}
	return a
}

// Stated reports whether somebody has said of a key in particular what a field is, not of
// everybody.
func (t *Table) Stated(key string, f Field) bool {
	l := t.layers.Load()
	for name := range namesOf(key) {
		for _, r := range l.named[name] {
			if name != "" && r.Set.Has(f) {
				return true
			}
		}
	}
	return false
}

// Version counts the changes of the table: while it is the same, so is every answer.
func (t *Table) Version() uint64 { return t.layers.Load().version }

// Rules gives the rules of a layer. They must not be changed.
func (t *Table) Rules(l Layer) []Rule { return t.layers.Load().rules[l] }

// Match gives the key of the receiver actor for a mail domain and its allowance.
// The arguments come from a route: the receiver key, the names of all its hosts,
// the domain; lower case, no final dot.
//
// The key is the receiver key, unless a narrower override matches; then that
// override needs a pacer of its own and the key is "suffix:NAME", or
// "domain:NAME/" and the key there would be without it. A suffix matches only
// when all hosts lie under it, so that one strange host cannot put a receiver
// under the rules of another.
func (t *Table) Match(receiver string, hosts []string, domain string) (key string, a Limits) {
	l := t.layers.Load()
	key, anchor := receiver, receiver
	if suffix := l.narrowest(receiver, hosts); suffix != "" {
		key, anchor = SuffixKey(suffix), suffix
	}
	if domain != "" && l.hasOwn(domain) && !under(anchor, domain) {
		key = domainPrefix + domain + keySeparator + key
	}
	return key, l.allowance(key)
}

// For gives the present allowance of a key that Match has made, also after a Replace. When the
// override that made the key is gone, it is the allowance of what is left of it.
func (t *Table) For(key string) Limits { return t.layers.Load().allowance(key) }

// Source gives the present allowance of one of our sources, by its address; "" is the
// source whose address the system chooses. Only the fields of sources mean something.
func (t *Table) Source(name string) Limits {
	return t.layers.Load().apply(SourcePrefix+name, DefaultLimits())
}

// Explain says of every field of a key that Match has made, or of "source:" and an address,
// who has said what about it.
func (t *Table) Explain(key string) []Explained {
	l := t.layers.Load()
	names := slices.Collect(namesOf(key))
	isSource := strings.HasPrefix(key, SourcePrefix)
	if isSource {
		names = []string{"", key}
	}
	var out []Explained
	for _, f := range Fields() {
		if isSource && !f.OfSource() || !isSource && !f.OfReceiver() {
			continue
		}
		e := Explained{Field: f, Said: l.said(names, f, isSource)}
		e.Text = e.Said[len(e.Said)-1].Text
		out = append(out, e)
	}
	return out
}

// Said is what Explain says of one field; none for a field that no rule of that name can have.
func (t *Table) Said(key string, f Field) []Said {
	l := t.layers.Load()
	if strings.HasPrefix(key, SourcePrefix) {
		return l.said([]string{"", key}, f, true)
	}
	return l.said(slices.Collect(namesOf(key)), f, false)
}

// said is what rules of some names say of a field, the weakest first. What holds for every
// receiver holds for no source but what is built in.
func (l *layers) said(names []string, f Field, isSource bool) (out []Said) {
	for _, name := range names {
		for _, r := range l.named[name] {
			if r.Set.Has(f) && (!isSource || name != "" || r.layer == LayerDefault) {
				out = append(out, Said{r.Set.Text(f), r.origin(r.layer, f)})
			}
		}
	}
	return out
}

// NameOf gives the name under which a rule holds for a key that Match has made, and for
// nothing wider: its suffix, mail domain or receiver.
func NameOf(key string) string {
	domain, anchor := cutKey(key)
	return cmp.Or(domain, anchor)
}

// AnchorOf gives the receiver or suffix of a key that Match has made, without the
// mail domain that may have a pacer of its own there.
func AnchorOf(key string) string {
	_, anchor := cutKey(key)
	return anchor
}

// SuffixKey is the key of the receiver of an MX host suffix that has rules of its own.
func SuffixKey(suffix string) string { return suffixPrefix + suffix }

// cutKey takes a key apart; domain is "" where it has no pacer of its own.
func cutKey(key string) (domain, anchor string) {
	if rest, found := strings.CutPrefix(key, domainPrefix); found {
		domain, key, _ = strings.Cut(rest, keySeparator)
	}
	return domain, strings.TrimPrefix(key, suffixPrefix)
}

// namesOf gives the names that hold for a key, the widest first.
func namesOf(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		domain, anchor := cutKey(key)
		more := yield("")
		for end := len(anchor); more && end > 0; {
			end = strings.LastIndexByte(anchor[:end], '.')
			more = yield(anchor[end+1:])
		}
		if more && domain != "" {
			yield(domain)
		}
	}
}

// allowance is what holds for a key that Match has made.
func (l *layers) allowance(key string) Limits {
	domain, anchor := cutKey(key)
	a := *l.nearest(anchor)
	if domain != "" {
		a = l.apply(domain, a)
	}
	return a
}

// nearest is what holds for a receiver or suffix: that of the narrowest name that is spoken of.
func (l *layers) nearest(anchor string) *Limits {
	for anchor != "" {
		if a, found := l.whole[anchor]; found {
			return a
		}
		_, anchor, _ = strings.Cut(anchor, ".")
	}
	return l.whole[""]
}

// apply gives a with what is said of a name.
func (l *layers) apply(name string, a Limits) Limits {
	for _, r := range l.named[name] {
		a = r.Set.Apply(a)
	}
	return a
}

// has reports whether anything is said of a name.
func (l *layers) has(name string) bool { return len(l.named[name]) > 0 }

// hasOwn reports whether somebody of this service has said something of a mail domain: what
// is known of operators is known by the names of their hosts.
func (l *layers) hasOwn(domain string) bool {
	said := l.named[domain]
	return len(said) > 0 && said[len(said)-1].layer > LayerKnown
}

// narrowest finds the longest suffix that is named in an override, lies under
// the receiver key and has all hosts under it; "" if there is none.
func (l *layers) narrowest(receiver string, hosts []string) string {
	if len(hosts) == 0 {
		return ""
	}
	for name := hosts[0]; name != receiver && under(name, receiver); {
		if l.has(name) && allUnder(hosts, name) {
			return name
		}
		_, name, _ = strings.Cut(name, ".")
	}
	return ""
}

func allUnder(hosts []string, suffix string) bool {
	for _, h := range hosts {
		if !under(h, suffix) {
			return false
		}
	}
	return true
}

// under reports whether name is suffix or lies under it, label by label.
func under(name, suffix string) bool {
	head, found := strings.CutSuffix(name, suffix)
	return found && (head == "" || strings.HasSuffix(head, "."))
}

func overrideName(written string) (string, error) {
	if name := NameOf(written); name != written {
		return "", fmt.Errorf("%w: %q is the key of a receiver: write %q", ErrOverrideName, written, name)
	}
	name := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(written, "."), "."))
	if name == "" || len(name) > nameMax || strings.Contains(name, "..") {
		return "", fmt.Errorf("%w: %q: write a receiver, an MX host suffix or a mail domain",
			ErrOverrideName, written)
	}
	for _, c := range []byte(name) {
		ok := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_'
		if !ok {
			return "", fmt.Errorf("%w: %q: only letters, digits, dots and hyphens; "+
				"write an international name as xn--…", ErrOverrideName, written)
		}
	}
	return name, nil
}
