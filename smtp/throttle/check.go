package throttle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// labelMax is the longest label of a host name (RFC 1035 §2.3.4).
const labelMax = 63

// Doubt is something in a legal rule that a person should check before the rule is used.
type Doubt struct {
	Rule  int   // its place in the list
	Field Field // 0: the rule as a whole
	Text  string
}

// Check returns the doubtful points of LayerFile's rules: rules that can't match or have no effect, names that match
// more than their author may think, and limits above those that a known operator publishes. Check skips rules that
// Table.Replace refuses.
func Check(rules []Rule) []Doubt {
	c := doubts{rules: slices.Clone(rules), known: knownRules()}
	var fit []Rule
	for i := range c.rules {
		if c.rules[i].clean() == nil {
			fit = append(fit, c.rules[i])
		} else {
			c.rules[i] = Rule{}
		}
	}
	var err error
	if c.table, err = NewTable(fit); err != nil {
		return nil // too many rules
	}
	c.last = last(c.rules)
	for i := range c.rules {
		named := c.name(i)
		for _, f := range c.rules[i].Set.Fields() {
			if c.hidden(i, f) {
				continue
			}
			if isOfReceiver(c.rules[i].Name) {
				c.loosens(i, f)
				if named {
					c.beaten(i, f)
				}
			}
			c.idle(i, f)
		}
	}
	return c.found
}

type doubts struct {
	rules []Rule
	known []Rule
	last  map[spoken]*Rule
	table *Table
	found []Doubt
}

func (c *doubts) add(rule int, f Field, format string, args ...any) {
	c.found = append(c.found, Doubt{Rule: rule, Field: f, Text: fmt.Sprintf(format, args...)})
}

// name checks a rule's name. False: the name is doubtful.
func (c *doubts) name(i int) bool {
	before := len(c.found)
	if name := c.rules[i].Name; isOfReceiver(name) {
		c.hostName(i, name)
	}
	return len(c.found) == before
}

// isOfReceiver reports whether a rule is for a receiver, not for all receivers or one of our sources.
func isOfReceiver(name string) bool { return name != "" && !strings.HasPrefix(name, SourcePrefix) }

func (c *doubts) hostName(i int, name string) {
	if _, err := netip.ParseAddr(name); err == nil {
		c.add(i, 0, "can't match: %s is an IP address, and receivers go by the names of their hosts; a source "+
			"of ours belongs to the sources", name)
		return
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > labelMax || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			c.add(i, 0, "can't match: no host name has the part %q", label)
			return
		}
	}
	suffix, listed := publicsuffix.PublicSuffix(name)
	top := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case listed && suffix == name:
		c.add(i, 0, "%s is no receiver's name: it matches every receiver beneath it", name)
	case !listed && suffix == top && !slices.Contains(ownTops, top):
		c.add(i, 0, "can't match: %q is no top-level domain, so nothing outside a network of yours is found "+
			"by this name", top)
	case name == top:
		c.add(i, 0, "%s is no receiver's name: it matches every receiver beneath it", name)
	}
}

// ownTops are the top-level domains without an owner and those of private networks: the domains of RFC 2606, and some
// domains that are never delegated because many networks use them.
var ownTops = []string{"test", "example", "invalid", "localhost", "local", "internal", "lab", "lan", "home",
	"corp"}

// hidden reports whether a later rule of the same name overwrites a field.
func (c *doubts) hidden(i int, f Field) bool {
	wins := c.last[spoken{c.rules[i].Name, f}]
	if wins == &c.rules[i] {
		return false
	}
	c.add(i, f, "never holds: %s says %s = %s after it", place(wins, f), f, wins.Set.Text(f))
	return true
}

// place says for people where a rule sets a field.
func place(r *Rule, f Field) string {
	if where := r.WhereOf(f); where != "" {
		return where
	}
	return "another rule of this name"
}

// loosens looks for rules that allow more than the known limits of an operator.
func (c *doubts) loosens(i int, f Field) {
	r := &c.rules[i]
	for k := range c.known {
		known := &c.known[k]
		if !under(r.Name, known.Name) && homes[r.Name] != known.Name || !known.Set.Has(f) ||
			!r.Set.values.More(known.Set.values, f) {
			continue
		}
		c.add(i, f, "%s is more than %s, the known limit of %s (%s)", r.Set.Text(f),
			known.Set.Text(f), known.Name, known.WhereOf(f))
	}
}

// beaten looks for rules whose name covers known operators. The built-in rules of these operators have narrower names,
// so at their hosts the rule doesn't apply.
func (c *doubts) beaten(i int, f Field) {
	r := &c.rules[i]
	for k := range c.known {
		known := &c.known[k]
		if known.Name == r.Name || !under(known.Name, r.Name) || !known.Set.Has(f) ||
			known.Set.Text(f) == r.Set.Text(f) || c.last[spoken{known.Name, f}] != nil {
			continue
		}
		c.add(i, f, "does not apply to hosts under %s, where the known %s takes precedence: write a rule of that "+
			"name to change it", known.Name, known.Set.Text(f))
	}
}

// idle looks for fields that have no effect because of other fields.
func (c *doubts) idle(i int, f Field) {
	name := c.rules[i].Name
	if source, is := strings.CutPrefix(name, SourcePrefix); is {
		if a := c.table.Source(source); f == FieldWarmUpFrom && !a.WarmUpFrom.IsZero() && a.RcptsPerDay == 0 {
			c.add(i, f, "does nothing without %s, which it begins with", FieldRcptsPerDay)
		}
		return
	}
	a := c.table.For(name)
	switch {
	case f == FieldPipeliningDepth && !a.Pipelining && name != "":
		c.add(i, f, "does nothing while %s is false", FieldPipelining)
	case f == FieldRcptsPerTransaction && a.RcptsPerTransaction > a.RcptsPerConnection:
		c.add(i, f, "%d in a transaction are never reached: %s is %d", a.RcptsPerTransaction,
			FieldRcptsPerConnection, a.RcptsPerConnection)
	}
}
