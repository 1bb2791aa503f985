package process

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"rollcall/config/effort"
)

// sleeper sets its timer as it is told and notes when it rang.
type sleeper struct {
	timer Timer
	rang  chan time.Duration // since the start
	start time.Time
}

func (s *sleeper) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case time.Duration:
		s.timer.Set(c, time.Now(), s.start.Add(m))
	case WakeUp:
		if late, ok := s.timer.Rang(m, time.Now()); ok {
			s.rang <- time.Since(s.start) - late
		}
	case string:
		s.timer.Stop()
	}
}

func TestTimerMovesForwardOnlyAndRangOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		say  []any
		want []time.Duration
	}{
		{"set once", []any{time.Minute}, []time.Duration{time.Minute}},
		{"moved forward", []any{time.Hour, time.Minute}, []time.Duration{time.Minute}},
		{"not moved back", []any{time.Minute, time.Hour}, []time.Duration{time.Minute}},
		{"stopped", []any{time.Minute, "stop"}, nil},
		{"set again after a stop", []any{time.Minute, "stop", time.Hour}, []time.Duration{time.Hour}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				system := actor.NewActorSystem()
				s := &sleeper{rang: make(chan time.Duration, 9), start: time.Now()}
				pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return s }))
				for _, m := range c.say {
					system.Root.Send(pid, m)
				}
				synctest.Wait()
				<-time.After(2 * time.Hour)
				_ = system.Root.StopFuture(pid).Wait()
				system.Shutdown()
				close(s.rang)
				var got []time.Duration
				for at := range s.rang {
					got = append(got, at)
				}
				effort.ErrorIf(t, len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0],
					"rang at %v, want %v", got, c.want)
			})
		})
	}
}
