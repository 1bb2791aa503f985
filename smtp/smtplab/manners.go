package smtplab

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Sheet is the behaviour of clients since the lab started. SessionsAtOnce of Total may include sessions that are
// just closing; that of receivers and hosts does not.
type Sheet struct {
	Receivers map[string]Tally `json:"receivers"` // by registrable name
	Hosts     map[string]Tally `json:"hosts"`
	Total     Tally            `json:"total"` // of all receivers together
	DNS       DNSTally         `json:"dns"`

	Addresses       int `json:"addresses"`         // distinct addresses asked
	AddressRcptsMax int `json:"address_rcpts_max"` // the most RCPTs for one of them
	Uncounted       int `json:"uncounted"`         // RCPTs for addresses beyond Options.AddressesMax
	EventsDropped   int `json:"events_dropped"`    // beyond Options.EventsMax

	// Tripped is how often each guard acted, by Guard.String; only guards that acted are in it.
	Tripped map[string]int `json:"tripped"`
}

// Tally is the clients' behaviour at one receiver or host. Windows are exact below 65,536 events; that number means
// "at least".
type Tally struct {
	Sessions          int       `json:"sessions"`            // opened, refused ones too
	SessionsOpen      int       `json:"sessions_open"`       // at this moment
	SessionsAtOnce    int       `json:"sessions_at_once"`    // the most
	SessionsIn1s      int       `json:"sessions_in_1s"`      // the most opened in any second
	SessionsIn60s     int       `json:"sessions_in_60s"`     // the most opened in any minute
	FirstSession      time.Time `json:"first_session"`       // zero: none
	LastSession       time.Time `json:"last_session"`        // when it was opened
	Rcpts             int       `json:"rcpts"`               // RCPT commands
	RcptsIn1s         int       `json:"rcpts_in_1s"`         // the most in any second
	RcptsIn60s        int       `json:"rcpts_in_60s"`        // the most in any minute
	RcptsPerSession   int       `json:"rcpts_per_session"`   // the most
	RcptsPerTx        int       `json:"rcpts_per_tx"`        // the most in one transaction
	Accepted          int       `json:"accepted"`            // RCPTs answered 2xx
	Deferred          int       `json:"deferred"`            // RCPTs answered 4xx
	Refused           int       `json:"refused"`             // RCPTs answered 5xx
	RefusedPerSession int       `json:"refused_per_session"` // the most in one session
	LimitsHit         int       `json:"limits_hit"`          // times that a limit or guard stepped in
	Tripped           int       `json:"tripped"`             // of these by a harvest guard
	TooEarly          int       `json:"too_early"`           // greylisted, repeated before the stated time
	Data              int       `json:"data"`                // DATA and BDAT commands: must be 0
	OutOfOrder        int       `json:"out_of_order"`        // commands refused with 503
	UnaskedGroups     int       `json:"unasked_groups"`      // commands sent ahead without PIPELINING
	EarlyTalk         int       `json:"early_talk"`          // bytes before the greeting
	Rsets             int       `json:"rsets"`
	Quits             int       `json:"quits"`
	HungUp            int       `json:"hung_up"` // sessions that the client ended without QUIT
	TLS               int       `json:"tls"`     // encrypted sessions
}

// DNSTally counts the questions.
type DNSTally struct {
	Queries int            `json:"queries"`
	TCP     int            `json:"tcp"` // of these over TCP
	ByType  map[string]int `json:"by_type"`
	Zones   int            `json:"zones"` // distinct domains asked for
}

// Event is one action of a client.
type Event struct {
	At      time.Time `json:"at"`
	Host    string    `json:"host"`
	Client  string    `json:"client"`
	Session int       `json:"session"` // counts from 1
	Kind    string    `json:"kind"`    // connect, rcpt, end
	Address string    `json:"address"` // rcpt: as sent
	Code    int       `json:"code"`    // rcpt: the reply code, 0 for none
}

// zonesMax bounds the zones that DNS counts separately; guess, twice the domains of the largest run.
const zonesMax = 2_000_000

type manners struct {
	options Options
	seed    maphash.Seed
	total   *tally
	shards  [addressShards]addressShard

	mu        sync.Mutex // guards the fields below
	receivers map[string]*tally
	hosts     map[string]*tally
	dns       DNSTally
	zones     map[uint64]struct{}
	events    []Event
	dropped   int
	tripped   map[string]int // by guard
}

// addressShards is the number of locks for the counts of addresses: more than the processors of any laptop.
const addressShards = 64

type addressShard struct {
	mu     sync.Mutex // guards the fields below
	counts map[uint64]uint32
	most   uint32
	spill  int
}

func newManners(o Options) *manners {
	m := &manners{
		options: o, seed: maphash.MakeSeed(), total: newTally(),
		receivers: make(map[string]*tally), hosts: make(map[string]*tally),
		zones: make(map[uint64]struct{}), tripped: make(map[string]int),
		dns: DNSTally{ByType: make(map[string]int)},
	}
	for i := range m.shards {
		m.shards[i].counts = make(map[uint64]uint32)
	}
	return m
}

func (m *manners) receiver(name string) *tally { return m.tallyIn(m.receivers, name) }

func (m *manners) host(name string) *tally { return m.tallyIn(m.hosts, name) }

func (m *manners) tallyIn(all map[string]*tally, name string) *tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := all[name]
	if t == nil {
		t = newTally()
		all[name] = t
	}
	return t
}

func (m *manners) query(zone string, qtype uint16, udp bool) {
	key := maphash.String(m.seed, zone)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dns.Queries++
	if !udp {
		m.dns.TCP++
	}
	m.dns.ByType[cmp.Or(dns.TypeToString[qtype], "other")]++
	if len(m.zones) < zonesMax {
		m.zones[key] = struct{}{}
	}
}

// address counts one RCPT for an address, as it was sent.
func (m *manners) address(address []byte) {
	key := maphash.Bytes(m.seed, address)
	s := &m.shards[key%addressShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.counts[key]
	if !known && len(s.counts) >= m.options.AddressesMax/addressShards {
		s.spill++
		return
	}
	s.counts[key] = n + 1
	s.most = max(s.most, n+1)
}

func (m *manners) event(e Event) {
	if m.options.EventsMax == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) >= m.options.EventsMax {
		m.dropped++
		return
	}
	m.events = append(m.events, e)
}

func (m *manners) trip(g Guard) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tripped[g.String()]++
}

// Manners returns the current sheet.
func (l *Lab) Manners() Sheet {
	m := l.manners
	s := Sheet{Total: m.total.snapshot()}
	for i := range m.shards {
		shard := &m.shards[i]
		shard.mu.Lock()
		s.Addresses += len(shard.counts)
		s.AddressRcptsMax = max(s.AddressRcptsMax, int(shard.most))
		s.Uncounted += shard.spill
		shard.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Receivers = snapshots(m.receivers)
	s.Hosts = snapshots(m.hosts)
	s.EventsDropped = m.dropped
	s.Tripped = maps.Clone(m.tripped)
	s.DNS = m.dns
	s.DNS.Zones = len(m.zones)
	s.DNS.ByType = maps.Clone(m.dns.ByType)
	return s
}

func snapshots(all map[string]*tally) map[string]Tally {
	out := make(map[string]Tally, len(all))
	for name, t := range all {
		out[name] = t.snapshot()
	}
	return out
}

// Rcpts returns how often an address was asked for, spelled exactly as in RCPT; 0 beyond Options.AddressesMax.
func (l *Lab) Rcpts(address string) int {
	key := maphash.String(l.manners.seed, address)
	s := &l.manners.shards[key%addressShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.counts[key])
}

// Events returns a copy of the log, oldest first; empty without Options.EventsMax.
func (l *Lab) Events() []Event { return l.eventsAfter(0) }

// eventsAfter returns a copy of the log without its first n events.
func (l *Lab) eventsAfter(n int) []Event {
	l.manners.mu.Lock()
	defer l.manners.mu.Unlock()
	events := l.manners.events
	return append([]Event(nil), events[min(n, len(events)):]...)
}

// tally is a Tally with a lock. It is safe for concurrent use.
type tally struct {
	mu          sync.Mutex // guards the fields below
	t           Tally
	connects1s  window
	connects60s window
	rcpts1s     window
	rcpts60s    window
}

func newTally() *tally {
	return &tally{
		connects1s: window{span: time.Second}, connects60s: window{span: time.Minute},
		rcpts1s: window{span: time.Second}, rcpts60s: window{span: time.Minute},
	}
}

func (t *tally) snapshot() Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.t
	out.SessionsIn1s, out.SessionsIn60s = t.connects1s.most, t.connects60s.most
	out.RcptsIn1s, out.RcptsIn60s = t.rcpts1s.most, t.rcpts60s.most
	return out
}

func (t *tally) change(f func(*Tally)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.t)
}

// tallies are those that include a session: of all, of its receiver and of its host.
type tallies [3]*tally

// count changes every one.
func (t tallies) count(f func(*Tally)) {
	for _, one := range t {
		one.change(f)
	}
}

func (t tallies) limitHit() { t.count(func(t *Tally) { t.LimitsHit++ }) }

// opened counts a session and returns the number of sessions so far. open is the number of open sessions, this one
// included; 0: the tally counts them itself.
func (t *tally) opened(now time.Time, open int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.t.Sessions++
	t.t.SessionsOpen++
	if open == 0 {
		open = t.t.SessionsOpen
	}
	t.t.SessionsAtOnce = max(t.t.SessionsAtOnce, open)
	if t.t.FirstSession.IsZero() {
		t.t.FirstSession = now
	}
	t.t.LastSession = now
	t.connects1s.add(now)
	t.connects60s.add(now)
	return t.t.Sessions
}

// rcpt counts one RCPT with its reply code and its session's figures.
func (t *tally) rcpt(now time.Time, code int, f sessionFigures) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.t.Rcpts++
	switch code / 100 {
	case 2:
		t.t.Accepted++
	case 4:
		t.t.Deferred++
	case 5:
		t.t.Refused++
	}
	t.rcpts1s.add(now)
	t.rcpts60s.add(now)
	t.t.RcptsPerSession = max(t.t.RcptsPerSession, f.rcpts)
	t.t.RcptsPerTx = max(t.t.RcptsPerTx, f.rcptsInTx)
	t.t.RefusedPerSession = max(t.t.RefusedPerSession, f.refused)
}

// ServeHTTP shows the lab to a referee in another process, as JSON:
//
//	GET /sheet            the manners sheet as it is now (Sheet)
//	GET /events?after=N   the log of events without its first N, one per line (Event)
//
// Both need nothing of the reader: whoever may connect may read, so the socket
// belongs on loopback or a network of tests.
func (l *Lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case "/sheet":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(l.Manners()) // fails when the reader has gone
	case "/events":
		after, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("after"), "0"))
		if err != nil || after < 0 {
			http.Error(w, "after is not a number of events", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines := json.NewEncoder(w)
		for _, e := range l.eventsAfter(after) {
			if lines.Encode(e) != nil {
				return
			}
		}
	default:
		http.NotFound(w, r)
	}
}
