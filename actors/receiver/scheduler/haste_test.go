package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// untold is a receiver with a limit by the second that it does not tell, as it counts
// itself: what it refuses counts too.
type untold struct {
	w        *world
	limit    int
	per      time.Duration
	word     smtp.Reply // to one too many; code 0: it refuses connections for as long as it is too many
	seen     []time.Time
	taken    int
	deferred int
}

var (
	tooMany = smtp.Reply{Code: 450, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{"Error: too many recipients, slow down"}}
	hangsUp = smtp.Reply{Code: 421, Enhanced: smtp.EnhancedCode{4, 7, 0}, Lines: []string{"rate limit exceeded"}}
	tryLate = smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{"rate limited, try again later"}}
)

// over says whether so many were asked within the last while that one more is too many.
func (u *untold) over(now time.Time) bool {
	for len(u.seen) > 0 && now.Sub(u.seen[0]) >= u.per {
		u.seen = u.seen[1:]
	}
	return len(u.seen) >= u.limit
}

func (u *untold) reply(*Probe, *simSession) smtp.Reply {
	now := u.w.rcpts[len(u.w.rcpts)-1]
	over := u.over(now)
	u.seen = append(u.seen, now)
	if over {
		u.deferred++
		return u.word
	}
	u.taken++
	return smtp.Reply{Code: 250}
}

func (u *untold) greet(string) error {
	if u.word.Code == 0 && u.over(u.w.now) {
		return errors.New("connection refused")
	}
	return nil
}

// stretch runs for a while and gives the part of the limit that was used, and the part of
// the replies that put us off.
func (u *untold) stretch(d time.Duration) (use, deferred float64) {
	u.taken, u.deferred = 0, 0
	u.w.run(u.w.now.Add(d))
	asked := max(1, u.taken+u.deferred)
	return float64(u.taken) * u.per.Seconds() / float64(u.limit) / d.Seconds(), float64(u.deferred) / float64(asked)
}

// feed keeps a scheduler busy: some tasks offer a chunk whenever one is answered.
func (w *world) feed(tasks int) {
	type side struct {
		chunk uint64
		left  int
	}
	sides := map[string]*side{}
	next := func(domain string) {
		s := sides[domain]
		s.chunk++
		s.left = wire.AddressesMax
		w.after(time.Second, func() {
			w.scheduler.Offer(w.now, Client{Name: domain}, offerOf(1, domain, s.chunk, wire.AddressesMax, hosts("mx1")))
		})
	}
	w.hear = func(to Client, msg proto.Message) {
		if m, ok := msg.(*wire.Results); ok {
			s := sides[m.GetTask().GetDomain()]
			if s.left -= len(m.GetAnswers()); s.left == 0 {
				next(m.GetTask().GetDomain())
			}
		}
		w.acknowledge(to, msg)
	}
	for n := range tasks {
		domain := fmt.Sprintf("d%d.example", n)
		sides[domain] = &side{}
		next(domain)
	}
}

// TestHiddenLimitIsFound: a scheduler finds a limit that it is not told, keeps to it, and finds
// it again when it becomes another.
func TestHiddenLimitIsFound(t *testing.T) {
	for i, tc := range []struct {
		name  string
		word  smtp.Reply
		limit int
		per   time.Duration
		turn  time.Duration
	}{
		{"450", tooMany, 10, time.Second, 30 * time.Millisecond},
		{"451 by the minute", tryLate, 300, time.Minute, 30 * time.Millisecond},
		{"421", hangsUp, 10, time.Second, 30 * time.Millisecond},
		{"fast", tooMany, 40, time.Second, 10 * time.Millisecond},
	} {
		if testing.Short() && i > 0 {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			a := openedWide()
			a.Connections, a.RcptRate = 20, throttle.Rate{Events: 4 * tc.limit, Per: tc.per}
			a.ConnectionRate = throttle.Rate{Events: 60, Per: time.Minute}
			w := newWorld(t, a, 1)
			w.turn, w.jitter = tc.turn, 5*time.Millisecond
			u := &untold{w: w, limit: tc.limit, per: tc.per, word: tc.word}
			w.reply, w.greet = u.reply, u.greet
			w.scheduler.options.Waits = []time.Duration{5 * time.Minute, 10 * time.Minute}
			w.feed(4)
			u.stretch(4 * time.Minute)
			for _, now := range []int{tc.limit, tc.limit / 2, tc.limit * 3 / 2} {
				u.limit = now
				first, lost := u.stretch(4 * time.Minute)
				use, deferred := u.stretch(max(6*time.Minute, 10*tc.per))
				t.Logf("%4d/%s: first %5.1f %% used, %.2f %% deferred; then %5.1f %%, %.2f %%; %d sessions, %s", now, tc.per,
					100*first, 100*lost, 100*use, 100*deferred, len(w.scheduler.pool.sessions), w.scheduler.paths.all[0].pace.Explain(w.now).Why)
				most := 0.01
				if tc.per == time.Minute { // it is found out late
					most = 0.03
				}
				if use < 0.85 || deferred > most {
					t.Errorf("%.1f %% used, %.2f %% deferred", 100*use, 100*deferred)
				}
			}
		})
	}
}

// TestUnknownSiteIsBegunGently, and one of which somebody has said something is not.
func TestUnknownSiteIsBegunGently(t *testing.T) {
	for _, stated := range []bool{false, true} {
		a := openedWide()
		a.RcptRate = throttle.Rate{Events: 5, Per: time.Second}
		w := newWorld(t, a, 1)
		w.scheduler.options.Stated = func(string) bool { return stated }
		w.scheduler.paths.beginRates(begin, a)
		w.feed(1)
		w.run(begin.Add(3 * time.Second))
		if n := len(w.rcpts); n == 0 || (n > 6) != stated {
			t.Errorf("stated %v: %d RCPTs at first", stated, n)
		}
		before := len(w.rcpts)
		w.run(begin.Add(13 * time.Second))
		w.run(begin.Add(23 * time.Second))
		if n := len(w.rcpts) - before; n < 75 {
			t.Errorf("stated %v: %d RCPTs in twenty seconds", stated, n)
		}
	}
}
