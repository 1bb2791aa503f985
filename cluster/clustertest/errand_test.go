package clustertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"rollcall/cluster"
	"rollcall/cluster/clustertest"
)

func TestAnErrandAsksEveryMember(t *testing.T) {
	w := clustertest.New(t, 3, func(i int, o *cluster.Options) {
		o.Answer = func(_ context.Context, question []byte) ([]byte, error) {
			if string(question) == "fail" && i == 1 {
				return nil, errors.New("it has nothing to say")
			}
			if string(question) == "panic" && i == 1 {
				panic("this is wrong")
			}
			return fmt.Appendf(nil, "%d %s", i, question), nil
		}
	})
	for i := range 3 {
		w.MustJoin(i)
	}
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	for question, wrong := range map[string]string{"how": "", "fail": "it has nothing to say", "panic": "crashed"} {
		replies := w.Node(0).Errand(w.Context(), []byte(question))
		if len(replies) != 3 {
			t.Fatalf("%s: %d replies, want 3", question, len(replies))
		}
		for i, r := range replies {
			if r.Name != w.Node(i).Name || r.Node != w.Node(i).ID {
				t.Errorf("%s: reply %d is that of %s", question, i, r.Name)
			}
			if i == 1 && wrong != "" {
				if r.Err == nil || !strings.Contains(r.Err.Error(), wrong) || r.Body != nil {
					t.Errorf("%s: node-1 says %q and %v, want %q", question, r.Body, r.Err, wrong)
				}
				continue
			}
			if want := fmt.Sprintf("%d %s", i, question); r.Err != nil || string(r.Body) != want {
				t.Errorf("%s: got %q and %v, want %q", question, r.Body, r.Err, want)
			}
		}
	}
	if r := w.Node(2).ErrandTo(w.Context(), "node-0", []byte("you")); r.Err != nil || string(r.Body) != "0 you" {
		t.Errorf("one member says %q and %v", r.Body, r.Err)
	}
	if r := w.Node(2).ErrandTo(w.Context(), "node-7", nil); !errors.Is(r.Err, cluster.ErrNoMember) {
		t.Errorf("a member that is none: %v", r.Err)
	}
	w.Crash(2)
	silent := w.Node(0).ErrandTo(w.Context(), "node-2", []byte("how"))
	if !errors.Is(silent.Err, cluster.ErrNoAnswer) && !errors.Is(silent.Err, cluster.ErrLost) {
		t.Errorf("a member that crashed: %q and %v", silent.Body, silent.Err)
	}
	w.Await("gossip does not see the member that crashed, and it is named as lost", func() bool {
		replies := w.Node(0).Errand(w.Context(), []byte("how"))
		if len(replies) != 3 || replies[2].Name != "node-2" || replies[2].Err == nil {
			t.Fatalf("the member that crashed is not named: %+v", replies)
		}
		return errors.Is(replies[2].Err, cluster.ErrLost)
	})
	if r := w.Node(0).ErrandTo(w.Context(), "node-2", nil); !errors.Is(r.Err, cluster.ErrLost) {
		t.Errorf("a member that is lost: %v", r.Err)
	}
}

func TestErrandsAreBounded(t *testing.T) {
	var size atomic.Int64
	w := clustertest.New(t, 2, func(_ int, o *cluster.Options) {
		o.Answer = func(context.Context, []byte) ([]byte, error) { return make([]byte, size.Load()), nil }
	})
	w.MustJoin(0)
	w.MustJoin(1)
	w.AwaitShared(nodesOf(w, 0, 1)...)
	for _, c := range []struct {
		question, answer int
		fits             bool
	}{{cluster.QuestionMax, cluster.AnswerMax, true}, {cluster.QuestionMax + 1, 0, false},
		{0, cluster.AnswerMax + 1, false}} {
		size.Store(int64(c.answer))
		var replies []cluster.Reply
		w.Await("all answer in time", func() bool { // a busy machine is late
			replies = w.Node(0).Errand(w.Context(), make([]byte, c.question))
			return !slices.ContainsFunc(replies, func(r cluster.Reply) bool { return errors.Is(r.Err, cluster.ErrNoAnswer) })
		})
		for _, r := range replies {
			if c.fits != (r.Err == nil) || c.fits && !bytes.Equal(r.Body, make([]byte, c.answer)) {
				t.Errorf("%d bytes asked and %d answered at %s: %d bytes, %v", c.question, c.answer, r.Name,
					len(r.Body), r.Err)
			}
		}
	}
}

func TestANodeSaysThatItAnswersEnoughErrandsAlready(t *testing.T) {
	const atOnce = 4
	began, end := make(chan struct{}, 100*atOnce), make(chan struct{})
	w := clustertest.New(t, 2, func(i int, o *cluster.Options) {
		o.Answer = func(ctx context.Context, _ []byte) ([]byte, error) {
			began <- struct{}{}
			select {
			case <-end:
			case <-ctx.Done():
			}
			return nil, ctx.Err()
		}
	})
	w.MustJoin(0)
	w.MustJoin(1)
	w.AwaitShared(nodesOf(w, 0, 1)...)
	w.Await("one more errand is told to ask again", func() bool { // a busy machine is late
		var asked sync.WaitGroup
		for range atOnce {
			asked.Go(func() { w.Node(0).ErrandTo(w.Context(), "node-1", nil) })
		}
		for range atOnce {
			<-began
		}
		r := w.Node(0).ErrandTo(w.Context(), "node-1", nil)
		if r.Err == nil {
			t.Error("one more errand was answered")
		}
		told := r.Err != nil && strings.Contains(r.Err.Error(), "again")
		if !told {
			asked.Wait()
		}
		return told
	})
	close(end)
	w.Await("errands are answered", func() bool { return w.Node(0).ErrandTo(w.Context(), "node-1", nil).Err == nil })
}
