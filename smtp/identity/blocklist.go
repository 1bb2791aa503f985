package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// askedAgain is how long a block list's answer is believed: lists ask senders to be
// sparing, and a listing changes in hours.
const askedAgain = 24 * time.Hour

// Lists asks block lists (RFC 5782) about sources: each list once a day about each
// source, whatever came of it. Safe for concurrent use.
type Lists struct {
	names []string
	load  func() ([]byte, error) // what was kept; nil bytes: nothing
	keep  func([]byte) error
	mu    sync.Mutex
	known map[string]listed // by list and source; nil: not loaded yet
}

// listed is what a list said about a source.
type listed struct {
	At    time.Time `json:"at"`
	State State     `json:"state"`
	Saw   string    `json:"saw"`
	Next  string    `json:"next,omitempty"`
}

// NewLists makes Lists of the names of block lists. Load and keep hold the answers over
// a restart, so that one is no reason to ask again.
func NewLists(names []string, load func() ([]byte, error), keep func([]byte) error) *Lists {
	return &Lists{names: names, load: load, keep: keep}
}

// Check returns what each list says about a source, asking those that were not asked
// within a day.
func (l *Lists) Check(ctx context.Context, r Resolver, s Source, now time.Time) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remember()
	var out []Finding
	asked := false
	for _, list := range l.names {
		key := list + " " + s.Addr.String()
		a, known := l.known[key]
		if age := now.Sub(a.At); !known || age < 0 || age >= askedAgain {
			a = askList(ctx, r, list, s.Addr)
			a.At = now
			l.known[key], asked = a, true
		}
		out = append(out, Finding{Check: BlockList, Source: s.Addr.String(), List: list, State: a.State,
			Saw: a.Saw, Next: a.Next, At: a.At})
	}
	if asked {
		l.save(now)
	}
	return out
}

// remember reads once what was kept. What cannot be read is as nothing.
func (l *Lists) remember() {
	if l.known != nil {
		return
	}
	l.known = map[string]listed{}
	if text, err := l.load(); err == nil && len(text) > 0 {
		if json.Unmarshal(text, &l.known) != nil || l.known == nil {
			l.known = map[string]listed{}
		}
	}
}

// save keeps the answers that are not too old. It may fail: then a restart asks again.
func (l *Lists) save(now time.Time) {
	for key, a := range l.known {
		if now.Sub(a.At) >= askedAgain {
			delete(l.known, key)
		}
	}
	if text, err := json.Marshal(l.known); err == nil {
		_ = l.keep(text)
	}
}

// Answers of block lists.
var (
	listAnswers = netip.MustParsePrefix("127.0.0.0/8")      // RFC 5782 §2.1
	listRefuses = netip.MustParsePrefix("127.255.255.0/24") // large lists: you may not ask like this
	notListed   = netip.MustParseAddr("127.0.0.1")          // RFC 5782 §5: never an entry
)

// askList asks one list about one address.
func askList(ctx context.Context, r Resolver, list string, a netip.Addr) listed {
	records, err := r.Ask(ctx, listName(a, list), dns.TypeA)
	if err != nil {
		return listed{State: Skipped, Saw: list + " not checked: " + err.Error(),
			Next: "It is asked again tomorrow."}
	}
	if len(records) == 0 {
		return listed{State: OK, Saw: "not on " + list}
	}
	answer := netip.Addr{}
	for _, rr := range records {
		found, ok := addrOf(rr)
		switch {
		case ok && listRefuses.Contains(found):
			return listed{State: Skipped, Saw: fmt.Sprintf("%s did not answer: you asked through a public resolver, "+
				"or too often (%s)", list, found), Next: "Name a resolver of your own in [dns] servers, or take the " +
				"list out of identity.block_lists."}
		case !ok || !listAnswers.Contains(found) || found == notListed:
			return listed{State: Skipped,
				Saw:  fmt.Sprintf("%s answers %s, which is no answer of a block list", list, found),
				Next: "Check the name in identity.block_lists: the list may have ended."}
		}
		answer = found
	}
	return listed{State: Fail, Saw: fmt.Sprintf("%s has it (%s)", list, answer),
		Next: fmt.Sprintf("Find out why on the website of %s, mend it, and ask there to be taken off.", list)}
}

// listName is the name to ask a list about an address (RFC 5782 §2.1 and §2.4): its
// reverse name, under the list.
func listName(a netip.Addr, list string) string {
	reverse, err := dns.ReverseAddr(a.String())
	if err != nil {
		return list // an address always has a reverse name
	}
	reverse = strings.TrimSuffix(strings.TrimSuffix(reverse, "in-addr.arpa."), "ip6.arpa.")
	return reverse + strings.Trim(list, ".")
}
