package domain

import (
	"slices"
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
)

// pulse says that the only chunk is alive, and for how long the receiver has answered nobody.
func (b *bench) pulse(o *wire.Offer, barren time.Duration, cause wire.Cause) {
	b.t.Helper()
	b.backlog.takePulse(b.now, &wire.Pulse{Task: o.GetTask(), Chunks: []uint64{o.GetChunk()}, Cause: cause,
		BarrenMs: barren.Milliseconds(), BarrenReason: uint32(smtp.Protocol)})
	b.pass(time.Second)
}

// TestReceiverThatAnswersNobody: a file waits no longer than GiveUpAfter for it: what was put off, what is
// with the receiver, what nobody could ask, and what was accepted before and waits for a control probe.
func TestReceiverThatAnswersNobody(t *testing.T) {
	const all = 3 * finalsMax
	b := newBench(t, testOptions(), all)
	b.reach()
	first := b.offered()
	b.answers(first, 1, greylisted, 0)
	b.answers(first, 2, accepted, 1)
	for asked := time.Second; asked < b.options.GiveUpAfter; asked += time.Second {
		b.pulse(first, asked, wire.Cause_FREE)
		effort.FatalIf(t, len(b.done) > 0, "%d are final after %v", len(b.done), asked)
	}
	b.pulse(first, b.options.GiveUpAfter, wire.Cause_FREE)
	b.pulse(first, b.options.GiveUpAfter, wire.Cause_FREE)
	for _, s := range b.steps {
		if to, ok := s.(tell); ok {
			_, given := to.msg.(*wire.Cancel)
			effort.ErrorIf(t, given && !to.msg.(*wire.Cancel).GetGiveBack(),
				"what is out is dropped, and may be on the wire")
		}
	}
	b.barren = b.options.GiveUpAfter
	for _, o := range slices.Clone(b.backlog.chunks) { // what had not begun comes back
		effort.Not(t, len(b.done), all, "given up while it may be on the wire")
		b.answers(o.offer, 99, told{reason: smtp.ReceiverRateLimited, silent: true})
	}
	for b.left > 0 && !b.wakes.IsZero() && b.wakes.Before(b.now.Add(time.Second)) {
		b.now = b.wakes
		b.look()
	}
	effort.MustBe(t, len(b.done), all, "are final")
	b.is(0, smtp.Unknown, smtp.Greylisted)
	b.is(1, smtp.Unknown, smtp.Protocol)
	b.is(2, smtp.Unknown, smtp.Protocol)
	b.is(all-1, smtp.Unknown, smtp.Protocol)
}

// TestReceiverThatAnswersAgain: what it gave nobody counts from the first offer of the file only, and
// an answer ends it.
func TestReceiverThatAnswersAgain(t *testing.T) {
	b := newBench(t, testOptions(), 2)
	b.reach()
	first := b.offered()
	b.pulse(first, 24*time.Hour, wire.Cause_UNREACHED)
	effort.FatalIf(t, len(b.done) > 0, "given up at once for what others waited for")
	for range int(b.options.GiveUpAfter/time.Second) - 2 {
		b.pulse(first, 24*time.Hour, wire.Cause_UNREACHED)
	}
	for range 100 {
		b.pulse(first, 0, wire.Cause_FREE)
	}
	effort.FatalIf(t, len(b.done) > 0, "given up though others are answered")
	b.answers(first, 1, refused)
	b.is(1, smtp.Invalid, smtp.MailboxNotFound)
}

// TestOurOwnLimitsGiveNobodyUp: nor a rest that the receiver names, of addresses that nobody asked for.
func TestOurOwnLimitsGiveNobodyUp(t *testing.T) {
	for _, cause := range []wire.Cause{wire.Cause_PAUSED, wire.Cause_BUDGET, wire.Cause_NO_SOURCE, wire.Cause_NO_SHARE} {
		b := newBench(t, testOptions(), 2)
		b.reach()
		first := b.offered()
		for range int(3 * b.options.GiveUpAfter / time.Second) {
			b.pulse(first, 0, cause)
		}
		effort.ErrorIf(t, len(b.done) > 0, "%v: %d are given up", cause, len(b.done))
	}
	o := testOptions()
	o.GiveUpAfter = time.Minute
	b := newBench(t, o, 10)
	b.reach()
	rest := told{reason: smtp.Greylisted, wait: time.Hour, stage: smtp.StageGreeting, code: 450}
	first := b.offered()
	b.answers(first, 1, rest, 0)
	rest.others = true
	b.answers(first, 2, rest, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	effort.FatalIf(t, len(b.done) > 0, "%d are given up by a rest of an hour, unasked", len(b.done))
	b.pass(2 * time.Hour)
	b.answers(b.offered(), 1, refused)
	effort.Is(t, len(b.done), 10, "final")
}
