package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// valueOf reads a metric.
func valueOf(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var d dto.Metric
	effort.OK(t, m.Write(&d))
	return d.GetGauge().GetValue() + d.GetCounter().GetValue()
}

// tenths answers every tenth address with 550 and every twentieth with 450, each time.
func tenths() func(*Probe, *simSession) smtp.Reply {
	return func(p *Probe, _ *simSession) smtp.Reply {
		switch n := p.ordinal + 1; {
		case n%20 == 0:
			return smtp.Reply{Code: 452, Enhanced: smtp.EnhancedCode{4, 2, 2}, Lines: []string{"mailbox full"}}
		case n%10 == 0:
			return smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1},
				Lines: []string{p.Address.Local + " unknown user"}}
		}
		return smtp.Reply{Code: 250, Lines: []string{"ok"}}
	}
}

// fill offers chunks of 500 addresses, two of each domain.
func (w *world) fill(chunks uint64) {
	for i := range chunks {
		m := offerOf(1, fmt.Sprintf("domain-%d.example", i/2), i, wire.AddressesMax, hosts("mx1.example"))
		w.after(0, func() { w.scheduler.Offer(w.now, Client{Name: "c"}, m) })
	}
}

func TestASchedulerTellsWhatItDoes(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 20, Per: time.Second}
	w := newWorld(t, a, 1)
	reply, deferred := tenths(), 0
	w.reply = func(p *Probe, s *simSession) smtp.Reply {
		r := reply(p, s)
		if r.Code/100 == 4 { // also when it is looked at again
			deferred++
		}
		return r
	}
	w.fill(4)
	w.run(begin.Add(30 * time.Second))
	got := w.scheduler.Status(w.now)
	asked := len(w.rcpts)
	putOff := float64(deferred) / float64(asked)
	if got.Key != "example" || got.State != "asking" || got.Cause != "allowance" || !strings.Contains(got.Why, "20") {
		t.Errorf("it says %q, %q because of %q (%s)", got.Key, got.State, got.Cause, got.Why)
	}
	if got.Rcpts < 19 || got.Rcpts > 20 || got.Allowed != 20 || got.PerHour < 60_000 || got.PerHour > 72_000 {
		t.Errorf("%v RCPT/s of %v, %d an hour", got.Rcpts, got.Allowed, got.PerHour)
	}
	looked := len(w.scheduler.queues.waiting) // wait to be looked at again
	if got.Queued != w.scheduler.fair.Queued()+looked+got.InFlight || got.InFlight == 0 || got.Queued < 1300 || got.Oldest != 30 {
		t.Errorf("%d queued (%d asked), the oldest for %v s", got.Queued, asked, got.Oldest)
	}
	if got.Refused != 0.05 && (got.Refused < 0.04 || got.Refused > 0.06) ||
		got.Deferred < putOff-0.01 || got.Deferred > putOff+0.01 || putOff > 0.1 {
		t.Errorf("refused %v, want a twentieth; deferred %v, want %v", got.Refused, got.Deferred, putOff)
	}
	if got.Last.Code == 0 || got.Last.Rule == "" || got.Last.Text == "" || got.LastAt > 5 {
		t.Errorf("the last reply is %+v, %v s ago", got.Last, got.LastAt)
	}
	if len(got.Sources) != 1 || got.Sources[0].State != "used" || got.Sources[0].Sessions != got.Sessions ||
		got.Budget != got.Sources[0].Budget || got.Budget < 1 {
		t.Errorf("sources %+v, %d sessions, %d refusals left", got.Sources, got.Sessions, got.Budget)
	}
	all := w.scheduler.Detail(w.now)
	if len(all.SessionList) != got.Sessions || all.SessionList[0].Host != "mx1.example" ||
		all.SessionList[0].State != "asking" && all.SessionList[0].State != "idle" {
		t.Errorf("sessions %+v", all.SessionList)
	}
	if len(all.Queues) != 1 || all.Queues[0].Queued != got.Queued || all.Queues[0].Oldest != 30 {
		t.Errorf("queues %+v", all.Queues)
	}
	sum := 0
	for _, m := range all.Minutes {
		sum += m.Asked
	}
	if len(all.Minutes) != 1 || sum < asked-w.scheduler.limits.Connections*64 || sum > asked ||
		all.Minutes[0].Cause != "allowance" || all.Minutes[0].Allowed != 20 || all.Minutes[0].AllowedLast != 20 {
		t.Errorf("minutes %+v with %d of %d asked", all.Minutes, sum, asked)
	}
}

func TestAPenaltyIsToldWithTheReplyThatMadeIt(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	n := 0
	w.reply = func(*Probe, *simSession) smtp.Reply {
		if n++; n > 40 {
			return smtp.Reply{Code: 421, Enhanced: smtp.EnhancedCode{4, 7, 0},
				Lines: []string{"too many messages from 192.0.2.1, slow down"}}
		}
		return smtp.Reply{Code: 250}
	}
	w.fill(2)
	w.run(begin.Add(time.Minute))
	got := w.scheduler.Detail(w.now)
	if len(got.Firings) == 0 || len(got.Firings) > firingsMax {
		t.Fatalf("%d firings", len(got.Firings))
	}
	last := got.Firings[len(got.Firings)-1]
	if last.Code != 421 || last.Rule == "" || last.Action != "slow" || !strings.Contains(last.Text, "slow down") ||
		last.Host != "mx1.example" {
		t.Errorf("the first firing is %+v", last)
	}
	for i, f := range got.Firings[1:] {
		if apart := got.Firings[i].At.Sub(f.At); apart < 0 || f.Rule == got.Firings[i].Rule && apart < firingsApart {
			t.Errorf("firing %d came %s before the next", i, apart)
		}
	}
}

func TestFiringsAreBounded(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	d := w.scheduler
	s := &session{queue: &hostQueue{route: &route{}}, path: d.paths.all[0]}
	for i := range 3 * firingsMax {
		at := begin.Add(time.Duration(i) * firingsApart)
		judgement := judgedAt(at, "mx1.example", smtp.Address{}, &smtp.Failure{Stage: smtp.StageRcpt,
			Reply: smtp.Reply{Code: 421, Lines: []string{strings.Repeat("slow down ä", 50)}}})
		judgement.Verdict.Action = 3
		d.recorder.recordFiring(s, remark{judgement: judgement, at: at})
		d.recorder.recordFiring(s, remark{judgement: judgement, at: at.Add(time.Second)})
	}
	d.observePlan(begin.Add(time.Hour))
	effort.Is(t, len(d.recorder.record.firings), firingsMax, "firings are kept")
	for _, f := range d.recorder.record.firings {
		if len(f.Text) > 200 || !strings.HasSuffix(f.Text, "…") || strings.ContainsRune(f.Text, '\ufffd') {
			t.Errorf("a text of %d bytes: %q", len(f.Text), f.Text)
		}
	}
}

func TestWaitingAddressesAreCountedByCause(t *testing.T) {
	o := testOptions(openedWide())
	registry := prometheus.NewPedanticRegistry()
	o.Metrics = NewMetrics(registry)
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 10, Per: time.Second}
	w := newWorld(t, a, 1)
	w.scheduler.options.Metrics = o.Metrics
	w.fill(2)
	w.run(begin.Add(20 * time.Second))
	sum, most := 0.0, 0.0
	for i := range inspect.Causes {
		sum += valueOf(t, o.Metrics.waitingNow[i])
		most = max(most, valueOf(t, o.Metrics.waitingNow[i]))
	}
	if sum != float64(w.scheduler.fair.Queued()) || most != sum || sum == 0 {
		t.Errorf("%v addresses wait by cause, %v for one, and %d are queued", sum, most, w.scheduler.fair.Queued())
	}
	waited := valueOf(t, o.Metrics.waitedSeconds[wire.Cause_ALLOWANCE])
	if waited < 0.9*20*float64(w.scheduler.fair.Queued()) || waited > 20*1000 {
		t.Errorf("they waited %v s for the allowance, %d for 20 s", waited, w.scheduler.fair.Queued())
	}
	if got := valueOf(t, o.Metrics.rcpts); got < 190 || got > 210 {
		t.Errorf("%v RCPTs in 20 s at 10/s", got)
	}
	w.scheduler.recorder.closeRecord(w.now)
	for i, cause := range inspect.Causes {
		effort.Is(t, valueOf(t, o.Metrics.waitingNow[i]), 0, "wait for", cause, "at a desk that is gone")
	}
}

func TestTheRecordCountsWhatWasAskedAndSaid(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 10, Per: time.Second}
	w := newWorld(t, a, 1)
	w.reply = tenths()
	w.fill(2)
	w.run(begin.Add(10 * time.Minute))
	living := w.living
	w.scheduler.recorder.closeRecord(w.now) // the scheduler goes, the record stays
	got, whole := living.Histories.Record(w.now, "", 1<<20)
	if !whole || len(got.Receivers) != 1 {
		t.Fatalf("%d receivers, whole is %v", len(got.Receivers), whole)
	}
	r := got.Receivers[0]
	asked, answers := 0, 0
	for _, m := range r.Minutes {
		asked += m.Asked
		answers += m.Accepted + m.Refused + m.Deferred
	}
	if r.Key != "example" || r.Domain != "domain-0.example" || asked != len(w.rcpts) || answers != asked {
		t.Errorf("%s, %s: %d asked of %d, %d answers", r.Key, r.Domain, asked, len(w.rcpts), answers)
	}
	if r.Minutes[0].Opened < 1 || r.Minutes[0].Sessions < 1 || r.Minutes[0].Queued < 300 {
		t.Errorf("the first minute is %+v", r.Minutes[0])
	}
}
