package cluster_test

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
	"rollcall/config/effort"
)

// answering is the replaceable function that answers queries on all nodes of a world.
type answering struct {
	by atomic.Pointer[func(ctx context.Context, node int, question []byte) ([]byte, error)]
}

func (a *answering) set(by func(ctx context.Context, node int, question []byte) ([]byte, error)) {
	a.by.Store(&by)
}

// TestQueries: a query asks every member, is bounded in size and number, and names lost members.
func TestQueries(t *testing.T) {
	effort.NotShort(t, "waits for seconds")
	var answers answering
	w := clustertest.New(t, 3, func(i int, o *clustertest.Options) {
		o.Answer = func(ctx context.Context, question []byte) ([]byte, error) {
			return (*answers.by.Load())(ctx, i, question)
		}
	})
	for i := range 3 {
		w.MustJoin(i)
	}
	w.AwaitShared(nodesOf(w, 0, 1, 2)...)
	w.Story("ask every member", func(t *testing.T) {
		answers.set(func(_ context.Context, node int, question []byte) ([]byte, error) {
			switch {
			case string(question) == "fail" && node == 1:
				return nil, errors.New("it has nothing to say")
			case string(question) == "panic" && node == 1:
				panic("this is wrong")
			}
			return fmt.Appendf(nil, "%d %s", node, question), nil
		})
		everyMember(t, w)
	})
	w.Story("are bounded", func(t *testing.T) { bounded(t, w, &answers) })
	w.Story("are not answered beyond a few at once", func(t *testing.T) { enough(t, w, &answers) })
	w.Story("name who is lost", func(t *testing.T) {
		answers.set(func(context.Context, int, []byte) ([]byte, error) { return nil, nil })
		lostIsNamed(t, w)
	})
}

// askAll repeats a query until all three nodes answer in time: on a busy machine one may be late.
func askAll(w *clustertest.World, question []byte) (replies []cluster.Reply) {
	w.Await("all three answer in time", func() bool {
		replies = w.Node(0).QueryAll(w.Context(), question)
		return !slices.ContainsFunc(replies, func(r cluster.Reply) bool {
			return errors.Is(r.Err, cluster.ErrNoAnswer) || errors.Is(r.Err, cluster.ErrLost)
		})
	})
	return replies
}

func everyMember(t *testing.T, w *clustertest.World) {
	for question, wrong := range map[string]string{"how": "", "fail": "it has nothing to say", "panic": "failed"} {
		replies := askAll(w, []byte(question))
		effort.MustBe(t, len(replies), 3, "replies", question)
		for i, r := range replies {
			effort.Is(t, r.Name, w.Node(i).Name, question, "reply", i)
			effort.Is(t, r.Node, w.Node(i).ID, question, "reply", i)
			if i == 1 && wrong != "" {
				effort.ErrorIf(t, r.Err == nil || !strings.Contains(r.Err.Error(), wrong) || r.Body != nil,
					"%s: node-1 says %q and %v, want %q", question, r.Body, r.Err, wrong)
				continue
			}
			if want := fmt.Sprintf("%d %s", i, question); r.Err != nil || string(r.Body) != want {
				t.Errorf("%s: got %q and %v, want %q", question, r.Body, r.Err, want)
			}
		}
	}
	w.Await("one member answers", func() bool {
		r := w.Node(2).QueryMember(w.Context(), "node-0", []byte("you"))
		effort.FatalIf(t, r.Err == nil && string(r.Body) != "0 you", "one member says %q", r.Body)
		return r.Err == nil
	})
	effort.ErrIs(t, w.Node(2).QueryMember(w.Context(), "node-7", nil).Err, cluster.ErrNoMember, "a member that is none")
}

func bounded(t *testing.T, w *clustertest.World, answers *answering) {
	for _, c := range []struct {
		question, answer int
		fits             bool
	}{{cluster.QuestionMax, cluster.AnswerMax, true}, {cluster.QuestionMax + 1, 0, false},
		{0, cluster.AnswerMax + 1, false}} {
		answers.set(func(context.Context, int, []byte) ([]byte, error) { return make([]byte, c.answer), nil })
		for _, r := range askAll(w, make([]byte, c.question)) {
			effort.ErrorIf(t, c.fits != (r.Err == nil) || c.fits && !bytes.Equal(r.Body, make([]byte, c.answer)),
				"%d bytes asked and %d answered at %s: %d bytes, %v", c.question, c.answer, r.Name, len(r.Body), r.Err)
		}
	}
}

// enough starts as many queries as a node answers at once, and one more.
func enough(t *testing.T, w *clustertest.World, answers *answering) {
	const atOnce = 4
	began, end := make(chan struct{}, 100*atOnce), make(chan struct{})
	answers.set(func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
		began <- struct{}{}
		select {
		case <-end:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
	w.Await("one more query is refused", func() bool { // a busy machine is late
		var asked sync.WaitGroup
		for range atOnce {
			asked.Go(func() { w.Node(0).QueryMember(w.Context(), "node-1", nil) })
		}
		answered := make(chan struct{})
		go func() { asked.Wait(); close(answered) }()
		for range atOnce {
			select {
			case <-began:
			case <-answered: // one query came too late
				return false
			}
		}
		r := w.Node(0).QueryMember(w.Context(), "node-1", nil)
		effort.Not(t, r.Err, nil, "one more query was answered")
		told := r.Err != nil && strings.Contains(r.Err.Error(), "again")
		if !told {
			<-answered
		}
		return told
	})
	close(end)
	w.Await("queries are answered", func() bool { return w.Node(0).QueryMember(w.Context(), "node-1", nil).Err == nil })
}

// lostIsNamed cuts a node off from everything, so that nobody knows whether it is dead.
func lostIsNamed(t *testing.T, w *clustertest.World) {
	w.Cut(2)
	silent := w.Node(0).QueryMember(w.Context(), "node-2", []byte("how"))
	effort.ErrorIf(t, !errors.Is(silent.Err, cluster.ErrNoAnswer) && !errors.Is(silent.Err, cluster.ErrLost),
		"a member that was cut off: %q and %v", silent.Body, silent.Err)
	w.Await("gossip does not see the member that was cut off, and it is named as lost", func() bool {
		replies := w.Node(0).QueryAll(w.Context(), []byte("how"))
		effort.FatalIf(t, len(replies) != 3 || replies[2].Name != "node-2" || replies[2].Err == nil,
			"the member that was cut off is not named: %+v", replies)
		return errors.Is(replies[2].Err, cluster.ErrLost)
	})
	effort.ErrIs(t, w.Node(0).QueryMember(w.Context(), "node-2", nil).Err, cluster.ErrLost, "a member that is lost")
}
