package shaping

import (
	"fmt"
	"strings"
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

// Table finds the allowance of a receiver: a default, with overrides by name.
//
// A name is a receiver key, an MX host suffix or a mail domain, whatever it is
// found as, so "example.net" stands for the receiver example.net, for every
// domain whose hosts all lie under example.net, and for mail to @example.net.
// The narrowest override wins, field by field: a receiver before the default, a
// longer suffix before a shorter, a mail domain before any suffix.
//
// Safe for concurrent use.
type Table struct{ layers atomic.Pointer[layers] }

// layers is one loaded state; never changed once it is stored.
type layers struct {
	base      Allowance
	known     map[string]Override // Known; below the overrides of the same name
	overrides map[string]Override
}

// NewTable checks and holds a default and overrides by name. Names may have
// capitals, a dot before and a dot after; both dots are dropped.
//
// Errors wrap ErrAllowance or ErrOverrideName and name the override. The map is
// copied; the pointers in the overrides must not be written through afterwards.
func NewTable(def Allowance, overrides map[string]Override) (*Table, error) {
	t := new(Table)
	if err := t.Replace(def, overrides); err != nil {
		return nil, err
	}
	return t, nil
}

// Replace puts a new default and new overrides in the place of the old, all at
// once; with an error (as NewTable's) the old stay.
func (t *Table) Replace(def Allowance, overrides map[string]Override) error {
	if err := def.Validate(); err != nil {
		return fmt.Errorf("default: %w", err)
	}
	if len(overrides) > overridesMax {
		return fmt.Errorf("%w: %d overrides, at most %d are possible",
			ErrAllowance, len(overrides), overridesMax)
	}
	l := &layers{base: def, known: Known(), overrides: make(map[string]Override, len(overrides))}
	for written, o := range overrides {
		name, err := overrideName(written)
		if err != nil {
			return err
		}
		if _, twice := l.overrides[name]; twice {
			return fmt.Errorf("%w: %q is there twice", ErrOverrideName, name)
		}
		if err := o.apply(l.known[name].apply(def)).Validate(); err != nil {
			return fmt.Errorf("override %q: %w", name, err)
		}
		l.overrides[name] = o
	}
	t.layers.Store(l)
	return nil
}

// Match gives the key of the receiver actor for a mail domain and its allowance.
// The arguments come from a route: the receiver key, the names of all its hosts,
// the domain; lower case, no final dot.
//
// The key is the receiver key, unless a narrower override matches; then that
// override needs a pacer of its own and the key is "suffix:NAME", or
// "domain:NAME/" and the key there would be without it. A suffix matches only
// when all hosts lie under it, so that one strange host cannot put a receiver
// under the rules of another.
func (t *Table) Match(receiver string, hosts []string, domain string) (key string, a Allowance) {
	l := t.layers.Load()
	key, anchor := receiver, receiver
	if suffix := l.narrowest(receiver, hosts); suffix != "" {
		key, anchor = suffixPrefix+suffix, suffix
	}
	if _, named := l.overrides[domain]; named && !under(anchor, domain) {
		key = domainPrefix + domain + keySeparator + key
	}
	return key, l.allowance(key)
}

// For gives the present allowance of a key that Match has made, or ShardKey of
// such a key, also after a Replace. When the override that made the key is gone,
// it is the allowance of what is left of it. A shard of another split than that
// of the present allowance gets nothing (Allowance.Share of no votes).
func (t *Table) For(key string) Allowance {
	key, i, of := cutShard(key)
	a := t.layers.Load().allowance(key)
	if of != a.Shards() {
		return a.Share(0, 1)
	}
	return a.Shard(i, of)
}

// Shards says in how many shards the receiver of a key is split at present; the
// key may name a shard (ShardKey), which one makes no difference.
func (t *Table) Shards(key string) int {
	receiver, _, _ := cutShard(key)
	return t.layers.Load().allowance(receiver).Shards()
}

func (l *layers) allowance(key string) Allowance {
	domain := ""
	if rest, found := strings.CutPrefix(key, domainPrefix); found {
		domain, key, _ = strings.Cut(rest, keySeparator)
	}
	anchor := strings.TrimPrefix(key, suffixPrefix)

	a := l.base
	for end := len(anchor); end > 0; {
		start := strings.LastIndexByte(anchor[:end], '.')
		a = l.named(anchor[start+1:], a)
		end = start
	}
	return l.named(domain, a)
}

// named gives a with what is known of a name, and what is configured for it.
func (l *layers) named(name string, a Allowance) Allowance {
	if o, found := l.known[name]; found {
		a = o.apply(a)
	}
	if o, found := l.overrides[name]; found {
		a = o.apply(a)
	}
	return a
}

// has says whether anything is known of a name or configured for it.
func (l *layers) has(name string) bool {
	_, known := l.known[name]
	_, configured := l.overrides[name]
	return known || configured
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

// under says whether name is suffix or lies under it, label by label.
func under(name, suffix string) bool {
	head, found := strings.CutSuffix(name, suffix)
	return found && (head == "" || strings.HasSuffix(head, "."))
}

func overrideName(written string) (string, error) {
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
