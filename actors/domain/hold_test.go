package domain

import (
	"rollcall/config/effort"
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
)

func TestHoldTakesBackWhatIsNotAnswered(t *testing.T) {
	b := newBench(t, testOptions(), 2)
	b.reach()
	o := b.offered()
	b.ack(o, 1, wire.Refusal_NONE)
	b.holdWork(b.now, true)
	b.look()
	effort.MustBe(t, len(b.steps), 1, "steps", b.steps)
	if told, ok := b.steps[0].(tell); !ok || told.msg.(*wire.Cancel).GetTask() != o.GetTask() {
		t.Fatalf("told %+v, want a cancel", b.steps[0])
	}
	b.pass(time.Minute)
	effort.MustBe(t, len(b.offers()), 0, "offers while nothing may be asked")
	b.holdWork(b.now, false)
	b.look()
	if again := b.offered(); len(locals(again)) != 2 || again.GetChunk() == o.GetChunk() {
		t.Fatalf("offered %v as chunk %d, want both addresses in a new chunk", locals(again), again.GetChunk())
	}
}

func TestHoldKeepsTimes(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.answers(b.offered(), 1, told{reason: smtp.Greylisted, wait: 10 * time.Minute})
	b.holdWork(b.now, true)
	b.look()
	b.holdWork(b.now, false)
	b.pass(time.Minute)
	effort.MustBe(t, len(b.offers()), 0,
		"an address was offered before its time, because nothing could be settled for a while")
	b.pass(10 * time.Minute)
	b.offered()
}

// The time in which our ledger stalled does not count towards giving an address up, and
// nobody is told that the receiver made it wait for so long: others would wait as long.
func TestTimeHeldGivesNoAddressUpAndTeachesNothing(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.answers(b.offered(), 1, greylisted)
	b.holdWork(b.now, true)
	b.look()
	b.pass(2 * b.options.GiveUpAfter)
	b.holdWork(b.now, false)
	b.look()
	again := b.offered()
	ago, _, told := again.GetProbes()[0].Greylisted()
	effort.ErrorIf(t, told, "the receiver is told of a wait of %v", ago)
	b.answers(again, 1, greylisted)
	f, over := b.done[0]
	effort.FatalIf(t, over, "given up as %+v", f)
}
