package cluster

import (
	"testing"
	"time"

	"rollcall/cluster/gossip"
	"rollcall/ledger"
)

// linkWait bounds what must happen.
const linkWait = 3 * time.Minute

// linkLife is as long as no machine is slow.
const linkLife = time.Hour

// newLinked gives links of a node that answers for itself, and what they signal.
func newLinked(t *testing.T) (*Node, *links, chan struct{}) {
	n, _ := startEcho(t)
	n.startAnswering()
	changes := make(chan struct{}, 100)
	return n, newLinks(n.system, Times{LinkLife: linkLife, Ask: linkWait}, func() int64 { return 4 }, func() { changes <- struct{}{} }), changes
}

func wantChange(t *testing.T, changes chan struct{}) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(linkWait):
		t.Fatal("a change of links was not told")
	}
}

func TestAMemberIsLinkedWhileItAnswers(t *testing.T) {
	n, l, changes := newLinked(t)
	self, other := n.meta.Session, card(7)
	there := gossip.Member{NodeMeta: n.meta} // the question goes to this process, asked for as if by another
	members := []gossip.Member{there, {NodeMeta: other}}
	if l.linked(self) {
		t.Fatal("linked before it was asked")
	}
	l.ask(members[:1], other.Session)
	wantChange(t, changes)
	if !l.linked(self) {
		t.Fatal("it answered and is not linked")
	}
	l.touch(self, n.meta.Actors)
	select {
	case <-changes:
		t.Fatal("a second answer was told as a change")
	default:
	}
	l.mu.Lock()
	l.heard[self] = time.Now().Add(-linkLife)
	l.mu.Unlock()
	if l.linked(self) {
		t.Fatalf("linked %s after its last answer", linkLife)
	}
	l.touch(self, n.meta.Actors)
	wantChange(t, changes)
	l.ask(nil, other.Session)
	if l.linked(self) {
		t.Fatal("linked when gossip does not see it")
	}
}

func TestTheAnswerOfAnotherProcessIsNone(t *testing.T) {
	n, l, changes := newLinked(t)
	stranger := card(7) // whose address this process has now
	l.touch(stranger.Session, n.meta.Actors)
	if l.linked(stranger.Session) || len(changes) != 0 {
		t.Errorf("linked is %v after %d changes, want neither", l.linked(stranger.Session), len(changes))
	}
	l.mu.Lock()
	l.heard[stranger.Session] = time.Now().Add(-linkLife)
	l.mu.Unlock()
	l.touch(stranger.Session, n.meta.Actors)
	wantChange(t, changes) // it is not linked any more
}

func TestANewerTurnOfAMemberIsTold(t *testing.T) {
	n, l, changes := newLinked(t)
	l.touch(n.meta.Session, n.meta.Actors)
	wantChange(t, changes) // linked
	n.snapshot.Store(&ledger.NodeSnapshot{Generation: 4})
	l.touch(n.meta.Session, n.meta.Actors)
	if len(changes) != 0 {
		t.Error("a turn that is known was told")
	}
	n.snapshot.Store(&ledger.NodeSnapshot{Generation: 5})
	l.touch(n.meta.Session, n.meta.Actors)
	wantChange(t, changes)
}

func TestNobodyIsAskedTwiceAtATime(t *testing.T) {
	n, l, changes := newLinked(t)
	l.mu.Lock()
	l.asked[n.meta.Session] = true // a question is out
	l.mu.Unlock()
	l.ask([]gossip.Member{{NodeMeta: n.meta}}, card(7).Session)
	l.touch(n.meta.Session, n.meta.Actors) // that question's answer
	wantChange(t, changes)
	if len(changes) != 0 {
		t.Error("asked again while a question was out")
	}
}
