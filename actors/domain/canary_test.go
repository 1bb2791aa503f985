package domain

import (
	"slices"
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
)

// fastReceiver answers the chunks of a planner: so many addresses in each tick, due retries first.
type fastReceiver struct {
	*bench
	open   []*wire.Offer
	probes map[uint64][]*wire.Probe // that are not answered
	batch  uint64
	asked  int
	truth  func(p *wire.Probe) told
}

// finish plays until every address has an outcome, for so long at most.
func (w *fastReceiver) finish(most time.Duration) {
	w.reach()
	w.take()
	for w.left > 0 && w.now.Before(morning.Add(most)) {
		w.tick(5, time.Second)
	}
}

// take accepts what is offered.
func (r *fastReceiver) take() {
	for offers := r.offers(); len(offers) > 0; offers = r.offers() {
		for _, o := range offers {
			if r.probes[o.GetChunk()] == nil {
				r.open = append(r.open, o)
				r.probes[o.GetChunk()] = o.GetProbes()
				r.backlog.takeAck(r.now, &wire.OfferAck{Task: o.GetTask(), Chunk: o.GetChunk(), Credit: chunksMax})
			}
		}
		r.look()
	}
}

// tick answers some addresses, and lets time pass.
func (r *fastReceiver) tick(addresses int, d time.Duration) {
	r.now = r.now.Add(d)
	slices.SortStableFunc(r.open, func(a, b *wire.Offer) int {
		switch {
		case a.Retries() == b.Retries():
			return 0
		case a.Retries():
			return -1
		}
		return 1
	})
	for len(r.open) > 0 && addresses > 0 {
		o := r.open[0]
		left := r.probes[o.GetChunk()]
		n := min(len(left), addresses)
		r.batch++
		m := results(o, r.batch, r.now, left[:n], r.truth)
		m.Credit = chunksMax
		r.asked += n
		addresses -= n
		if r.probes[o.GetChunk()] = left[n:]; n == len(left) {
			r.open = r.open[1:]
		}
		r.takeResults(r.now, m)
		r.look()
		r.take()
	}
	r.look()
	r.take()
}

// TestFewAcceptancesAreHeld: behind many refusals the acceptances of a large domain wait for a control probe,
// but not for the end of the domain: some hundred at a time. A slow receiver is asked few of these.
func TestFewAcceptancesAreHeld(t *testing.T) {
	for _, tc := range []struct{ all, perTick, held int }{
		{20_000, 50, canaryMost + 2*50},
		{600, 1, 2 * canaryFew},
	} {
		o := testOptions()
		o.Facts.Learn(testBehaviour, false, morning)
		r := &fastReceiver{bench: newBench(t, o, tc.all), probes: map[uint64][]*wire.Probe{}}
		controls := 0
		r.truth = func(p *wire.Probe) told {
			switch {
			case p.GetOrdinal() == controlOrdinal:
				controls++
				return refused
			case p.GetOrdinal()%5 == 0:
				return refused
			}
			return accepted
		}
		r.reach()
		r.take()
		most := 0
		for tick := 0; r.left > 0 && tick < 10*tc.all; tick++ {
			r.tick(tc.perTick, 10*time.Millisecond)
			most = max(most, r.controls.countWeighed())
		}
		effort.ErrorIf(t, r.left > 0 || most > tc.held,
			"%d of %d are left, at most %d acceptances were held, want %d", r.left, tc.all, most, tc.held)
		effort.ErrorIf(t, controls*100 > 3*tc.all, "%d control probes for %d addresses", controls, tc.all)
		t.Logf("%d addresses, %d control probes, at most %d acceptances were held", tc.all, controls, most)
	}
}

// TestAddressesThatPassOneByOneShareAControlProbe: greylisted ones that become due one by one don't need one each.
func TestAddressesThatPassOneByOneShareAControlProbe(t *testing.T) {
	o := testOptions()
	o.Facts.Learn(testBehaviour, false, morning)
	r := &fastReceiver{bench: newBench(t, o, 100), probes: map[uint64][]*wire.Probe{}}
	controls, asked := 0, map[uint32]bool{}
	r.truth = func(p *wire.Probe) told {
		ordinal := p.GetOrdinal()
		switch {
		case ordinal == controlOrdinal:
			controls++
			return refused
		case !asked[ordinal]:
			asked[ordinal] = true
			return told{reason: smtp.Greylisted, source: sourceA, wait: 601 * time.Second}
		case ordinal%5 < 2:
			return refused
		}
		return accepted
	}
	r.reach()
	r.take()
	for r.left > 0 && r.now.Before(morning.Add(time.Hour)) {
		r.tick(0, 3500*time.Millisecond)
		r.tick(1+len(asked)/100, 500*time.Millisecond)
	}
	if minutes := int(r.now.Sub(morning).Minutes()); r.left > 0 || controls > minutes+1 {
		t.Errorf("%d are left, %d control probes in %d minutes", r.left, controls, minutes)
	}
}

// TestTheFirstControlProbeGoesWithTheFirstChunk: behind some addresses of it, and not for domains of which
// it may not be needed.
func TestTheFirstControlProbeGoesWithTheFirstChunk(t *testing.T) {
	for _, tc := range []struct {
		addresses int
		known     bool
		early     bool
	}{{controlBehind, false, false}, {controlBehind + 1, false, true}, {100, false, true}, {100, true, false}} {
		o := testOptions()
		if tc.known {
			o.Facts.Learn(testBehaviour, false, morning)
		}
		b := newBench(t, o, tc.addresses)
		b.controls.early = true
		b.reach()
		first := b.offered()
		at := slices.IndexFunc(first.GetProbes(), func(p *wire.Probe) bool { return p.GetOrdinal() == controlOrdinal })
		if early := at == controlBehind; early != tc.early || !early && at >= 0 {
			t.Errorf("%+v: the control probe is at %d", tc, at)
			continue
		}
		if !tc.early {
			continue
		}
		b.answers(first, 1, refused, controlOrdinal)
		b.answers(first, 2, accepted)
		effort.Is(t, len(b.done), tc.addresses, tc, "final at once")
		b.is(0, smtp.Valid, smtp.MailboxExists)
	}
}
