package identity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// askedAgain is how long a block list's answer stays valid: the operators of lists want few queries, and a listing
// changes in hours.
const askedAgain = 24 * time.Hour

// Lists asks block lists (RFC 5782) about sources, each list once a day about each source, whatever the result. Safe
// for concurrent use.
type Lists struct {
	names []string
	load  func() ([]byte, error) // stored answers; nil bytes: none
	keep  func([]byte) error
	mu    sync.Mutex
	known map[string]listed // by list and source; nil: not loaded yet
}

// listed is a list's answer about a source.
type listed struct {
	At    time.Time `json:"at"`
	State State     `json:"state"`
	Saw   string    `json:"saw"`
	Next  string    `json:"next,omitempty"`
}

// NewLists makes Lists for the named block lists. Load and keep store the answers, so that a restart does not ask
// again.
func NewLists(names []string, load func() ([]byte, error), keep func([]byte) error) *Lists {
	return &Lists{names: names, load: load, keep: keep}
}

// Check returns each list's finding about a source. It asks the lists that were not asked within a day.
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

// remember loads the stored answers once. It ignores unreadable ones.
func (l *Lists) remember() {
	if l.known != nil {
		return
	}
	if text, err := l.load(); err != nil || json.Unmarshal(text, &l.known) != nil || l.known == nil {
		l.known = map[string]listed{}
	}
}

// save stores the answers that are still valid. If it fails, a restart asks again.
func (l *Lists) save(now time.Time) {
	maps.DeleteFunc(l.known, func(_ string, a listed) bool { return now.Sub(a.At) >= askedAgain })
	if text, err := json.Marshal(l.known); err == nil {
		_ = l.keep(text)
	}
}

// Answers of block lists.
var (
	listAnswers = netip.MustParsePrefix("127.0.0.0/8")      // RFC 5782 §2.1
	listRefuses = netip.MustParsePrefix("127.255.255.0/24") // large lists: questions of this kind are refused
	notListed   = netip.MustParseAddr("127.0.0.1")          // RFC 5782 §5: never an entry
)

func askList(ctx context.Context, r Resolver, list string, a netip.Addr) listed {
	records, err := r.Ask(ctx, listName(a, list), dns.TypeA)
	if err != nil {
		return listed{State: Skipped, Saw: list + " not checked: " + err.Error(), Next: "It is asked again tomorrow."}
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
			return listed{State: Skipped, Saw: fmt.Sprintf("%s answers %s, which is no answer of a block list", list, found),
				Next: "Check the name in identity.block_lists: the list may have ended."}
		}
		answer = found
	}
	return listed{State: Fail, Saw: fmt.Sprintf("%s has it (%s)", list, answer),
		Next: fmt.Sprintf("Find out why on the website of %s, mend it, and ask there to be taken off.", list)}
}

// listName returns the name to ask a list for about an address (RFC 5782 §2.1 and §2.4): its reverse name, under the
// list.
func listName(a netip.Addr, list string) string {
	reverse, err := dns.ReverseAddr(a.String())
	if err != nil {
		return list // an address always has a reverse name
	}
	reverse = strings.TrimSuffix(strings.TrimSuffix(reverse, "in-addr.arpa."), "ip6.arpa.")
	return reverse + strings.Trim(list, ".")
}
