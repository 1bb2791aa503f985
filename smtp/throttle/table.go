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
	// overridesMax bounds a Table. More than a hundred thousand named receivers is a wrongly generated file. Guess.
	overridesMax = 100_000

	// nameMax is the longest name of a host or domain (RFC 1035 §2.3.4).
	nameMax = 255
)

// The prefixes of keys other than receiver keys. No host name has a colon or a
// slash, so such a key never equals a receiver key.
const (
	suffixPrefix = "suffix:"
	domainPrefix = "domain:"
	keySeparator = "/"
)

// SourcePrefix stands before the address of one of our sources in the name of a rule.
const SourcePrefix = "source:"

// Table finds the allowance of a receiver from its layers.
//
// A name is looked up as a receiver key, an MX host suffix and a mail domain, so "example.net" stands for the
// receiver example.net, for every domain whose hosts all lie under example.net, and for mail to @example.net. The
// narrowest name wins, field by field: a receiver before everybody, a longer suffix before a shorter, a mail domain
// before any suffix. For the same name the later layer wins, and within a layer the later rule.
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
	// whole has the limits of each name that rules speak of, with those of wider names applied: every plan looks it up.
	whole map[string]*Limits
}

// layered is a rule and its layer.
type layered struct {
	layer Layer
	*Rule
}

// NewTable makes a table of DefaultLimits, the built-in rules of operators, and the rules of a file. It returns the
// errors of Replace.
func NewTable(file []Rule) (*Table, error) {
	t := new(Table)
	l := &layers{}
	l.rules[LayerDefault] = []Rule{everybody()}
	l.rules[LayerKnown] = knownRules()
	l.index()
	t.layers.Store(l)
	return t, t.Replace(LayerFile, file)
}

// everybody returns DefaultLimits as a rule.
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

// Replace replaces all rules of a layer, LayerFile or LayerOverride, at once; after an error the old ones stay. Names
// may have capitals, a dot before and a dot after; both dots are dropped. The rules are copied; their maps must not be
// written to afterwards.
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

// Check returns what is wrong with the rule's name, or with a field that can't be set there. The error is as Replace's.
func (r Rule) Check() error { return r.clean() }

// clean normalizes the rule's name, or returns what is wrong with it.
func (r *Rule) clean() error {
	name, err := CleanName(r.Name)
	if err != nil {
		return err
	}
	r.Name = name
	for _, f := range r.Set.Fields() {
		if !f.isOf(name) {
			return fmt.Errorf("%w: %q: %s cannot be set there", ErrLimits, r.Name, f)
		}
	}
	return nil
}

// CleanName returns the normal form of a rule's name: lower case, without a dot before or after it; IP addresses of
// sources in their shortest form. The error wraps ErrOverrideName and says what to write.
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
		return "", fmt.Errorf("%w: %q: write one of our IP addresses after %q", ErrOverrideName, written,
			SourcePrefix)
	}
	return SourcePrefix + at.Unmap().String(), nil
}

// index groups the rules by name and computes their limits.
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

// sum fills whole for a name, after the wider names.
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

// Stated reports whether a rule with a name of the key sets a field. Rules for everybody don't count.
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

// Version changes whenever the table changes. While it is the same, the table's answers are the same.
func (t *Table) Version() uint64 { return t.layers.Load().version }

// Rules returns the rules of a layer. They must not be changed.
func (t *Table) Rules(l Layer) []Rule { return t.layers.Load().rules[l] }

// Match returns the key of the receiver actor for a mail domain, and its allowance. The arguments come from a route:
// the receiver key, the names of all its hosts, the domain; lower case, no final dot.
//
// The key is the receiver key, unless a narrower override matches, which needs its own pacer: then it is "suffix:NAME",
// or "domain:NAME/" followed by the key without it. A suffix matches only when all hosts lie under it, so that one
// strange host cannot put a receiver under the rules of another.
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

// For returns the present allowance of a key from Match, also after a Replace. If the override that made the key is
// gone, the rest of the key decides.
func (t *Table) For(key string) Limits { return t.layers.Load().allowance(key) }

// Source returns the present allowance of one of our sources, by its address; "" is the source whose address the system
// chooses. Only the fields of sources count.
func (t *Table) Source(name string) Limits {
	return t.layers.Load().apply(SourcePrefix+name, DefaultLimits())
}

// Explain returns, for every field of a key from Match or of "source:" and an address, the values that rules give it.
func (t *Table) Explain(key string) []Explained {
	l := t.layers.Load()
	var out []Explained
	for _, f := range Fields() {
		if f.isOf(key) {
			said := l.said(key, f)
			out = append(out, Explained{Field: f, Text: said[len(said)-1].Text, Said: said})
		}
	}
	return out
}

// Said is Explain for one field.
func (t *Table) Said(key string, f Field) []Said { return t.layers.Load().said(key, f) }

// said returns the values that rules give a field of a key, the weakest first. Of the rules for everybody only the
// built-in one holds for sources.
func (l *layers) said(key string, f Field) (out []Said) {
	names, isSource := namesOf(key), strings.HasPrefix(key, SourcePrefix)
	if isSource {
		names = slices.Values([]string{"", key})
	}
	for name := range names {
		for _, r := range l.named[name] {
			if r.Set.Has(f) && (!isSource || name != "" || r.layer == LayerDefault) {
				out = append(out, Said{r.Set.Text(f), r.origin(r.layer, f)})
			}
		}
	}
	return out
}

// NameOf returns the name of a rule that holds for a key from Match and nothing wider: its suffix, mail domain or
// receiver.
func NameOf(key string) string {
	domain, anchor := cutKey(key)
	return cmp.Or(domain, anchor)
}

// AnchorOf returns the receiver or suffix of a key from Match, without a mail domain with its own pacer.
func AnchorOf(key string) string {
	_, anchor := cutKey(key)
	return anchor
}

// SuffixKey returns the receiver key of an MX host suffix with its own rules.
func SuffixKey(suffix string) string { return suffixPrefix + suffix }

// cutKey splits a key; domain is "" if it has no pacer of its own.
func cutKey(key string) (domain, anchor string) {
	if rest, found := strings.CutPrefix(key, domainPrefix); found {
		domain, key, _ = strings.Cut(rest, keySeparator)
	}
	return domain, strings.TrimPrefix(key, suffixPrefix)
}

// namesOf returns the names that hold for a key, the widest first.
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

// allowance returns the limits of a key from Match.
func (l *layers) allowance(key string) Limits {
	domain, anchor := cutKey(key)
	a := *l.nearest(anchor)
	if domain != "" {
		a = l.apply(domain, a)
	}
	return a
}

// nearest returns the limits of a receiver or suffix: those of the narrowest name with rules.
func (l *layers) nearest(anchor string) *Limits {
	for anchor != "" {
		if a, found := l.whole[anchor]; found {
			return a
		}
		_, anchor, _ = strings.Cut(anchor, ".")
	}
	return l.whole[""]
}

// apply returns a with the rules of a name applied.
func (l *layers) apply(name string, a Limits) Limits {
	for _, r := range l.named[name] {
		a = r.Set.Apply(a)
	}
	return a
}

func (l *layers) has(name string) bool { return len(l.named[name]) > 0 }

// hasOwn reports whether a rule of this service names a mail domain; built-in rules go by host names.
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
		if l.has(name) && !slices.ContainsFunc(hosts, func(h string) bool { return !under(h, name) }) {
			return name
		}
		_, name, _ = strings.Cut(name, ".")
	}
	return ""
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
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return "", fmt.Errorf("%w: %q: only letters, digits, dots and hyphens; write an international name as xn--…",
			ErrOverrideName, written)
	}
	return name, nil
}
