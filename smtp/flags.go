package smtp

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed lists/*.txt
var flagFiles embed.FS

// Flags describe an address without asking anybody: it names a function and not a person, is at a provider with free
// mailboxes, is at a domain with throwaway mailboxes, or is one typing error away from a large provider. They use the
// lists of names in lists; each list has its source and date. The zero value says nothing.
//
// A flag is never an outcome: an address with any of them may take mail.
type Flags struct {
	Role       bool   // its local part names a function, such as info
	Free       bool   // anybody can have a mailbox at its domain
	Disposable bool   // its domain gives out throwaway mailboxes
	Suggest    string // the large provider that was probably meant; "": none
	Operator   string // operator of the mail host that answered; "": unknown
}

// FlagList is one of the lists behind the flags.
type FlagList struct {
	Name    string    `json:"name"`
	What    string    `json:"what"`
	Source  string    `json:"source"`
	Licence string    `json:"licence"`
	Date    time.Time `json:"date"`
	Entries int       `json:"entries"`
	words   []string
}

// FlagLists returns all lists with the content of their heads. An error is a fault in the program's own files.
func FlagLists() ([]FlagList, error) {
	var all []FlagList
	for _, name := range []string{"role", "free", "disposable", "providers", "near", "operators"} {
		l, err := readList(name)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// readList reads a list: a head of comments, in which an indented line continues the line above, and one entry a line.
func readList(name string) (l FlagList, err error) {
	text, err := flagFiles.ReadFile("lists/" + name + ".txt")
	if err != nil {
		return l, fmt.Errorf("read the list %s: %w", name, err)
	}
	l.Name = name
	fields := map[string]*string{"What": &l.What, "Source": &l.Source, "Licence": &l.Licence}
	last := new(string)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		head, isHead := strings.CutPrefix(line, "# ")
		field, value, _ := strings.Cut(head, ": ")
		switch into, known := fields[field]; {
		case !isHead:
			l.words = append(l.words, line)
		case known:
			*into, last = value, into
		case field == "Date":
			if l.Date, err = time.Parse(time.DateOnly, value); err != nil {
				return l, fmt.Errorf("the list %s: %w", name, err)
			}
		default:
			*last += " " + strings.TrimSpace(head)
		}
	}
	l.Entries = len(l.words)
	return l, nil
}

// flagWords are the words of all lists.
type flagWords struct {
	role      map[string]bool
	lengths   [256]uint64      // of role, by first and last letter: a bit for each length
	domains   map[string]Flags // of all domain lists; domains in near.txt have none
	providers [256][]provider  // by first letter
}

// provider is a large provider, its name cut at the first dot.
type provider struct{ name, label, rest string }

// knownFlags are read on first use: most programs need no flags.
var knownFlags = sync.OnceValue(func() *flagWords {
	b := &flagWords{role: map[string]bool{}, domains: map[string]Flags{}}
	all, err := FlagLists()
	if err != nil {
		return b // a test reads all lists
	}
	for _, l := range all {
		for _, word := range l.words {
			switch l.Name {
			case "role":
				b.role[word] = true
				b.lengths[endsOf(word)] |= 1 << len(word)
			case "free":
				b.domains[word] = Flags{Free: true}
			case "disposable":
				b.domains[word] = Flags{Disposable: true}
			case "providers":
				label, rest, _ := strings.Cut(word, ".")
				b.providers[word[0]] = append(b.providers[word[0]], provider{word, label, rest})
			case "near":
				b.domains[word] = Flags{}
			}
		}
	}
	for domain, f := range b.domains { // owners of typing-error domains often offer mailboxes there
		if f.Disposable {
			f.Suggest = b.suggestFor([]byte(domain))
			b.domains[domain] = f
		}
	}
	return b
})

// FlagCache returns the flags of many addresses and remembers domains. The zero value is ready; it is for one
// goroutine.
type FlagCache struct {
	domains [64]struct {
		name  string
		flags Flags
	}
}

// Of returns the flags of an address in any spelling, without its operator. A malformed address has none.
func (c *FlagCache) Of(email string) Flags {
	at := strings.LastIndexByte(email, '@')
	if at < 0 || at == len(email)-1 {
		return Flags{}
	}
	b, domain := knownFlags(), email[at+1:]
	one := &c.domains[(len(domain)*7+int(domain[0])*5+int(domain[len(domain)/2]))%len(c.domains)]
	if one.name != domain {
		var folded [64]byte
		one.name, one.flags = strings.Clone(domain), b.ofDomain(lower(folded[:0], domain))
	}
	f := one.flags
	f.Role = b.isRole(email[:at])
	return f
}

// lower appends the lower-case form of ASCII letters; it returns nothing for a text that is too long for every list.
func lower(to []byte, text string) []byte {
	if len(text) > cap(to) {
		return to
	}
	for i := range len(text) {
		c := text[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		to = append(to, c)
	}
	return to
}

// isRole reports whether a local part, up to a plus sign, names a function.
func (b *flagWords) isRole(local string) bool {
	if plus := strings.IndexByte(local, '+'); plus > 0 {
		local = local[:plus]
	}
	if local == "" || b.lengths[endsOf(local)]>>len(local)&1 == 0 { // this alone excludes most
		return false
	}
	var folded [64]byte
	return b.role[string(lower(folded[:0], local))]
}

// endsOf returns a number made of the first and last letter of a text, in any case.
func endsOf(text string) byte { return (text[0]|' ')*31 + (text[len(text)-1] | ' ') }

// ofDomain returns the flags of a domain, including the provider that was probably meant.
func (b *flagWords) ofDomain(domain []byte) Flags {
	if f, known := b.domains[string(domain)]; known {
		return f
	}
	return Flags{Suggest: b.suggestFor(domain)}
}

// suggestFor returns the provider that was probably meant by a domain; "" for none.
func (b *flagWords) suggestFor(domain []byte) string {
	if len(domain) == 0 {
		return ""
	}
	for _, p := range b.providers[domain[0]] { // the first letter must match: ymail.com is a name of its own
		if isTypo(domain, p.label, p.rest) {
			return p.name
		}
	}
	return ""
}

// comTypos are typing errors of "com".
const comTypos = " co cm om con cmo ocm comm coom ccom vom xom cim cpm c0m coml "

// isTypo reports whether a domain is one typing error away from a provider with the same first letter: in its name,
// or a known error in com.
func isTypo(domain []byte, name, rest string) bool {
	dot := len(domain) - len(rest) - 1
	if dot > 0 && domain[dot] == '.' && string(domain[dot+1:]) == rest {
		return isOneEdit(domain[:dot], name)
	}
	if rest != "com" || len(domain) <= len(name)+1 || string(domain[:len(name)]) != name || domain[len(name)] != '.' {
		return false
	}
	return strings.Contains(comTypos, " "+string(domain[len(name)+1:])+" ")
}

// isOneEdit reports whether one letter was dropped, swapped with its neighbour, doubled, replaced by or typed with
// one near it on the keyboard, or, in a long name, replaced by another vowel. Each is a Damerau-Levenshtein distance
// of 1; other edits of that distance too often give another real name.
func isOneEdit(got []byte, name string) bool {
	if d := len(got) - len(name); d < -1 || d > 1 {
		return false
	}
	at := 0
	for at < len(got) && at < len(name) && got[at] == name[at] {
		at++
	}
	switch g, n := got[at:], name[at:]; {
	case len(got) > len(name):
		return string(g[1:]) == n && (g[0] == name[at-1] || areNeighbours(g[0], name[at-1]) ||
			len(n) > 0 && areNeighbours(g[0], n[0]))
	case len(got) < len(name):
		return string(g) == n[1:]
	case len(g) == 0:
		return false // the name itself
	case string(g[1:]) == n[1:]:
		return areNeighbours(g[0], n[0]) || len(name) > 5 && isVowel(g[0]) && isVowel(n[0])
	default:
		return len(g) > 1 && g[0] == n[1] && g[1] == n[0] && string(g[2:]) == n[2:]
	}
}

func isVowel(c byte) bool { return strings.IndexByte("aeiou", c) >= 0 }

// keyboard has the rows of a keyboard, top first.
var keyboard = [...]string{"qwertyuiop", "asdfghjkl", "zxcvbnm"}

// areNeighbours reports whether two letters stand beside or above each other.
func areNeighbours(a, b byte) bool {
	ra, ca := keyOf(a)
	rb, cb := keyOf(b)
	return ra >= 0 && rb >= 0 && max(ra-rb, rb-ra) <= 1 && max(ca-cb, cb-ca) <= 1
}

func keyOf(c byte) (row, column int) {
	for row, keys := range keyboard {
		if column := strings.IndexByte(keys, c); column >= 0 {
			return row, column
		}
	}
	return -1, -1
}

// Sentences returns the flags as sentences for people.
func (f Flags) Sentences() (all []string) {
	say := func(is bool, sentence string) {
		if is {
			all = append(all, sentence)
		}
	}
	say(f.Suggest != "", "Its domain looks like a typing error for "+f.Suggest+".")
	say(f.Role, "It's a role address: it belongs to a function, such as sales, and not to one person.")
	say(f.Free, "Its provider gives anybody a mailbox for free.")
	say(f.Disposable, "Its domain gives out throwaway mailboxes.")
	say(f.Operator != "", "Its mail is received by "+f.Operator+".")
	return all
}

// Append writes flags after a message, as " [role free suggest=gmail.com operator=google]"; nothing when there are
// none.
func (f Flags) Append(b []byte) []byte {
	if f == (Flags{}) {
		return b
	}
	b = append(b, " ["...)
	for _, flag := range [...]struct {
		is   bool
		word string
	}{{f.Role, "role"}, {f.Free, "free"}, {f.Disposable, "disposable"}} {
		if flag.is {
			b = append(append(b, flag.word...), ' ')
		}
	}
	for _, flag := range [...]struct{ name, value string }{{"suggest", f.Suggest}, {"operator", f.Operator}} {
		if flag.value != "" {
			b = append(append(append(append(b, flag.name...), '='), flag.value...), ' ')
		}
	}
	b[len(b)-1] = ']'
	return b
}

// CutFlags separates a message from the flags that Append wrote.
func CutFlags(message string) (text string, f Flags) {
	at := strings.LastIndex(message, " [")
	if at < 0 || !strings.HasSuffix(message, "]") {
		return message, f
	}
	for word := range strings.FieldsSeq(message[at+2 : len(message)-1]) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "role":
			f.Role = true
		case "free":
			f.Free = true
		case "disposable":
			f.Disposable = true
		case "suggest":
			f.Suggest = value
		case "operator":
			f.Operator = value
		}
	}
	return message[:at], f
}

// Operator is the operator of a mail host: a fixed number from lists/operators.txt, which the ledger stores. 0:
// unknown.
type Operator uint8

// operators are the names by number, and the numbers by the ends of host names.
type operators struct {
	names [256]string
	ends  map[string]Operator
}

var knownOperators = sync.OnceValue(func() *operators {
	o := &operators{ends: map[string]Operator{}}
	l, err := readList("operators")
	if err != nil {
		return o // a test reads the file
	}
	for _, line := range l.words {
		words := strings.Fields(line)
		number, err := strconv.ParseUint(words[0], 10, 8)
		if err != nil {
			continue // as above
		}
		o.names[number] = words[1]
		for _, end := range words[2:] {
			o.ends[end] = Operator(number)
		}
	}
	return o
})

// OperatorOf returns the operator of a mail host by its name in lower case.
func OperatorOf(host string) Operator {
	ends := knownOperators().ends
	for {
		if o := ends[host]; o != 0 {
			return o
		}
		_, rest, more := strings.Cut(host, ".")
		if !more {
			return 0
		}
		host = rest
	}
}

// String returns the name of an operator, such as "google"; "" if unknown.
func (o Operator) String() string { return knownOperators().names[o] }
