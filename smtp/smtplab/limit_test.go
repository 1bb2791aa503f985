package smtplab

import (
	"testing"
	"time"
)

// TestLimits: each kind lets through what it says and no more, also after a change, and
// the meter counts it.
func TestLimits(t *testing.T) {
	start := time.Now()
	for _, c := range []struct {
		name  string
		limit Limit
		every time.Duration
		let   int // of 100 RCPTs
	}{
		{"none", Limit{}, time.Millisecond, 100},
		{"sliding", Limit{Rcpts: 10, Per: time.Second}, 10 * time.Millisecond, 10},
		{"sliding, slow enough", Limit{Rcpts: 10, Per: time.Second}, 101 * time.Millisecond, 100},
		{"sliding, all count", Limit{Rcpts: 10, Per: time.Second, All: true}, 90 * time.Millisecond, 10},
		{"fixed", Limit{Rcpts: 10, Per: time.Second, Kind: LimitFixed}, 20 * time.Millisecond, 20},
		{"bucket", Limit{Rcpts: 40, Per: time.Second, Kind: LimitBucket}, 5 * time.Millisecond, 21},
		{"sessions", Limit{Rcpts: 10, Per: time.Second, Sessions: true}, 10 * time.Millisecond, 10},
		{"a penalty of ten after ten", Limit{Rcpts: 10, Per: 100 * time.Millisecond, Penalty: 100 * time.Millisecond},
			10*time.Millisecond - 1, 50},
		{"bucket of one", Limit{Rcpts: 1, Per: time.Minute, Kind: LimitBucket}, time.Second, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &meter{since: start}
			m.set(c.limit, start)
			let := 0
			for i := range 100 {
				if m.count(c.limit.Sessions, start.Add(time.Duration(i)*c.every)) == nil {
					let++
				}
			}
			if let < c.let || let > c.let+1 {
				t.Errorf("%d of 100 were let through, want %d", let, c.let)
			}
			if u := m.between(start, start.Add(time.Hour)); u.Asked != 100 || u.Let != let || u.Held != 100-let {
				t.Errorf("the meter has %+v", u)
			}
		})
	}
}

func TestUseAcrossAChange(t *testing.T) {
	start := time.Now()
	m := &meter{since: start}
	m.set(Limit{Rcpts: 5, Per: time.Second}, start)
	for i := range 200 {
		if i == 100 {
			m.set(Limit{Rcpts: 2, Per: time.Second}, start.Add(10*time.Second))
		}
		m.count(false, start.Add(time.Duration(i)*100*time.Millisecond))
	}
	u := m.between(start, start.Add(20*time.Second))
	if u.Possible != 70 || u.Let < 68 || u.Let > 71 || u.Share() < 0.97 || u.HeldShare() < 0.6 {
		t.Errorf("%+v, share %.2f, held %.2f", u, u.Share(), u.HeldShare())
	}
	if u := m.between(start.Add(12*time.Second), start.Add(15*time.Second)); u.Possible != 6 || u.Asked != 30 {
		t.Errorf("in the middle: %+v", u)
	}
}
