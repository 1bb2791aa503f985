package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// causesOf plays a world of 6 domains and two customers, and gives the attempts of its answers.
func causesOf(t *testing.T, far *unknownReceiver, seed uint64, span time.Duration) []evidence.Attempt {
	t.Helper()
	told := openedWide()
	told.ConnectionRate, told.RcptRate = rate(50, time.Second), rate(40, time.Second)
	tr := newTrial(t, told, true, far, seed)
	tr.turn, tr.jitter = 20*time.Millisecond, 5*time.Millisecond
	var all []evidence.Attempt
	tr.hear = func(to Client, msg proto.Message) {
		if m, ok := msg.(*wire.Results); ok {
			for _, a := range answersOf(m) {
				all = append(all, a.attempts...)
			}
		}
		tr.heardOf(to, msg)
	}
	for d := range 12 {
		tr.add(d%2, fmt.Sprintf("d%d.example", d/2), int(span.Seconds())*4, far.route())
	}
	tr.play(begin.Add(span))
	return all
}

// TestTheCauseIsInTheEvidence: in worlds whose truth is known, attempts that were put off, refused or cut
// say which scope was believed, and by which trials, in one sentence without a name; good ones never do.
func TestTheCauseIsInTheEvidence(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	odd := func(share float64, of int) []oddOf {
		return []oddOf{{share: share, of: of, reply: smtp.Reply{Code: 451, Lines: []string{"qwe rty"}}}}
	}
	blocked := []stretch{{begin.Add(time.Minute), begin.Add(4 * time.Minute)}}
	for name, c := range map[string]struct {
		far   unknownReceiver
		want  []evidence.Scope
		words []string // of which one is in the sentence
		least float64  // share of the bad attempts that have a cause
	}{
		"too fast": {unknownReceiver{limit: limitOf{rcpts: rate(8, time.Second), countsBad: true}},
			[]evidence.Scope{evidence.ScopeReceiver}, []string{"new addresses, of ", "pass now that we go slower"}, 0.4},
		"source refused": {unknownReceiver{blocked: blocked},
			[]evidence.Scope{evidence.ScopeSource}, []string{"got 550 5.7.1"}, 0.9},
		"odd addresses": {unknownReceiver{odd: odd(0.05, 0)}, []evidence.Scope{evidence.ScopeAddress},
			[]string{"while others were answered", "put off before too", "most others that got 451"}, 0.9},
		"one customer's list": {unknownReceiver{odd: odd(0.8, 1)}, []evidence.Scope{evidence.ScopeTenant, evidence.ScopeDomain,
			evidence.ScopeAddress}, []string{"others are answered", "others were answered", "put off before too", "most others"}, 0.9},
		"one host": {unknownReceiver{ill: illHost{"mx1.example", stretch{begin, begin.Add(time.Hour)}, 1,
			smtp.Reply{Code: 451, Lines: []string{"qwe rty"}}}}, []evidence.Scope{evidence.ScopeHost},
			[]string{"others are asked first", "others are answered"}, 0.7},
	} {
		for seed := range effort.Seeds(t, 2) {
			far := c.far
			far.words = gibberish(rand.New(rand.NewPCG(seed, 8)))
			bad, caused, hit := 0, 0, 0
			for _, a := range causesOf(t, &far, seed, 5*time.Minute) {
				isBad := a.Code == 0 || a.Code/100 == 4 || a.Enhanced == (smtp.EnhancedCode{5, 7, 1})
				if isBad {
					bad++
				}
				if a.Cause == (evidence.Cause{}) {
					if a.Others {
						t.Errorf("%s, seed %d: it waited for others, and nobody says why: %+v", name, seed, a)
					}
					continue
				}
				if !isBad || a.Cause.Scope == evidence.ScopeNone || a.Cause.Why == "" ||
					len(a.Cause.Why) > evidence.WhyMax || strings.ContainsAny(a.Cause.Why, "@\n") ||
					strings.Contains(a.Cause.Why, ".example") || strings.Contains(a.Cause.Why, far.words) {
					t.Fatalf("%s, seed %d: %+v", name, seed, a)
				}
				if caused++; slices.Contains(c.want, a.Cause.Scope) && containsAny(a.Cause.Why, c.words) {
					hit++
				}
			}
			if bad == 0 || float64(caused) < c.least*float64(bad) || float64(hit) < 0.9*float64(caused) {
				t.Errorf("%s, seed %d: %d bad, %d of them with a cause, %d with the true one", name, seed, bad, caused, hit)
			}
		}
	}
}

func containsAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}
