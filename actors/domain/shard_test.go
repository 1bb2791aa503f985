package domain

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/mx"
	"rollcall/smtp/throttle"
)

// newSplitBench is a bench with a receiver of as many shards as n says.
func newSplitBench(t *testing.T, n *int, addresses int) *bench {
	t.Helper()
	o := testOptions()
	o.Shards = func(key string) int {
		if key != testRoute.Receiver {
			t.Errorf("asked for the shards of %q", key)
		}
		return *n
	}
	b := newBench(t, o, addresses)
	b.routed(b.now, testRoute, nil)
	b.look()
	return b
}

// offeredTo gives the offers of the last plan by shard, of which each has at most one.
func (b *bench) offeredTo() map[int]*wire.Offer {
	b.t.Helper()
	out := map[int]*wire.Offer{}
	for _, s := range b.steps {
		if t, ok := s.(tell); ok {
			if o, ok := t.msg.(*wire.Offer); ok {
				if out[t.shard] != nil || int(o.GetTask().GetShard()) != t.shard {
					b.t.Fatalf("shard %d is offered %v", t.shard, o)
				}
				out[t.shard] = o
			}
		}
	}
	return out
}

// shardsOf gives the shards of the test's addresses.
func shardsOf(addresses, of int) []int {
	out := make([]int, addresses)
	for i := range addresses {
		out[i] = throttle.ShardOf(fmt.Sprintf("user%d", i), "example.test", of)
	}
	return out
}

func TestShardsHaveReceiversOfTheirOwn(t *testing.T) {
	n := 3
	b := newSplitBench(t, &n, 30)
	b.wants(findReceiver{shard: 0}, findReceiver{shard: 1}, findReceiver{shard: 2})
	for i, want := range []string{"receiver.test#0.3", "receiver.test#1.3", "receiver.test#2.3"} {
		if got := b.shardKey(i); got != want {
			t.Errorf("shard %d is with %q, want %q", i, got, want)
		}
	}
	b.found(1, b.shardKey(1), true)
	b.look()
	if got := b.offeredTo(); len(got) != 1 || got[1] == nil {
		t.Fatalf("offers %v, want one to the shard that is there", got)
	}
	second := b.offeredTo()[1]
	b.found(0, b.shardKey(0), true)
	b.found(2, b.shardKey(2), true)
	b.look()
	offers := b.offeredTo()
	offers[1] = second
	at, chunks := shardsOf(30, 3), map[uint64]bool{}
	seen := 0
	for shard, o := range offers {
		chunks[o.GetChunk()] = true
		for _, p := range o.GetProbes() {
			seen++
			if at[p.GetOrdinal()] != shard {
				t.Errorf("ordinal %d is offered to shard %d, want %d", p.GetOrdinal(), shard, at[p.GetOrdinal()])
			}
		}
	}
	if seen != 30 || len(chunks) != 3 {
		t.Errorf("%d addresses in %d chunks, want 30 in 3", seen, len(chunks))
	}
	b.gone(b.now, b.shards[0], 0) // that one is lost does not hold the others up
	b.look()
	for _, shard := range []int{1, 2} {
		b.answers(offers[shard], 1, refused)
	}
	if want := len(offers[1].GetProbes()) + len(offers[2].GetProbes()); len(b.done) != want {
		t.Errorf("%d are final, want %d", len(b.done), want)
	}
}

// TestGreylistedAddressComesBackToItsShard: the retry goes where the first attempt
// came from, and the domain is quiet until the first shard has something to do.
func TestGreylistedAddressComesBackToItsShard(t *testing.T) {
	n := 4
	b := newSplitBench(t, &n, 8)
	at := shardsOf(8, 4)
	b.receivers(true)
	offers := b.offersOf(8)
	for shard, o := range offers {
		wait := time.Duration(10-shard) * time.Minute
		b.answers(o, 1, told{reason: smtp.Greylisted, wait: wait})
	}
	last := slices.Max(at[:8])
	until := morning.Add(time.Duration(10-last)*time.Minute + 30*time.Second)
	quiet := b.quiet(b.now)
	if quiet.After(until) || quiet.Before(until.Add(-time.Minute)) || !b.wakes.Equal(quiet) {
		t.Fatalf("quiet until %v, woken at %v, want about %v", quiet, b.wakes, until)
	}
	b.pass(time.Hour)
	for shard, o := range b.offeredTo() {
		for _, p := range o.GetProbes() {
			if at[p.GetOrdinal()] != shard {
				t.Errorf("ordinal %d comes back from shard %d, want %d", p.GetOrdinal(), shard, at[p.GetOrdinal()])
			}
		}
	}
}

// offersOf gives the chunks that are out, which must have so many addresses.
func (b *bench) offersOf(addresses int) map[int]*wire.Offer {
	b.t.Helper()
	out, seen := map[int]*wire.Offer{}, 0
	for _, s := range b.shards {
		for _, o := range s.chunks {
			out[s.number] = o.offer
			seen += len(o.left)
		}
	}
	if seen != addresses {
		b.t.Fatalf("%d addresses are out, want %d", seen, addresses)
	}
	return out
}

// TestOneControlProbeServesAllShards: it goes to its own shard, once, and decides
// for all.
func TestOneControlProbeServesAllShards(t *testing.T) {
	n := 4
	b := newSplitBench(t, &n, 20)
	b.receivers(true)
	control := -1
	for _, o := range b.offersOf(20) {
		b.answers(o, 1, accepted)
		for shard, c := range b.offeredTo() {
			if isControl(c) && control < 0 {
				control = shard
				continue
			}
			t.Fatalf("shard %d is offered %v", shard, locals(c))
		}
	}
	if want := throttle.ShardOf(b.controls.local, "example.test", 4); control != want {
		t.Fatalf("the control probe goes to shard %d, want %d", control, want)
	}
	if len(b.done) > 0 {
		t.Fatal("an acceptance is believed before the control probe")
	}
	b.answers(b.offersOf(1)[control], 1, refused)
	if len(b.done) != 20 || b.left != 0 {
		t.Errorf("%d are final, want 20", len(b.done))
	}
}

// TestTheSplitChanges: while chunks are out, the receiver's allowance is split in
// another way. The old receivers are told to drop what they have, nothing is lost
// or doubled, what was deferred keeps its time, and late messages from the old
// split do no harm.
func TestTheSplitChanges(t *testing.T) {
	for _, c := range []struct{ from, to int }{{1, 3}, {3, 1}, {3, 2}, {2, 64}} {
		t.Run(fmt.Sprintf("%d to %d", c.from, c.to), func(t *testing.T) {
			n := c.from
			b := newSplitBench(t, &n, 200)
			b.receivers(true)
			before := b.offersInOrder()
			first := before[0]
			b.ack(first, 0, wire.Refusal_NONE)
			deferred := first.GetProbes()[0].GetOrdinal()
			b.answers(first, 1, told{reason: smtp.Greylisted, wait: time.Hour / 2}, deferred)
			n = c.to
			b.pulsed(b.now, &wire.Pulse{Task: first.GetTask(), Chunks: []uint64{first.GetChunk()}})
			b.look()
			cancelled := 0
			for _, s := range b.steps {
				if tell, ok := s.(tell); ok {
					if _, ok := tell.msg.(*wire.Cancel); ok {
						cancelled++
					}
				}
			}
			if cancelled != c.from || len(b.shards) != c.to {
				t.Fatalf("%d receivers are told to drop what they have, %d shards; want %d and %d", cancelled,
					len(b.shards), c.from, c.to)
			}
			if b.found(0, "receiver.test#0.99", true) {
				t.Error("a receiver of another split is taken")
			}
			b.receivers(true)
			b.answers(first, 2, accepted) // too late: its chunk was taken back
			done := b.drain(t)
			if done != 199 || len(b.done) != 199 {
				t.Fatalf("%d answered, %d final, want 199", done, len(b.done))
			}
			b.pass(time.Hour/2 + time.Minute)
			b.answers(b.offered(), 1, refused)
			b.is(deferred, smtp.Invalid, smtp.MailboxNotFound)
			if out := b.options.Load.Addresses(); out != 0 {
				t.Errorf("%d count as out", out)
			}
		})
	}
}

// TestAttemptsCountOverASplit: an address that is ready for another attempt when the
// split changes has made those that it made.
func TestAttemptsCountOverASplit(t *testing.T) {
	n := 1
	b := newSplitBench(t, &n, 1)
	b.receivers(true)
	b.answers(b.offered(), 1, greylisted)
	b.pass(ladder[0])
	again := b.offered()
	n = 3
	b.pulsed(b.now, &wire.Pulse{Task: again.GetTask()})
	b.look()
	b.receivers(true)
	b.answers(b.offered(), 1, greylisted)
	if got := b.wakes.Sub(b.now); got != ladder[1] {
		t.Errorf("the second wait is %v, want %v", got, ladder[1])
	}
}

// TestTheSplitChangesWhileNobodyIsReached: every time a receiver is looked for, it
// is that of the present split.
func TestTheSplitChangesWhileNobodyIsReached(t *testing.T) {
	n := 1
	b := newSplitBench(t, &n, 1)
	n = 3
	b.receivers(false)
	shard := shardsOf(1, 3)[0]
	b.wants(findReceiver{shard: shard})
	if got, want := b.shardKey(shard), fmt.Sprintf("receiver.test#%d.3", shard); got != want {
		t.Errorf("looked for %q, want %q", got, want)
	}
}

// offersInOrder gives the chunks that are out, oldest first.
func (b *bench) offersInOrder() (list []*wire.Offer) {
	for _, s := range b.shards {
		for _, o := range s.chunks {
			list = append(list, o.offer)
		}
	}
	slices.SortFunc(list, func(a, b *wire.Offer) int { return int(a.GetChunk()) - int(b.GetChunk()) })
	return list
}

// drain refuses everything that is out until nothing is, and says how much it was.
func (b *bench) drain(t *testing.T) (answered int) {
	t.Helper()
	for range 1000 {
		list := b.offersInOrder()
		if len(list) == 0 {
			return answered
		}
		answered += len(list[0].GetProbes())
		b.answers(list[0], 9, refused)
	}
	t.Fatal("it never ends")
	return 0
}

func TestDomainsThatVanishWithShards(t *testing.T) {
	n := 3
	b := newSplitBench(t, &n, 9)
	b.receivers(true)
	for _, o := range b.offersOf(9) {
		b.answers(o, 1, greylisted)
	}
	b.planner.route.Expires = b.now
	b.pass(ladder[0])
	b.wants(findRoute{})
	b.routed(b.now, mx.Route{NoMail: smtp.NoMailService}, nil)
	b.look()
	for ordinal := range uint32(9) {
		b.is(ordinal, smtp.Invalid, smtp.NoMailService)
	}
}

// TestDeadlineOfShards: the deadline holds for every shard.
func TestDeadlineOfShards(t *testing.T) {
	n := 2
	b := newSplitBench(t, &n, 300)
	b.work.Deadline = morning.Add(30 * time.Minute)
	b.receivers(true)
	b.pass(silenceMax) // both receivers fall silent
	b.pass(30 * time.Minute)
	for ordinal := range uint32(300) {
		b.is(ordinal, smtp.Unknown, smtp.ReceiverRateLimited)
	}
}

// BenchmarkAgenda is the cost of an address from the offer to its outcome, without
// and with shards.
func BenchmarkAgenda(b *testing.B) {
	names := make([]string, 64)
	for i := range names {
		names[i] = fmt.Sprintf("somebody%d", i)
	}
	for _, n := range []int{1, 8} {
		b.Run(fmt.Sprintf("%d shards", n), func(b *testing.B) {
			o := testOptions()
			o.Shards = func(string) int { return n }
			ordinals := make([]uint32, b.N)
			for i := range ordinals {
				ordinals[i] = uint32(i)
			}
			w := Work{Epoch: 1, Domain: "example.test", Ordinals: ordinals,
				Local: func(ordinal uint32) string { return names[ordinal%64] }}
			b.ReportAllocs()
			b.ResetTimer()
			a := newPlanner(morning, o, w, testSeed)
			a.plan(morning)
			a.routed(morning, testRoute, nil)
			a.plan(morning)
			for shard := range n {
				a.found(shard, a.shardKey(shard), true)
			}
			for a.left > 0 {
				a.plan(morning)
				for _, s := range a.shards {
					for _, c := range s.chunks {
						m := &wire.Results{Task: s.task, Chunk: c.offer.GetChunk(), Batch: 1, Credit: 1}
						var texts wire.Texts
						for _, p := range c.offer.GetProbes() {
							m.Answers = append(m.Answers, refused.answer(&texts, p.GetOrdinal(), morning))
						}
						m.Texts = texts.List()
						a.results(morning, m)
					}
				}
			}
		})
	}
}
