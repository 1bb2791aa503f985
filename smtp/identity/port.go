package identity

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"

	"rollcall/smtp"
)

const (
	// Port 25 counts as blocked when nobody answered a connection for silentFor, and silentMin receivers were tried.
	// Guesses.
	silentFor = 10 * time.Minute
	silentMin = 5

	// reachMax bounds the remembered receivers: enough to tell a blocked port from a list of dead domains. Guess.
	reachMax = 4096
)

// Reach remembers which receivers answered a connection. Safe for concurrent use. The zero Reach is ready.
type Reach struct {
	mu        sync.Mutex
	answered  time.Time // last answer of any receiver
	receivers map[string]tried
}

// tried is the result for one receiver.
type tried struct {
	at    time.Time // last dialled
	known bool      // it once answered
}

// Note records a connection attempt to a receiver, and whether it answered.
func (r *Reach) Note(receiver string, answered bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.receivers == nil {
		r.receivers = map[string]tried{}
	}
	was, there := r.receivers[receiver]
	if !there && len(r.receivers) >= reachMax && !r.forget(now) {
		return
	}
	r.receivers[receiver] = tried{at: now, known: was.known || answered}
	if answered {
		r.answered = now
	}
}

// forget makes room by removing receivers not dialled recently. It reports whether there is room now.
func (r *Reach) forget(now time.Time) bool {
	maps.DeleteFunc(r.receivers, func(_ string, t tried) bool { return now.Sub(t.at) >= silentFor })
	return len(r.receivers) < reachMax
}

// count returns how many receivers were dialled in vain since the last answer, within silentFor; how many of these
// had answered before; and whether any receiver ever answered.
func (r *Reach) count(now time.Time) (vain, known int, ever bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ever = !r.answered.IsZero(); ever && now.Sub(r.answered) < silentFor {
		return 0, 0, true
	}
	for _, t := range r.receivers {
		if now.Sub(t.at) < silentFor {
			vain++
			if t.known {
				known++
			}
		}
	}
	return vain, known, ever
}

// CheckReach judges port 25 by the node's own sessions. Dead hosts are common in old lists, so once receivers have
// answered, only the silence of those that once answered counts.
func CheckReach(r *Reach, now time.Time) Finding {
	f := Finding{Check: Port25, At: now}
	vain, known, ever := r.count(now)
	switch {
	case !ever && vain >= silentMin, known >= silentMin:
		f.State = Fail
		f.Saw = fmt.Sprintf("port 25 seems to be blocked: %d receivers dialled, none answered", vain)
		f.Next = "Ask your provider to open outgoing port 25, and check this machine's firewall."
	case vain > 0:
		f.State, f.Saw = OK, "few receivers dialled, none answered yet"
	case ever:
		f.State, f.Saw = OK, "receivers answer"
	default:
		f.State, f.Saw = Skipped, "no receiver dialled yet"
	}
	return f
}

// Way is one outgoing path of this machine.
type Way struct {
	Source string // its local address; "": chosen by the system
	Dial   smtp.Dialer
	Port   int
}

const (
	reachTime  = 15 * time.Second // for one host of identity.reach, from connect to greeting. Guess
	reachAddrs = 4                // tried per name
	lineMax    = 512              // bytes of a greeting's line (RFC 5321 §4.5.3.1.5)
)

// CheckPort dials the configured hosts in turn until one sends a greeting. It reads the greeting and sends QUIT.
func CheckPort(ctx context.Context, r Resolver, w Way, names []string) Finding {
	f := Finding{Check: Port25, Source: w.Source}
	var unasked error
	tried := 0
	for _, name := range names {
		found, err := hostsOf(ctx, r, name)
		if err != nil {
			unasked = err
		}
		for _, a := range found {
			tried++
			if greets(ctx, w, a) {
				f.State, f.Saw = OK, name+" greets us"
				return f
			}
		}
	}
	if tried == 0 {
		if unasked == nil {
			unasked = fmt.Errorf("no host of identity.reach has an address")
		}
		return notChecked(Port25, w.Source, unasked)
	}
	f.State, f.Saw = Fail, fmt.Sprintf("port %d seems to be blocked: no host of identity.reach greets", w.Port)
	f.Next = "Ask your provider to open outgoing port 25, and check this machine's firewall."
	return f
}

// hostsOf returns the addresses of a name's first MX, or of the name itself.
func hostsOf(ctx context.Context, r Resolver, name string) ([]netip.Addr, error) {
	records, err := r.Ask(ctx, name, dns.TypeMX)
	if err != nil {
		return nil, err
	}
	best := (*dns.MX)(nil)
	for _, rr := range records {
		if mx, ok := rr.(*dns.MX); ok && mx.Mx != "." && (best == nil || mx.Preference < best.Preference) {
			best = mx
		}
	}
	if best != nil {
		name = best.Mx
	}
	found, err := addresses(ctx, r, name)
	if len(found) > 0 {
		err = nil
	}
	return slices.Clip(found[:min(len(found), reachAddrs)]), err
}

// greets reports whether a host sends a greeting.
func greets(ctx context.Context, w Way, to netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	conn, err := w.Dial.DialContext(ctx, "tcp", net.JoinHostPort(to.String(), strconv.Itoa(w.Port)))
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return Greets(conn)
}

// Greets reads a whole greeting, sends QUIT and waits for the reply. It reports whether there was a greeting, even one
// that refuses us. Some servers (postscreen) send the first line early to catch clients that send before the last line.
func Greets(conn net.Conn) bool {
	lines := bufio.NewReaderSize(io.LimitReader(conn, int64(smtp.DefaultLimits().ReplyBytes)), lineMax)
	for more := true; more; {
		line, err := lines.ReadSlice('\n')
		if err != nil || len(line) < 4 || line[0] < '2' || line[0] > '5' {
			return false
		}
		more = line[3] == '-'
	}
	_, _ = io.WriteString(conn, "QUIT\r\n") // for politeness; the result does not matter
	_, _ = lines.ReadSlice('\n')
	return true
}
