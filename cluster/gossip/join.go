package gossip

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/memberlist"
)

// resolveTimeout bounds looking up one name. Go's resolver would usually try twice for 5 s each, which is too long
// for a start.
const resolveTimeout = 5 * time.Second

// joinRoundMax bounds the addresses tried in one round, and joinAtOnce those tried at the same time. After a
// partition has healed, one member that answers brings all the others. Guess.
const (
	joinRoundMax = 32
	joinAtOnce   = 8
)

// refusedTextsMax bounds how many refusals an error lists.
const refusedTextsMax = 3

// errUnreached means that no member answered at an address.
var errUnreached = errors.New("cannot be reached")

// join tries all addresses where no member is known. It returns nil if there are no such addresses or one member
// accepted this node, ErrRefused if every member that answered refused it, and errUnreached if none answered.
func (g *Gossip) join(ctx context.Context) error {
	absent := g.absent(ctx)
	if len(absent) == 0 {
		return nil
	}
	var mu sync.Mutex
	var refused []string
	joined := 0
	var tries sync.WaitGroup
	slots := make(chan struct{}, joinAtOnce)
	for _, address := range absent {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		tries.Go(func() {
			defer func() { <-slots }()
			err := g.try(address)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				joined++
			case !errors.Is(err, errUnreached):
				refused = append(refused, err.Error())
			}
		})
	}
	tries.Wait()
	switch {
	case joined > 0 || ctx.Err() != nil:
		return nil
	case len(refused) > 0:
		slices.Sort(refused)
		return fmt.Errorf("%w: %s", ErrRefused, strings.Join(refused[:min(len(refused), refusedTextsMax)], "; "))
	}
	return fmt.Errorf("%d addresses: %w", len(absent), errUnreached)
}

// try joins at one address. The error is errUnreached or names the member that refused us.
func (g *Gossip) try(address string) error {
	if g.table.addresses()[address] {
		return nil // another try found this member
	}
	a := g.filter.begin(address)
	defer g.filter.end(address)
	_, err := g.list.Join([]string{address})
	if err == nil {
		return nil
	}
	reached, cause := a.result()
	if !reached || errors.Is(cause, errSilent) {
		return fmt.Errorf("%s %w", address, errUnreached)
	}
	if cause != nil {
		return fmt.Errorf("the member at %s refuses this node: %w", address, cause)
	}
	// The library puts the error of check into a list of texts.
	text := err.Error()
	if _, after, ok := strings.Cut(text, "failed to join "+address+": "); ok {
		text = strings.TrimSpace(after)
	}
	return fmt.Errorf("joining by %s: %s", address, text)
}

// absent returns addresses of seeds and vanished members at which no member is known now, in random order, at most
// joinRoundMax.
func (g *Gossip) absent(ctx context.Context) []string {
	wanted := g.table.lost(time.Now())
	found := make([][]string, len(g.seeds))
	var lookups sync.WaitGroup
	for i, seed := range g.seeds {
		lookups.Go(func() {
			var err error
			if found[i], err = resolveSeed(ctx, seed); err != nil {
				g.limiter.warn("resolve "+seed, "address to join is unknown", "address", seed, "err", err)
			}
		})
	}
	lookups.Wait()
	wanted = append(wanted, slices.Concat(found...)...)
	present := g.table.addresses()
	present[g.Address()] = true
	slices.Sort(wanted)
	wanted = slices.DeleteFunc(slices.Compact(wanted), func(a string) bool { return present[a] })
	rand.Shuffle(len(wanted), func(i, j int) { wanted[i], wanted[j] = wanted[j], wanted[i] })
	return wanted[:min(len(wanted), joinRoundMax)]
}

func resolveSeed(ctx context.Context, seed string) ([]string, error) {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, ip := range ips {
		addresses = append(addresses, netip.AddrPortFrom(ip.Unmap().WithZone(""), uint16(number)).String())
	}
	return addresses, nil
}

// rejoin keeps trying absent addresses. Without it, the two sides of a healed partition would stay apart, because the
// library forgets a dead member after DeadTime.
func (g *Gossip) rejoin(ctx context.Context) {
	tick := time.Tick(g.timing.RejoinEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		err := g.join(ctx)
		switch {
		case errors.Is(err, ErrRefused):
			g.limiter.warn("rejoin refused", "members refuse this node", "err", err)
		case err != nil:
			g.sayAlone(err)
		}
	}
}

// sayAlone warns when this node sees no other member.
func (g *Gossip) sayAlone(err error) {
	if len(g.table.addresses()) == 1 && len(g.seeds) > 0 {
		g.limiter.warn("alone", "no member to join answers: this node is alone and keeps trying", "join", g.seeds, "err", err)
	}
}

// refusal is why a node cannot be a member here.
type refusal struct {
	what string // for a metric: ledger, wire, card, protocol, full
	text string // for people: which node, what differs, what to do
}

func (r *refusal) Error() string { return r.text }

// check is the only place that decides whether a node may be a member: n describes that node, self this process. The
// text is for the logs of both sides, as each checks the other.
func check(n *memberlist.Node, self NodeMeta) *refusal {
	card, err := decodeNodeMeta(n.Meta)
	if err != nil || card.Session.String() != n.Name {
		return &refusal{"card", fmt.Sprintf("the node at %s: %v", n.Address(), errNodeMeta)}
	}
	who := fmt.Sprintf("node %q (%s) at %s", card.Name, card.Node, n.Address())
	switch {
	case card.Ledger != self.Ledger:
		return &refusal{"ledger", fmt.Sprintf("%s works on ledger %s, node %q on ledger %s: give both the same "+
			"ledger.url, or different cluster.name to keep them apart", who, card.Ledger, self.Name, self.Ledger)}
	case card.Wire != self.Wire:
		return &refusal{"wire", fmt.Sprintf("%s (program %s) speaks wire version %d, node %q (program %s) %d: run "+
			"programs of one wire version", who, card.Version, card.Wire, self.Name, self.Version, self.Wire)}
	case n.PCur != protocol || n.PMin > protocol || n.PMax < protocol || n.DMin != 0 || n.DMax != 0 || n.DCur != 0:
		// A member with another protocol version would make every later exchange of states fail.
		return &refusal{"protocol", fmt.Sprintf("%s speaks another version of the gossip protocol (%d): run the "+
			"same program everywhere", who, n.PCur)}
	}
	return nil
}

// events receives the library's events. It is called with the library's lock held.
type events struct{ g *Gossip }

func (e events) NotifyJoin(n *memberlist.Node)   { e.g.table.put(n, time.Now()) }
func (e events) NotifyUpdate(n *memberlist.Node) { e.g.table.put(n, time.Now()) }
func (e events) NotifyLeave(n *memberlist.Node)  { e.g.table.drop(n, time.Now()) }

// NotifyAlive implements memberlist.AliveDelegate. The library calls it for every message, in packets or streams,
// that says that a node is alive.
func (e events) NotifyAlive(n *memberlist.Node) error {
	if n.Name == e.g.self.Session.String() {
		return nil
	}
	if r := check(n, e.g.self); r != nil {
		return e.g.refuse(r, n)
	}
	if session, err := uuid.Parse(n.Name); err == nil {
		switch refused, room := e.g.table.takes(session); {
		case refused:
			return e.g.refuse(&refusal{"ledger", e.g.copied(n.Address())}, n)
		case !room:
			return e.g.refuse(&refusal{"full", fmt.Sprintf("the node at %s finds no room: there are %d members", n.Address(),
				membersMax)}, n)
		}
	}
	e.g.table.mark(n.Name, false)
	return nil
}

// NotifyMerge implements memberlist.MergeDelegate. The library calls it on both sides of a join, with all members
// that the other side knows.
func (e events) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if n.State != memberlist.StateAlive && n.State != memberlist.StateSuspect || n.Name == e.g.self.Session.String() {
			continue
		}
		if r := check(n, e.g.self); r != nil {
			return e.g.refuse(r, n)
		}
	}
	return nil
}

// Refuse makes this process drop a member for good, because the member works on another ledger with the same
// identity. A second call does nothing.
func (g *Gossip) Refuse(session uuid.UUID) {
	m := g.table.refuse(session)
	if m == nil {
		return
	}
	g.meters.refuse("ledger")
	g.log.Error("node is refused", "node", m.Name, "id", m.Node, "address", m.Address, "err", g.copied(m.Address))
}

// copied returns why a former member, the node at an address, is refused.
func (g *Gossip) copied(address string) string {
	return fmt.Sprintf("the node at %s works on another ledger with the same identity %s as that of node %q, so one is a copy of "+
		"the other: stop all nodes of the copy, run `rollcall ledger renew` on it, and start them again", address,
		g.self.Ledger, g.self.Name)
}

func (g *Gossip) refuse(r *refusal, n *memberlist.Node) error {
	g.meters.refuse(r.what)
	g.limiter.warn("refused "+r.what+" "+n.Address(), "node is refused", "err", r.text)
	return r
}
